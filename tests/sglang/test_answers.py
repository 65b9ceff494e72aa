import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.observation import Answer
from watchdog.sglang.answers import ProtocolError, Stream, complaint, completion, listed, models

FIXTURES = Path(__file__).parent.parent / "fixtures" / "http"
STREAM = (FIXTURES / "chat_stream.sse").read_bytes()
REASONING = (FIXTURES / "chat_rp_qwen3_stream.sse").read_bytes()


def read(*chunks: bytes) -> Answer:
    stream = Stream()
    for chunk in chunks:
        stream.feed(chunk)
    return stream.end()


def test_real_completion() -> None:
    answer = completion((FIXTURES / "chat.json").read_bytes())
    assert answer.finish_reason == "length" and answer.model == "tiny-qwen3"
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (12, None, 10)
    assert answer.text and answer.text.endswith("capital#") and answer.reasoning is None


def test_real_completion_cut_within_its_reasoning() -> None:
    answer = completion((FIXTURES / "chat_rp_qwen3.json").read_bytes())
    assert answer.text == "" and answer.reasoning == "D" + 5 * "\x14"


def test_real_stream() -> None:
    answer = read(STREAM)
    assert answer == Answer(
        text="�L", reasoning=None, finish_reason="length", model="tiny-qwen3", prompt_tokens=12, completion_tokens=10
    )


def test_real_stream_cut_within_its_reasoning_and_without_usage() -> None:
    answer = read(REASONING)
    assert answer.text == "" and answer.reasoning == "D" + 5 * "\x14" and answer.completion_tokens is None


def test_where_cached_tokens_lay() -> None:
    """The chunk before the usage, as 0.5.23 sends it (serving_chat.py)."""
    ext = b'data: {"model": "m", "choices": [], "sglext": {"cached_tokens_details": {"device": 40, "host": 1400}}}\n\n'
    before_usage, usage = STREAM.rsplit(b"data: {", 1)[0], b"data: {" + STREAM.rsplit(b"data: {", 1)[1]
    answer = read(before_usage + ext + usage)
    assert (answer.cached_device, answer.cached_host, answer.completion_tokens) == (40, 1400, 10)
    assert read(STREAM).cached_host is None
    for bad in (b'{"choices": [], "sglext": 3}', b'{"choices": [], "sglext": {"cached_tokens_details": {"host": -1}}}'):
        with pytest.raises(ProtocolError, match=r"sglext|host"):
            read(b"data: " + bad + b"\n\n")


def test_the_first_token_is_not_the_first_chunk() -> None:
    stream = Stream()
    role, rest = STREAM.split(b"\n\n", 1)
    stream.feed(role + b"\n\n")
    assert not stream.started
    stream.feed(rest.split(b"\n\n", 1)[0] + b"\n\n")
    assert stream.started and not stream.done


