"""What log lines mean: a table of real and documented lines, and properties for all others."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang.loglines import Line, Mark, classify
from watchdog.units import GB, GIB

EXAMPLES: list[dict[str, Any]] = [
    json.loads(row) for row in (Path(__file__).parent / "log_examples.jsonl").read_text(encoding="utf-8").splitlines()
]
FATAL = [example["line"] for example in EXAMPLES if example.get("fatal")]
RANK = "[2026-02-14 03:12:45 TP0] "
MAIN = "[2026-02-14 03:12:45] "


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["id"] for example in EXAMPLES])
def test_example(example: dict[str, Any]) -> None:
    line = classify(example["line"])
    if example["mark"] is None:
        assert line is None
        return
    assert line is not None
    assert line.mark == example["mark"]
    assert line.fatal == example.get("fatal", False)
    assert line.rank == example.get("rank")
    assert line.fields == pytest.approx(example.get("fields", {}))
    text = dict(line.text)
    said = text.pop("message", None)
    assert text == example.get("text", {})
    assert said is None or said in example["line"]


def test_every_mark_has_an_example() -> None:
    assert {example["mark"] for example in EXAMPLES} - {None} == {str(mark) for mark in Mark}


def test_kv_cache_lines_are_gib_and_host_pool_lines_are_gb() -> None:
    kv = found(RANK + "KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB")
    pool = found(RANK + "Allocating 44.77 GB host memory for hierarchical KV cache.")
    assert kv.fields["kv_bytes"] == round(10.42 * GIB)
    assert pool.fields["bytes"] == 44.77 * GB


@pytest.mark.parametrize(
    "harmless",
    [
        RANK + "Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'",
        MAIN + "Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",
        MAIN + "[http_server] Error: The input (300000 tokens) is longer than the model's context length (262144 tokens).",
        RANK + "Grammar accept_token failed for req 1f2e with token 163586: Tokens not accepted",
        MAIN + "error",
        "error: nothing",
    ],
)
def test_the_word_error_means_nothing_by_itself(harmless: str) -> None:
    assert classify(harmless) is None


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[2026-02-14 03:12:45] ", None),
        ("[2026-02-14 03:12:45.123] ", None),
        ("[2026-02-14 03:12:45.123 TP7] ", "TP7"),
        ("[2026-02-14 03:12:45 DP1 TP1 PP0] ", "DP1 TP1 PP0"),
        ("[2026-02-14 03:12:45 DP0 PP1 ATTN_CP0 MOE_DP1 TP13 EP3] ", "DP0 PP1 ATTN_CP0 MOE_DP1 TP13 EP3"),
    ],
)
def test_prefixes(prefix: str, rank: str | None) -> None:
    line = found(prefix + "Load weight begin. avail mem=138.10 GB")
    assert (line.mark, line.rank, line.message) == (Mark.WEIGHTS_BEGIN, rank, "Load weight begin. avail mem=138.10 GB")


def test_arguments_do_not_leak_keys() -> None:
    line = found(MAIN + "server_args=ServerArgs(model_path='/m', api_key='sk-very-secret')")
    assert "sk-very-secret" not in str(line)


def test_fields_of_one_line_do_not_reach_another() -> None:
    first = found(MAIN + "Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)")
    first.fields["x"] = 1
    assert "x" not in found(MAIN + "The server is fired up and ready to roll!").fields


def test_unreadable_numbers_are_left_out() -> None:
    line = found(
        RANK + "Decode batch, #running-req: four, #token: 21044, token usage: , gen throughput (token/s): 1.5, #queue-req: 0, "
    )
    assert line.fields == {"tokens": 21044, "gen_throughput": 1.5, "queue": 0}


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    line = classify(text)
    assert line is None or len(line.message) <= 500


@given(
    st.sampled_from(["", RANK, MAIN, MAIN + "INFO:     ", "\r", "[rank0]: ", "\x1b["]),
    st.sampled_from([example["line"] for example in EXAMPLES]),
    st.data(),
)
def test_cut_and_damaged_lines_are_survived(start: str, whole: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, len(whole)))
    classify(start + whole[begin:end] + data.draw(st.text(max_size=20)))


@given(
    st.sampled_from([example["line"] for example in EXAMPLES]),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["\x1b[0m", "\x1b[1;31m", "\x1b[38;5;208m", "\x1b[K"])), max_size=6),
)
def test_colours_change_nothing(line: str, colours: list[tuple[int, str]]) -> None:
    coloured = re.sub(r"\x1b\[[0-9;]*[a-zA-Z]", "", line)
    for place, colour in sorted(((min(place, len(coloured)), colour) for place, colour in colours), reverse=True):
        coloured = coloured[:place] + colour + coloured[place:]
    assert classify(coloured) == classify(line)


QUOTES = [
    MAIN + "Receive: obj=GenerateReqInput(rid='1f2e', text={})",
    MAIN + "Receive: obj={}",
    MAIN + "Receive OpenAI: obj=ChatCompletionRequest(messages=[{}], model='kimi')",
    MAIN + "Finish: obj=GenerateReqInput(rid='1f2e'), out={{'text': {}}}",
    RANK + "Req Time Stats(rid={}, input len=1024, output len=88, type=unified): queue_duration=0.31ms",
    RANK + "Scheduler debug info: {}",
    RANK + "self.cur_batch.batch_size()=4, self.cur_batch.reqs=[Req(rid={})]",
    "scheduler.cur_batch_for_debug.reqs=[Req(rid=1f2e, origin_input_text={})]",
    MAIN + "[http_server] Error: {}",
    MAIN + 'INFO:     10.0.0.7:41234 - "GET /v1/models/{} HTTP/1.1" 404 Not Found',
    MAIN + 'INFO:     10.0.0.7:41234 - "GET /health?x={} HTTP/1.1" 200 OK',
    '{{"timestamp": "2026-02-14T03:12:45Z", "event": "request.received", "text": "{}"}}',
    '{{"event":"request.received","text":"{}"}}',
    MAIN + '{{"event": "request.finished", "out": "{}"}}',
    "    raise ValueError({})",
    '  File "/srv/{}", line 1, in f',
]
"""Lines that hold a user's words, or a program's, at the place of the braces."""


@pytest.mark.parametrize("quote", QUOTES)
def test_a_fatal_line_that_is_quoted_is_not_fatal(quote: str) -> None:
    for fatal in FATAL:
        for quoted in (
            fatal,
            re.sub(r"^\[.*?\] ", "", fatal),
            " " + fatal,
            "x" + fatal,
            "\n" + fatal,
            "\r" + fatal,
            "\x1b[0m" + fatal,
        ):
            result = classify(quote.format(quoted))
            assert result is None or not result.fatal, quoted


@given(st.sampled_from(QUOTES), st.text(max_size=200))
def test_a_user_s_words_are_never_fatal(quote: str, words: str) -> None:
    result = classify(quote.format(words))
    assert result is None or not result.fatal


def test_a_quoted_kv_line_tells_nothing() -> None:
    assert classify(RANK + "Receive: obj=Input(text='a KV Cache is allocated. #tokens: 1, KV size: 1.00 GB") is None


HUGE = 48 * 1024


@pytest.mark.parametrize(
    "line",
    [
        "a" * HUGE,
        "A." * HUGE,
        "AError(" * HUGE,
        "\x1b[" * HUGE,
        "\x1b[" + "1;" * HUGE,
        "\r" * HUGE,
        "[rank3]:[E" + " " * HUGE,
        "  what():  " + "CUDA error" * 5000,
        "Loading " + "1/1 [0:0<" * 8000,
        "Capturing batches " + "\r" * HUGE,
        "ValueError: " + "Capture " * HUGE,
        MAIN + " " * HUGE,
        MAIN + 'INFO:     1.1.1.1:1 - "GET /' + "x?" * HUGE,
        MAIN + 'INFO:     1.1.1.1:1 - "GET /' + "x" * HUGE,
        MAIN + "INFO: " + " " * HUGE,
        RANK + "Load weight end. type=A " + "avail mem=" * HUGE,
        RANK + "Capture " + "cuda " * HUGE,
        RANK + "Tree cache initialized: " + "hicache_attached=" * HUGE,
        RANK + "Decode batch, " + "#queue-req: 1, " * HUGE,
        RANK + "x " * 20 + "KV Cache " * HUGE,
    ],
    ids=lambda line: line[:40].strip(),
)
def test_time_is_in_proportion_to_length(line: str) -> None:
    line = line[:HUGE]
    began = time.perf_counter()
    classify(line)
    assert time.perf_counter() - began < 0.2  # milliseconds where nothing is quadratic, seconds otherwise


def found(message: str) -> Line:
    line = classify(message)
    assert line is not None
    return line
