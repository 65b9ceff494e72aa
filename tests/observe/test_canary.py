import asyncio
import json
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observe.talker import Script, Talker, reply, says, stream, talking
from watchdog.clock import BootClock
from watchdog.observation import OUTCOMES, Probe, decode, encode
from watchdog.observe.canary import PREFIX, Canary

FIXTURES = Path(__file__).parent.parent / "fixtures" / "http"
STREAM = (FIXTURES / "chat_stream.sse").read_bytes()
REASONING = (FIXTURES / "chat_rp_qwen3_stream.sse").read_bytes()


def canary(talker: Talker, **more: object) -> Canary:
    asker = Canary(talker.server(**more), random.Random(1), BootClock().now)
    asker.learned_model = "kimi-k2.5"
    return asker


async def asked(script: Script, kind: str = "chat", **more: object) -> Probe:
    async with talking(script) as talker:
        probe = await canary(talker, **more).ask(kind, "life1")
    assert probe.outcome in OUTCOMES and probe.inv == "life1" and probe.probe == kind
    assert decode(encode(probe)) == probe
    return probe


def sent(talker: Talker, i: int = -1) -> dict[str, object]:
    found = json.loads(talker.requests[i].split(b"\r\n\r\n", 1)[1])
    assert isinstance(found, dict)
    return found


