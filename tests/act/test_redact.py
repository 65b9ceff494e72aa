import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.act import redact
from watchdog.act.secret_forms import struck

SECRET = "s3cr3tXYZ0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"python3 -m sglang.launch_server --api-key {SECRET} --tp 8",
        f"--admin-api-key={SECRET} --port 1",
        f"server_args=ServerArgs(model_path='/m', api_key='{SECRET}', admin_api_key=None)",
        f"{{'api_key': '{SECRET}'}}",
        f'{{"admin_api_key":"{SECRET}"}}',
        f'{{"api_key": "{SECRET}',
        f"ssl_keyfile_password='{SECRET}'",
        f"Environment=HF_TOKEN={SECRET} A=1",
        f'Environment="OPENAI_API_KEY={SECRET}"',
        f"MY_PASSWORD={SECRET}",
        f"TOKEN={SECRET}",
        f"hf_token: {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"authorization: basic {SECRET}",
        f"using hf_{SECRET} to load",
        f"key sk-{SECRET}",
        f"Authorization: {SECRET}",
        f"authorization: Token {SECRET}",
        f"Proxy-Authorization: Digest {SECRET}",
        f'Authorization: Digest username="u", realm="r", response="{SECRET}"',
        f"curl -H 'Authorization: ApiKey {SECRET}' http://h/v1",
        f"{{'Authorization': 'Bearer {SECRET}'}}",
        f"X-Auth: {SECRET}",
        f"X-Vault-Token: {SECRET}",
        f"Bearer\t{SECRET}",
        f"cookie: session={SECRET}; theme=dark; other={SECRET}",
        f"Set-Cookie: sid={SECRET}; Path=/",
        f"['python', '-m', 'sglang.launch_server', '--api-key', '{SECRET}']",
        f'"--api-key" "{SECRET}"',
        f"--admin-api-key\n{SECRET}",
        f"--admin-api-key\0{SECRET}\0--port",
        f'{{\\"api_key\\": \\"{SECRET}\\"}}',
        f'{{\\"api_key\\": \\"a b\\\\\\"{SECRET}\\"}}',
        f"api_key\x1b[0m={SECRET}",
        f"apikey%3D{SECRET}",
        f"api_key=None, token={SECRET}",
        "token=" + SECRET.lower(),
        f"{{'token': '{SECRET}'}}",
        f"token {SECRET}",
        f"KEY: {SECRET}",
        f"pwd={SECRET}",
        f"db_pwd: {SECRET}",
        f"aws_session_token={SECRET}",
        f"Incorrect API key provided: {SECRET}.",
        f"store http://s/x?sig={SECRET} and more",
        f"GET /x?auth={SECRET} HTTP/1.1",
        f"https://b/x?a=1&X-Amz-Signature={SECRET}&y=2",
        f"signature={SECRET}",
        f"http://u:p@{SECRET}@host/x",
        f"http://u:{SECRET}/{SECRET}@host/",
        f"https://{SECRET}@host/x",
        f"https://hooks.example/services/T00/B00/{SECRET}",
        f"tgram://bot123456:AAH{SECRET}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\nMII{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"https_proxy=http://user:{SECRET}@proxy:3128",
        f"redis://:{SECRET}@host/0",
        f"GET /v1/models?token={SECRET}&x=1",
        f"[2026-02-14 03:12:45] Receive: obj=GenerateReqInput(rid='1f2e', text='{SECRET}')",
        f"[2026-02-14 03:12:45] Receive OpenAI: obj=ChatCompletionRequest(messages=[{{'content': '{SECRET}'}}])",
        f"[2026-02-14 03:12:45] Finish: obj=GenerateReqInput(rid='1f2e'), out={{'text': '{SECRET}'}}",
        f'{{"timestamp": "x", "event": "request.finished", "rid": "1f2e", "obj": {{"text": "{SECRET}"}}}}',
        f"Req(rid=1, origin_input_text='it\\'s {SECRET}', output_ids=[1])",
        f"prompt='{SECRET}",
        f"messages=[{{'role': 'user', 'x': '{SECRET}'}}]",
    ],
)
def test_secrets_and_prompts_are_left_out(text: str) -> None:
    assert SECRET not in redact.line(text)


