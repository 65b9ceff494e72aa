"""Each endpoint answers as in the captures of a real 0.5.23 server."""

import json
from collections.abc import Iterator

import pytest

from tests.standin.server import SCALE, StandIn, events
from watchdog.sglang import answers, metrics
from watchdog.standin.openai import read_chat
from watchdog.standin.options import parse


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with StandIn(
        tmp_path_factory.mktemp("standin"),
        *("--model-path", "/models/m", "--served-model-name", "kimi", "--reasoning-parser", "kimi_k2", "--enable-cache-report"),
        *("--enable-hierarchical-cache", "--hicache-ratio", "4", "--host-pool-mib", "8", "--speculative-algorithm", "EAGLE3"),
    ) as running:
        yield running


@pytest.mark.parametrize("path", ["/health", "/health_generate"])
def test_health_is_empty_and_never_quick(server: StandIn, path: str) -> None:
    got = server.get(path)
    assert (got.status, got.body) == (200, b"")
    assert 1.0 * SCALE <= got.seconds < 20 * SCALE
    assert got.headers["server"] == "uvicorn"
    assert got.headers["vary"] == "Origin"


@pytest.mark.parametrize("path", ["/ready", "/ping"])
def test_flags(server: StandIn, path: str) -> None:
    got = server.get(path)
    assert (got.status, got.body) == (200, b"")


def test_models(server: StandIn) -> None:
    assert answers.models(server.get("/v1/models").body) == (["kimi"], [])
    assert server.get("/v1/models/kimi").json["id"] == "kimi"
    unknown = server.get("/v1/models/nope")
    assert unknown.status == 404
    assert unknown.json["error"]["code"] == "model_not_found"


def test_infos(server: StandIn) -> None:
    assert server.get("/model_info").json["served_model_name"] == "kimi"
    assert server.get("/get_model_info").json == server.get("/model_info").json
    server.wait_log("Endpoint '/get_model_info' is deprecated")
    info = server.get("/server_info").json
    assert info["version"] == "0.5.23"
    assert info["hicache_ratio"] == 4.0
    assert info["internal_states"][0]["speculative_algorithm"] == "EAGLE3"
    assert "--served-model-name kimi" in info["launch_command"]
    assert server.get("/v1/loads").json["loads"][0]["max_total_num_tokens"] == 159277


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/nope", 404, "Not Found"),
        ("GET", "/get_load", 404, "Not Found"),
        ("POST", "/health", 405, "Method Not Allowed"),
    ],
)
def test_what_is_not_there(server: StandIn, method: str, path: str, status: int, detail: str) -> None:
    got = server.request(method, path)
    assert (got.status, got.json) == (status, {"detail": detail})
    assert got.headers["content-type"] == "application/json"


def test_storage_backend_needs_the_admin_key(server: StandIn) -> None:
    assert server.get("/hicache/storage-backend").status == 400


