import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.act import redact

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
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redact.line(text) == text


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


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_key_is_left_out_whatever_stands_around_it(before: str, after: str) -> None:
    assert SECRET not in redact.line(f"{before} --api-key {SECRET} {after}")


@pytest.mark.parametrize(
    "piece", ["'", "a_", "api_key", "rid='", "1, ", "http://", "text='\\", "\\", "-", "[?&key=", "input_ids", "A_", "Bearer "]
)
def test_no_line_takes_long(piece: str) -> None:
    begun = time.process_time()
    redact.line(piece * (redact.LINE_CAP // len(piece)))
    assert time.process_time() - begun < 0.25