def chunk(finish: str | None = None, **delta: object) -> bytes:
    body = {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


DONE = b"data: [DONE]\n\n"
PARIS = stream(chunk(role="assistant", content=""), chunk(content="Paris"), chunk("stop"), DONE)


async def test_what_the_canary_asks() -> None:
    async with talking(says(PARIS)) as talker:
        asker = canary(talker, probe={"chat_max_tokens": 7, "chat_expects": "Paris"})
        first = await asker.ask("chat", None)
        second = await asker.ask("chat", None)
    one, two = sent(talker, 0), sent(talker, 1)
    assert talker.requests[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert one["model"] == two["model"] == "kimi-k2.5"
    assert one["max_tokens"] == 7 and one["temperature"] == 0
    assert one["stream"] is True and one["stream_options"] == {"include_usage": True}
    prompts = [m["messages"][0]["content"] for m in (one, two)]  # type: ignore[index]
    assert prompts[0][:13] != prompts[1][:13], "they differ from the beginning, so that no cache answers"
    assert prompts[0].endswith("] What is the capital of France? Answer with one word.")
    assert one["rid"] == first.request_id and first.request_id != second.request_id
    assert f"X-Request-Id: {first.request_id}".encode() in talker.requests[0]
    assert first.expects == "Paris" and first.limit_s == 10


async def test_the_configured_model_comes_first() -> None:
    async with talking(says(PARIS)) as talker:
        await canary(talker, model="kimi:lora").ask("chat", None)
    assert sent(talker)["model"] == "kimi:lora"


async def test_a_name_that_is_not_known_yet_is_learnt_before_the_canary() -> None:
    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        listed = reply(200, b'{"data": [{"id": "glm"}, {"id": "other"}]}')
        await says(PARIS if b"chat" in request.split(b" ")[1] else listed)(request, writer)

    async with talking(script) as talker:
        asker = canary(talker)
        asker.learned_model = None
        await asker.ask("chat", None)
    assert sent(talker)["model"] == "glm" and len(talker.requests) == 2
    async with talking(says(reply(500))) as talker:
        asker = canary(talker)
        asker.learned_model = None
        await asker.ask("chat", None)
    assert sent(talker)["model"] == "default"


async def test_a_server_that_does_not_heed_max_tokens() -> None:
    probe = await asked(says(stream(chunk(content="a b " * 20_000), chunk("stop"), DONE)))
    assert probe.outcome == "ok" and probe.answer is not None and len(probe.answer.text or "") == 4096


async def test_the_real_stream() -> None:
    probe = await asked(says(stream(STREAM)))
    assert (probe.outcome, probe.status, probe.detail, probe.body) == ("ok", 200, None, None)
    assert probe.answer is not None and probe.answer.text == "�L" and probe.answer.completion_tokens == 10


async def test_reasoning_is_an_answer() -> None:
    probe = await asked(says(stream(REASONING)))
    assert probe.outcome == "ok" and probe.answer is not None
    assert probe.answer.text == "" and probe.answer.reasoning and probe.answer.finish_reason == "length"


async def test_an_answer_that_is_not_streamed() -> None:
    probe = await asked(says(reply(200, (FIXTURES / "chat.json").read_bytes())))
    assert probe.outcome == "ok" and probe.answer is not None and probe.answer.completion_tokens == 10


async def test_time_to_the_first_token_is_not_that_of_the_headers() -> None:
    pieces = PARIS.split(b"\r\n\r\n", 1)
    script = says(pieces[0] + b"\r\n\r\n5\r\n: hi\n\r\n", pieces[1], pause=0.15)
    probe = await asked(script)
    assert probe.outcome == "ok" and probe.ttft_s is not None and probe.ttft_s >= 0.15


async def test_headers_and_then_nothing() -> None:
    head = PARIS.split(b"\r\n\r\n", 1)[0] + b"\r\n\r\n"
    probe = await asked(says(head, hold=5), probe={"chat_limit_s": 0.5})
    assert (probe.outcome, probe.status, probe.ttft_s, probe.answer) == ("timeout", 200, None, None)


@pytest.mark.parametrize(
    ("script", "outcome", "said"),
    [
        (says(stream(chunk(content="Pa"), end=False)), "reset", "in the middle of the answer"),
        (says(stream(chunk(content="Pa"))), "malformed", "without its closing [DONE]"),
        (says(stream(b"data: {broken\n\n"), hold=5), "malformed", "event 1 is not JSON"),
        (says(stream(b'data: {"choices": NaN}\n\n')), "malformed", "event 1 is not JSON"),
        (says(stream(b'data: "\xff"\n\n')), "malformed", "event 1 is not JSON"),
        (says(reply(200, b"<html>hello</html>", "text/html")), "malformed", "the body is not JSON"),
        (says(reply(200, b"")), "malformed", "the body is empty"),
        (says(reply(200, b'{"choices": 5}')), "malformed", "choices is the number 5"),
        (says(reply(401, b'{"error":"Unauthorized"}')), "status", "not allowed (401): the server wants an API key"),
        (says(reply(403, b'{"error":"Forbidden"}')), "status", "not allowed (403)"),
        (says(reply(404, b'{"detail":"Not Found"}')), "status", "badly asked (404): this server has no /v1/chat/completions"),
        (says(reply(400, b'{"object":"error","message":"no template"}')), "status", "badly asked (400): no template"),
        (says(reply(429)), "status", "too many requests (429)"),
        (says(reply(500, b'{"message":"CUDA error"}')), "status", "failed in the server (500): CUDA error"),
        (says(reply(503, b'{"message":"The request queue is full."}')), "status", "saturated (503): The request queue is full."),
        (says(reply(503)), "status", "not serving (503)"),
        (says(reply(101)), "status", "no answer to such a request (101): is it SGLang?"),
        (says(reply(307, Location="http://x/")), "status", "redirected (307): it redirects to Location http://x/"),
        (says(reply(502, b"<html>").replace(b"uvicorn", b"nginx")), "status", "(502) (answered by nginx, not by SGLang"),
    ],
)
async def test_bad_answers_are_named(script: Script, outcome: str, said: str) -> None:
    probe = await asked(script)
    assert probe.outcome == outcome and said in (probe.detail or ""), probe
    assert probe.answer is None and probe.body is not None


async def test_a_full_queue_that_is_told_within_the_stream_is_the_status_that_it_means() -> None:
    error = {"error": {"object": "error", "message": "The request queue is full.", "type": "503", "code": 503}}
    probe = await asked(says(stream(b"data: " + msgspec.json.encode(error) + b"\n\n", DONE)))
    assert (probe.outcome, probe.status) == ("status", 503)
    assert probe.detail == "saturated (503): The request queue is full."


async def test_an_echoed_key_is_kept_nowhere(tmp_path: Path) -> None:
    key = "sk-" + 40 * "k"
    (tmp_path / "key").write_text(key)
    more = {"api_key_file": str(tmp_path / "key")}
    scripts = [
        says(stream(chunk(content="my key: sk-", reasoning_content=key), chunk(content=40 * "k"), chunk("stop"), DONE)),
        says(reply(400, b'{"message": "' + 180 * b"x" + key.encode() + b'"}')),
        says(reply(500, 490 * b"x" + key.encode())),
        says(stream(b'data: {"error": "' + 280 * b"x" + key.encode() + b'"}\n\n')),
        says(reply(200, b"{}").replace(b"uvicorn", key.encode())),
    ]
    for script in scripts:
        assert b"kkkk" not in encode(await asked(script, **more))


async def test_the_prefix_canary_asks_twice_and_tells_the_cache() -> None:
    asks = 0

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal asks
        asks += 1
        usage = {"prompt_tokens": 1500, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1472 * (asks - 1)}}
        last = b"data: " + msgspec.json.encode({"model": "m", "choices": [], "usage": usage}) + b"\n\n"
        await says(stream(chunk(content="3"), chunk("stop"), last, DONE))(request, writer)

    async with talking(script) as talker:
        probe = await canary(talker).ask("prefix", "life1")
    assert asks == 2 and probe.outcome == "ok"
    assert sent(talker, 0)["messages"] == sent(talker, 1)["messages"]
    assert probe.answer is not None and probe.answer.cached_tokens == 1472
    assert "first ask: 0 of 1500 tokens cached" in (probe.detail or "")
    assert "second ask: 1472 of 1500 tokens cached, first token after 0." in (probe.detail or "")
    assert 3000 < len(PREFIX) < 4000


async def test_the_prefix_canary_tells_where_the_tokens_lay() -> None:
    asks = 0

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal asks
        asks += 1
        cached = {"device": 3, "host": 1472} if asks == 1 else {"device": 1475, "host": 0}
        ext = {"model": "m", "choices": [], "sglext": {"cached_tokens_details": cached}}
        usage = {"model": "m", "choices": [], "usage": {"prompt_tokens": 1500, "completion_tokens": 1}}
        last = b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in (ext, usage))
        await says(stream(chunk(content="3"), chunk("stop"), last, DONE))(request, writer)

    async with talking(script) as talker:
        probe = await canary(talker).ask("prefix", "life1")
    assert sent(talker)["return_cached_tokens_details"] is True
    assert probe.earlier is not None and (probe.earlier.cached_device, probe.earlier.cached_host) == (3, 1472)
    assert probe.answer is not None and (probe.answer.cached_device, probe.answer.cached_host) == (1475, 0)
    assert probe.earlier_ttft_s is not None and "1475 of 1500 tokens cached (1472 loaded back" in (probe.detail or "")
    assert decode(encode(probe)) == probe