@given(st.lists(st.integers(0, len(REASONING)), max_size=40), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cut_anywhere_with_any_line_end_it_reads_the_same(cuts: list[int], end: bytes) -> None:
    body = REASONING.replace(b"\n", end)
    edges = [0, *sorted(min(c, len(body)) for c in cuts), len(body)]
    assert read(*(body[a:b] for a, b in itertools.pairwise(edges))) == read(REASONING)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_single_byte_cut(end: bytes) -> None:
    body = STREAM.replace(b"\n", end)
    expected = read(STREAM)
    assert read(*(body[i : i + 1] for i in range(len(body)))) == expected
    done = body.index(b"[DONE]")
    for i in range(len(body)):
        assert read(body[:i], body[i:]) == expected
        if i <= done:
            with pytest.raises(ProtocolError):
                read(body[:i])


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def delta(finish: str | None = None, **fields: object) -> bytes:
    return event(model="m", choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"


def test_comments_other_fields_bom_and_data_of_several_lines() -> None:
    body = (
        b"\xef\xbb\xbf: hello\n\nid: 7\nevent: message\nretry: 10\n"
        b'data: {"model":"m",\ndata:"choices":[{"delta":{"content":"Pa"},\ndata: "finish_reason":null}]}\n\n'
        b": keep-alive\n\n" + delta("stop", content="ris") + DONE + b"garbage after the end"
    )
    assert read(body) == Answer(text="Paris", finish_reason="stop", model="m")


def test_a_cut_within_a_line_end_does_not_end_the_event() -> None:
    body = b'data: {"model":"m","choices":\r\ndata: [{"delta":{"content":"Paris"},"finish_reason":"stop"}]}\r\n\r\n' + DONE
    for i in range(len(body)):
        assert read(body[:i], body[i:]).text == "Paris"


def test_chunk_boundary_within_a_character() -> None:
    body = delta(content="Пари́ж 巴黎 🗼") + delta("stop") + DONE
    for i in range(len(body)):
        assert read(body[:i], body[i:]).text == "Пари́ж 巴黎 🗼"


def test_tool_calls_are_counted_once_each() -> None:
    calls = [
        {"index": 0, "function": {"name": "f", "arguments": ""}},
        {"index": 1, "function": {"name": "g", "arguments": ""}},
    ]
    body = (
        delta(tool_calls=calls) + delta(tool_calls=[{"index": 1, "function": {"arguments": "{}"}}]) + delta("tool_calls") + DONE
    )
    answer = read(body)
    assert answer.tool_calls == 2 and answer.text is None and answer.finish_reason == "tool_calls"


def test_cached_tokens_and_the_other_name_of_reasoning() -> None:
    usage = {"prompt_tokens": 2011, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1984}}
    answer = read(delta(reasoning="hm") + delta("stop", content="Paris") + event(model="m", choices=[], usage=usage) + DONE)
    assert answer.reasoning == "hm" and answer.cached_tokens == 1984


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "without any event"),
        (delta(content="Pa"), "ended after 1 events, without its closing"),
        (delta(content="Pa") + DONE, "never gave a finish_reason"),
        (b"data: {nonsense\n\n", "event 1 is not JSON"),
        (b'data: {"choices": NaN}\n\n', "event 1 is not JSON"),
        (b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', "event 1 is not JSON"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "nested too deeply"),
        (b"data:\n\n", "event 1 is empty"),
        (b"data: 7\n\n", "event 1 is the number 7, not an object"),
        (b"data: {}\n\n", "event 1.choices is missing, not a list"),
        (event(choices=[[]]), "event 1.choices[0] is a list, not an object"),
        (event(choices=[{"delta": {"content": 5}}]), "event 1.delta.content is the number 5, not text"),
        (event(choices=[{"delta": {"content": True}}]), "is true, not text"),
        (event(choices=[{"delta": {"tool_calls": {"a": 1}}}]), "tool_calls is an object, not a list"),
        (event(choices=[{"delta": {}, "finish_reason": 1}]), "finish_reason is the number 1"),
        (event(choices=[], usage=[1]), "usage is a list"),
        (event(choices=[], usage={"prompt_tokens": "7"}), "prompt_tokens is text, not a count"),
        (event(choices=[], usage={"completion_tokens": -1}), "completion_tokens is the number -1, not a count"),
        (event(choices=[], usage={"prompt_tokens": 1.5}), "prompt_tokens is the number 1.5, not a count"),
    ],
)
def test_what_is_wrong_with_a_stream_is_named(body: bytes, said: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        read(body)
    assert said in str(raised.value)
    assert raised.value.status is None


def test_an_error_within_the_stream_brings_its_status() -> None:
    error = {"object": "error", "message": "The request queue is full.", "type": "503", "param": None, "code": 503}
    with pytest.raises(ProtocolError, match="The request queue is full") as raised:
        read(event(error=error))
    assert raised.value.status == 503


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b"<html>", "the body is not JSON"),
        (b"[]", "the body is a list"),
        (b'{"choices": []}', "no choices"),
        (b'{"choices": [{"message": null, "finish_reason": "stop"}]}', "choices[0].message is missing"),
        (b'{"choices": [{"message": {"content": "x"}}]}', "no finish_reason"),
        (b'{"choices": "x"}', "choices is text, not a list"),
        (b'{"object": "error", "message": "no", "code": 400}', "an error came in place of the answer: no"),
    ],
)
def test_what_is_wrong_with_a_completion_is_named(body: bytes, said: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        completion(body)
    assert said in str(raised.value)


def test_models() -> None:
    assert models((FIXTURES / "v1_models.json").read_bytes()) == (["tiny-qwen3"], [])
    listed = [{"id": "base"}, {"id": "tuned", "root": "/lora/tuned", "parent": "base"}, {"id": "other", "parent": None}]
    assert models(msgspec.json.encode({"data": listed})) == (["base", "other"], ["tuned"])
    assert models(msgspec.json.encode({"data": listed[1:2]})) == (["tuned"], [])
    for bad in (b"{}", b'{"data": []}', b'{"data": [{"id": ""}]}', b'{"data": [{"id": 3}]}', b"\xff"):
        with pytest.raises(ProtocolError):
            models(bad)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"error":{"message":"no\\n  such model"}}', "no such model"),
        (b'{"object":"error","message":"The request queue is full.","code":503}', "The request queue is full."),
        (b"<html>503</html>", ""),
        (b'{"detail":[{"loc":["body"]}]}', ""),
        (b"[" * 100_000, ""),
        (b"7", ""),
        (b"\xff\xfe", ""),
    ],
)
def test_the_words_of_an_error(body: bytes, words: str) -> None:
    assert complaint(body) == words