@pytest.mark.parametrize(
    "text",
    [
        "[2026-01-14 02:00:00] Decode batch. #running-req: 3, #token: 1234, token usage: 0.03, gen throughput (token/s): 414.1",
        "[2026-01-14 02:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 35, #cached-token: 11, token usage: 0.00",
        "max_total_num_tokens=159277, chunked_prefill_size=8192, context_len=262144, available_gpu_mem=4.21 GB",
        "api_key=None, admin_api_key=None",
        "Capture cuda graph bs [1, 2, 4, 8, 16, 24, 32]",
        "the secret of the password is out",
        "Using fallback token IDs for yes/no (9693/2152)",
        'INFO:     127.0.0.1:41414 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "http://127.0.0.1:30000/health and someone@example.org",
        "Authorization header is missing, 401 Unauthorized",
        "curl -H 'Authorization: …' http://h/v1",
        "Bearer token is missing",
        "Basic usage of the tokenizer: token=12, token: 7",
        "pwd=/var/lib/sglang PWD=/root",
        "hf_hub_download of hf_transformers_utils, hf_chat_template_name=None",
        "eos_token='<|im_end|>', pad_token=<pad>, image_token_id=151655",
        "max_new_tokens=128, tokenizer_worker_num=1, tokenizer_path='/m', token_to_kv_pool",
        "SIGTERM received, signal 15; design=1, assigned=2, author=x, signature=(x, y)",
        "KeyError: 'model.layers.61.self_attn.k_proj.weight'",
        "Restart with --admin-api-key to enable.",
        "POST http://h:30000/v1/models/@scope/x",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redact.line(text) == text


def test_no_known_line_of_sglang_is_changed() -> None:
    examples = Path(__file__).parent.parent / "sglang" / "log_examples.jsonl"
    lines = [json.loads(each)["line"] for each in examples.read_text().splitlines()]
    assert len(lines) > 100
    assert [line for line in lines if struck(line) != line] == []


BEFORE = [
    *(
        "api_key=",
        "--api-key ",
        "'--api-key', '",
        '{\\"api_key\\": \\"',
        "Authorization: ",
        "Authorization: Token ",
        "?sig=",
        "&auth=",
    ),
    *("cookie: session=", " pwd=", " token=", "://u:p@", "password: ", "Bearer "),
]
AFTER = {"://u:p@": "@host/"}


@given(
    st.sampled_from(BEFORE),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_.~-]{3,10}[0-9][A-Za-z][A-Za-z0-9_-]{2,20}", fullmatch=True),
    st.text(st.characters(exclude_characters="\\\"'-"), max_size=60),
    st.sampled_from(["", " ", '"', "'", "\n", ", "]),
)
def test_a_secret_is_struck_in_each_form(form: str, secret: str, before: str, after: str) -> None:
    text = f"{before} {form}{secret}{AFTER.get(form, '')}{after}"
    once = redact.secrets(text)
    assert secret not in once.removeprefix(before)
    assert secret not in redact.secrets(once).removeprefix(before)


@given(st.integers(0, 10**9), st.floats(0, 1, allow_nan=False))
def test_figures_of_tokens_stay(count: int, share: float) -> None:
    usage = f"token usage: {share:.2f}, max_total_num_tokens={count}"
    text = f"Decode batch, #token: {count}, #new-token: {count}, {usage}, token={count}"
    assert redact.secrets(text) == text


def test_token_ids_are_left_out_but_the_request_is_named() -> None:
    ids = ", ".join(str(n) for n in range(163584, 163700))
    text = redact.line(f"self.cur_batch.reqs=[Req(rid=1f2e, input_ids=[163584, 163594], output_ids=[11], extra=[{ids}])]")
    assert "1635" not in text and "rid=1f2e" in text
    assert redact.line("Receive: obj=GenerateReqInput(rid='1f2e', text='x')").endswith("rid='1f2e' [request left out]")


def test_long_lines_are_cut_and_no_half_key_remains() -> None:
    text = redact.line("a " * 4090 + "hf_" + SECRET * 20)
    assert "s3cr" not in text and text.endswith("[cut]")
    assert len(redact.line("word " * 1000, 100)) == 100


def test_values() -> None:
    content = {"api_key": "x1", "n": 5, "list": [{"hf_token": "x2", "ok": "plain"}], "password": None, "message": "--api-key x3"}
    assert redact.value(content) == {
        "api_key": "…",
        "n": 5,
        "list": [{"hf_token": "…", "ok": "plain"}],
        "password": None,
        "message": "--api-key …",
    }
    assert redact.value(["--api-key", "x1", "--tp", "8"]) == ["--api-key", "…", "--tp", "8"]
    assert redact.value({"Authorization": "x1", "token": "x2", "tokens": "3"}) == {
        "Authorization": "…",
        "token": "…",
        "tokens": "3",
    }


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_key_is_left_out_whatever_stands_around_it(before: str, after: str) -> None:
    assert SECRET not in redact.line(f"{before} --api-key {SECRET} {after}")


@pytest.mark.parametrize(
    "piece",
    [
        *("'", "a_", "api_key", "rid='", "1, ", "http://", "text='\\", "\\", "-", "[?&key=", "input_ids", "A_", "Bearer "),
        *("token", "token a1", "Authorization:", "cookie: a=", "http://u:", "&sig=", "--api-key ", "api_key='\\\"", "KEY: a1"),
        *("-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaa.", 'api_key:\\"', "a@", "secret\x1b[0m", "auth a1", "&key-", "//", "--"),
    ],
)
def test_no_line_takes_long(piece: str) -> None:
    begun = time.process_time()
    redact.line(("token key auth sig cookie = :// @ bearer " + piece * redact.LINE_CAP)[: redact.LINE_CAP])
    assert time.process_time() - begun < 0.25