async def test_a_profile_says_how_a_model_is_asked() -> None:
    args = {"model_path": "/models/Kimi-K2.5", "reasoning_parser": "kimi_k2"}
    async with talking(says(PARIS)) as talker:
        asker = Canary(talker.server(model="kimi"), random.Random(1), BootClock().now, lambda: args)
        chat = await asker.ask("chat", None)
        plain = sent(talker)
        await asker.ask("prefix", None)
    assert plain["max_tokens"] == 16 and "chat_template_kwargs" not in plain, "as users ask: thinking, through its parser"
    assert sent(talker)["chat_template_kwargs"] == {"thinking": False}, "short answers are compared"
    assert chat.expects is None and chat.reasons is True and chat.profile == "kimi-k2"
    args["reasoning_parser"] = "kimi"
    async with talking(says(PARIS)) as talker:
        asker = Canary(talker.server(model="kimi"), random.Random(1), BootClock().now, lambda: args)
        assert (await asker.ask("chat", None)).reasons is None, "no parser of its own parts it"


async def test_the_configuration_goes_before_the_profile(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('title = "mine"\nthinks = "always"\nprompt = "2+2?"\nexpects = "4"\nmax_tokens = 9\n[template_kwargs]\na = 1')
    async with talking(says(PARIS)) as talker:
        first = await canary(talker, probe={"profile": str(own)}).ask("chat", None)
        asked = sent(talker)
        more = {"chat_expects": "", "chat_max_tokens": 5, "chat_prompt": "Say hi", "chat_template_kwargs": {"b": True}}
        second = await canary(talker, probe={"profile": str(own), **more}).ask("chat", None)
    assert asked["max_tokens"] == 9 and asked["chat_template_kwargs"] == {"a": 1} and first.expects == "4"
    assert asked["messages"][0]["content"].endswith("] 2+2?")  # type: ignore[index]
    assert sent(talker)["max_tokens"] == 5 and sent(talker)["chat_template_kwargs"] == {"b": True} and second.expects is None
    assert sent(talker)["messages"][0]["content"].endswith("] Say hi")  # type: ignore[index]
    own.unlink()
    async with talking(says(PARIS)) as talker:
        probe = await canary(talker, probe={"profile": str(own)}).ask("chat", None)
    assert probe.outcome == "ok" and probe.expects is None, "gone since the configuration was read: asked all the same"


async def test_a_prefix_canary_that_fails_is_not_asked_again() -> None:
    async with talking(says(reply(503))) as talker:
        probe = await canary(talker).ask("prefix", None)
    assert probe.outcome == "status" and len(talker.requests) == 1


async def test_models_are_learnt() -> None:
    async with talking(says(reply(200, (FIXTURES / "v1_models.json").read_bytes()))) as talker:
        asker = canary(talker)
        probe = await asker.ask("models", None)
    assert probe.outcome == "ok" and asker.learned_model == "tiny-qwen3"
    assert probe.body is not None and probe.body.startswith('{"object":"list"')
    assert (probe.served, probe.adapters, probe.asked_model) == (["tiny-qwen3"], [], None)


async def test_many_adapters_are_listed() -> None:
    listed = [{"id": "kimi", "parent": None}] + [{"id": f"lora-{i}", "parent": "kimi"} for i in range(200)]
    async with talking(says(reply(200, msgspec.json.encode({"data": listed})))) as talker:
        probe = await canary(talker, model="kimi:lora-7").ask("models", None)
    assert probe.served == ["kimi"] and probe.asked_model == "kimi:lora-7"
    assert probe.adapters is not None and len(probe.adapters) == 100


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"data": {}}', b'{"data": [{}]}', b"\xff", b'{"data": NaN}'])
async def test_models_that_are_none(body: bytes) -> None:
    probe = await asked(says(reply(200, body)), "models")
    assert probe.outcome == "malformed" and (probe.detail or "").startswith("/v1/models: ")


async def test_health_and_ready() -> None:
    probe = await asked(says(reply(200)), "health")
    assert (probe.outcome, probe.status, probe.body, probe.answer) == ("ok", 200, "", None)
    probe = await asked(says(reply(503)), "health")
    assert (probe.outcome, probe.status, probe.detail) == ("status", 503, "not serving (503)")
    probe = await asked(says(reply(404, b'{"detail":"Not Found"}')), "ready")
    assert probe.status == 404 and "0.5.20" in (probe.detail or "")
    probe = await asked(says(reply(200, b"\xff" * 2000, "text/plain")), "health")
    assert probe.body == 512 * "\ufffd"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, len(REASONING)), st.booleans())
async def test_a_real_stream_cut_at_any_byte_is_never_an_answer(cut: int, ended: bool) -> None:
    probe = await asked(says(stream(REASONING[:cut], end=ended)))
    # Without the closing empty line, only the end of the body ends the last event.
    whole = REASONING.index(b"[DONE]") + (6 if ended else 8)
    if cut >= whole:
        assert probe.outcome == "ok"
    else:
        assert probe.outcome == ("malformed" if ended else "reset") and probe.answer is None