def test_the_words_of_a_real_error() -> None:
    assert complaint((FIXTURES / "chat_overlong.json").read_bytes()).startswith("The input (12011 tokens) is longer than")
    assert "JSON decode error" in complaint((FIXTURES / "chat_malformed.json").read_bytes())


KEYS = ["choices", "delta", "message", "content", "reasoning_content", "tool_calls", "usage", "error", "code", "model", "id"]
KEYS += ["finish_reason", "index", "prompt_tokens", "prompt_tokens_details", "cached_tokens", "data"]
KEYS += ["parent", "sglext", "cached_tokens_details", "device", "host"]

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@given(json)
def test_any_json_is_an_answer_or_a_named_fault(value: object) -> None:
    body = msgspec.json.encode(value)
    for how in (completion, models, lambda b: read(b"data: " + b + b"\n\n" + DONE)):
        try:
            how(body)
        except ProtocolError as e:
            assert str(e)
    assert isinstance(complaint(body), str)


@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_are_a_named_fault(chunks: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        read(*chunks)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"data": [{"id": "a"}]}', (["a"], [], False)),
        ('{"data":[{"id":"a","parent":null},{"id":"b","parent":"a"},{"id":"c","pa', (["a"], ["b"], True)),
        ('{ "object": "list", "data" : [ {"id": "a"} , {"id": "b"} , {"i', (["a", "b"], [], True)),
        ('{"object":"list","data":[{"id":"a","object":"mod', (["a"], [], True)),
        ('{"object":"list","data":[{"id":"a', ([], [], True)),
        ('{"object":"list","data":[{"id":"a"},7', (["a"], [], True)),
        ('{"data":[' + "[" * 400, ([], [], True)),
    ],
)
def test_the_names_in_the_beginning_of_a_body(body: str, told: tuple[list[str], list[str], bool]) -> None:
    assert listed(body) == told


@given(st.text().map(lambda text: f'{{"data":[{text}'))
def test_of_any_body_no_name_is_empty(body: str) -> None:
    found = listed(body)
    assert all([*found.served, *found.adapters])


def test_a_body_cut_anywhere_has_its_name_or_none() -> None:
    whole = (FIXTURES / "v1_models.json").read_text()
    found = [listed(whole[:n]).served for n in range(len(whole) + 1)]
    assert found[0] == [] and found[-1] == ["tiny-qwen3"] and all(each in ([], ["tiny-qwen3"]) for each in found)
    assert [bool(each) for each in found] == sorted(bool(each) for each in found), "what is known stays known"