def test_chat(server: StandIn) -> None:
    got = server.chat().json
    choice = got["choices"][0]
    assert choice["message"]["content"].strip() == "Paris."
    assert choice["message"]["reasoning_content"]
    assert choice["finish_reason"] == "stop"
    usage = got["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert answers.completion(server.chat().body).finish_reason == "stop"


def test_chat_that_is_cut_while_it_thinks_has_empty_content(server: StandIn) -> None:
    choice = server.chat(max_tokens=5).json["choices"][0]
    assert choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"]
    assert choice["finish_reason"] == "length"


def test_chat_without_thinking(server: StandIn) -> None:
    message = server.chat(chat_template_kwargs={"thinking": False}).json["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Paris.", None)


def test_stream(server: StandIn) -> None:
    got = server.chat(stream=True, stream_options={"include_usage": True})
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    first, *middle, last, usage = events(got)
    assert first["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in middle)
    assert text.strip() == "Paris."
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 2


def test_completions_and_generate(server: StandIn) -> None:
    got = server.request("POST", "/v1/completions", {"prompt": "2 + 3 is", "max_tokens": 8}).json
    assert got["choices"][0]["text"] == "5"
    streamed = server.request("POST", "/v1/completions", {"prompt": "2 + 3 is", "max_tokens": 8, "stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in events(streamed)) == "5"
    got = server.request(
        "POST", "/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 6, "ignore_eos": True}}
    ).json
    assert got["meta_info"]["completion_tokens"] == 6
    assert got["meta_info"]["finish_reason"]["type"] == "length"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"messages":[{"role"', "JSON decode error"),
        (b"[1]", "validation error"),
        (b"{}", "Field required"),
        (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":"ten"}', "valid integer"),
        (b'{"messages":[{"role":"user","content":"' + b"word " * 300_000 + b'"}]}', "longer than the model's context length"),
    ],
)
def test_bad_requests(server: StandIn, body: bytes, says: str) -> None:
    got = server.request("POST", "/v1/chat/completions", body)
    assert got.status == 400
    assert says in got.json["message"]
    assert (got.json["object"], got.json["code"]) == ("error", 400)


def test_a_prompt_is_found_in_the_cache_then_in_the_host_pool(server: StandIn) -> None:
    prompt = "The lamp stands on the table. " * 60
    assert server.chat(prompt).json["usage"]["prompt_tokens_details"] is None
    again = server.chat(prompt).json["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] > 0.8 * again["prompt_tokens"]
    before = server.metric("load_back_tokens_total")
    server.order("evict")
    from_host = server.chat(prompt).json["usage"]
    assert from_host["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens_details"]["cached_tokens"]
    assert server.metric("load_back_tokens_total") > before
    assert server.request("POST", "/flush_cache").status == 200
    assert server.chat(prompt).json["usage"]["prompt_tokens_details"] is None


def test_where_cached_tokens_lay_is_told_to_those_who_ask(server: StandIn) -> None:
    prompt = "The lamp hangs over the table. " * 60
    ask = {"return_cached_tokens_details": True, "stream": True, "stream_options": {"include_usage": True}}
    assert all("sglext" not in event for event in events(server.chat(prompt, **ask)))
    told = [event["sglext"]["cached_tokens_details"] for event in events(server.chat(prompt, **ask)) if "sglext" in event]
    assert [each["host"] for each in told] == [0] and told[0]["device"] > 100
    server.order("evict")
    loaded = server.chat(prompt, return_cached_tokens_details=True).json["sglext"]["cached_tokens_details"]
    assert loaded == {"device": 0, "host": told[0]["device"]}
    assert all("sglext" not in event for event in events(server.chat(prompt, cache_salt="a", **ask))), (
        "another salt shares nothing"
    )


@pytest.mark.parametrize(
    ("parser", "switches", "thinks"),
    [
        ("kimi_k2", {}, True),
        ("kimi_k2", {"enable_thinking": False}, True),
        ("qwen3", {"enable_thinking": False}, False),
        ("glm45", {"thinking": False}, True),
        ("deepseek-v3", {}, False),
        ("deepseek-v3", {"thinking": True}, True),
        ("deepseek-r1", {"thinking": False}, True),
        ("gpt-oss", {"enable_thinking": False}, True),
    ],
)
def test_what_switches_thinking_is_the_parsers_own(parser: str, switches: dict[str, bool], thinks: bool) -> None:
    options = parse(["--reasoning-parser", parser])
    body = {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": switches}
    assert read_chat(json.dumps(body).encode(), options).thinks is thinks


def test_metrics_are_read_by_the_watchdog(server: StandIn) -> None:
    before = metrics.parse(server.get("/metrics").body.decode()).values
    server.chat()
    after = metrics.parse(server.get("/metrics").body.decode()).values
    assert after["num_requests_total"] == before["num_requests_total"] + 1
    assert after["generation_tokens_total"] > before["generation_tokens_total"]
    assert after["realtime_tokens_total.decode"] > before["realtime_tokens_total.decode"]
    assert after["hicache_host_total_tokens"] == 4 * 159277 + 1
    assert after["e2e_request_latency_seconds_count"] == after["num_requests_total"]


def test_pause_and_continue(server: StandIn) -> None:
    server.request("POST", "/pause_generation")
    assert server.get("/ready").status == 503
    with pytest.raises(TimeoutError):
        server.chat(limit=0.3)
    server.request("POST", "/continue_generation")
    assert server.get("/ready").status == 200
    assert server.chat().status == 200


def test_access_lines_are_uvicorns(server: StandIn) -> None:
    server.get("/ready?x=1")
    line = server.wait_log('"GET /ready?x=1 HTTP/1.1" 200 OK')
    assert line.startswith("[")
    assert "] INFO:     127.0.0.1:" in line
