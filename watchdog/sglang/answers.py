"""Bodies of the OpenAI-compatible API → what was answered, or what exactly is wrong with them.

Shapes by version (srt/entrypoints/openai of 0.4.6 to 0.5.23): `content` of a reasoning model that is cut within its reasoning is
null up to 0.5.12 and "" from 0.5.13; `usage.prompt_tokens_details` is null without --enable-cache-report, and when nothing was
cached; an error that arises after the first chunk comes as an event `{"error": {…}}` in a stream that began with 200.
`sglext.cached_tokens_details` comes where the request has `return_cached_tokens_details`, from 0.5.9 on (in streams from 0.5.12),
and not where nothing was cached (get_cached_tokens_details in managers/scheduler_components/output_streamer.py, 0.5.23).
"""

import contextlib
import json
import re
from typing import Any, NamedTuple

import msgspec

from watchdog.observation import Answer

_decoder = json.JSONDecoder()
DATA = re.compile(r'"data"\s*:\s*\[\s*')
ID = re.compile(r'\{\s*"id"\s*:\s*"([^"\\]+)"')


class ProtocolError(Exception):
    """A body that is not what the API promises; the message is one sentence, with the server's own words in full length.

    Attributes:
        status: the HTTP status that the server gave inside the body, where it reported an error there; None otherwise.
        words: the server's own words about that error.
    """

    def __init__(self, message: str, status: int | None = None, words: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.words = words


def completion(body: bytes) -> Answer:
    """The answer of a chat completion that was not streamed.

    Raises:
        ProtocolError: no JSON, an error object, or a field that is missing or of the wrong type.
    """
    whole = _object(body, "the body")
    _raise_if_error(whole)
    choices = _list(whole, "choices")
    if not choices:
        raise ProtocolError("the completion has no choices")
    choice = _dict(choices[0], "choices[0]")
    message = _dict(choice.get("message"), "choices[0].message")
    parts = _Parts()
    parts.add(message, "choices[0].message")
    parts.finish_reason = _text(choice, "finish_reason")
    if parts.finish_reason is None:
        raise ProtocolError("the completion has no finish_reason")
    parts.model = _text(whole, "model")
    parts.usage = _usage(whole)
    parts.cached = _cached(whole)
    return parts.answer()


class Models(NamedTuple):
    """The names of GET /v1/models, in the server's order.

    Attributes:
        served: the models themselves: one, the value of --served-model-name (0.4.6 to 0.5.23); a router has several.
        adapters: LoRA adapters, which name the model below them as their `parent` (0.5.4 and later).
    """

    served: list[str]
    adapters: list[str]


def models(body: bytes) -> Models:
    """The names in the body of GET /v1/models.

    Raises:
        ProtocolError: no JSON, or no list of models with an id each.
    """
    data = _list(_object(body, "the body"), "data")
    if not data:
        raise ProtocolError("the list of models is empty")
    found = Models([], [])
    for i, entry in enumerate(data):
        model = _dict(entry, f"data[{i}]")
        name = _text(model, "id", f"data[{i}]")
        if not name:
            raise ProtocolError("a model of the list has no id")
        (found.adapters if isinstance(model.get("parent"), str) else found.served).append(name)
    return found if found.served else Models(found.adapters, [])


class Listed(NamedTuple):
    """What of the names is known; `cut`: the list goes on after what was kept of the body."""

    served: list[str]
    adapters: list[str]
    cut: bool


def listed(body: str) -> Listed:
    """The names in the beginning of the body of GET /v1/models, as a flight record keeps it; none where it is something else.

    Of a first model that was itself cut off, the id is enough: what follows may be an adapter, which only its `parent` tells.
    """
    with contextlib.suppress(ProtocolError):
        return Listed(*models(body.encode("utf-8", "surrogatepass")), cut=False)
    found = Models([], [])
    begun = DATA.search(body)
    at = begun.end() if begun else len(body)
    while at < len(body):
        try:
            entry, at = _decoder.raw_decode(body, at)
        except (ValueError, RecursionError):
            if not found.served and (name := ID.match(body, at)):
                found.served.append(name[1])
            break
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            break
        (found.adapters if isinstance(entry.get("parent"), str) else found.served).append(name)
        at += len(body[at:]) - len(body[at:].lstrip(" \t\r\n,"))
    return Listed(*found, cut=True)


def complaint(body: bytes) -> str:
    """The server's own words in an error body, on one line and in full length; "" where there are none.

    Known forms: `{"object": "error", "message": …}`, `{"error": {"message": …}}`, `{"error": "Unauthorized"}`,
    `{"detail": "Not Found"}`.
    """
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    if isinstance(found, dict):
        found = found.get("message")
    return " ".join(found.split()) if isinstance(found, str) else ""


class _Parts:
    """What has come of an answer so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.tools: set[int] = set()
        self.has_text = False
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.usage: tuple[int | None, int | None, int | None] = (None, None, None)
        self.cached: tuple[int | None, int | None] = (None, None)

    def add(self, message: dict[str, Any], where: str) -> bool:
        """Take a message or a delta; whether it brought something of the answer itself."""
        text = _text(message, "content", where)
        # gpt-oss servers and routers in between call it `reasoning`.
        reasoning = _text(message, "reasoning_content", where) or _text(message, "reasoning", where)
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ProtocolError(f"{where}.tool_calls is {_kind(calls)}, not a list")
        for i, call in enumerate(calls):
            index = _dict(call, f"{where}.tool_calls[{i}]").get("index")
            self.tools.add(index if type(index) is int else i)
        if text is not None:
            self.has_text = True
            self.text.append(text)
        if reasoning:
            self.reasoning.append(reasoning)
        return bool(text or reasoning or calls)

    def answer(self) -> Answer:
        prompt, cached, generated = self.usage
        return Answer(
            text="".join(self.text) if self.has_text else None,
            reasoning="".join(self.reasoning) or None,
            finish_reason=self.finish_reason,
            model=self.model,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=generated,
            tool_calls=len(self.tools),
            cached_device=self.cached[0],
            cached_host=self.cached[1],
        )


class Stream:
    """Reads the event stream of a chat completion, in chunks that may be cut anywhere.

    The stream format: WHATWG HTML, "Server-sent events": lines end with CR, LF or CRLF, a line that begins with a colon is
    a comment, several `data` lines of one event are joined with a newline, an empty line ends the event.

    Attributes:
        started: whether text, reasoning or a tool call has come: the first token.
        done: whether the closing `[DONE]` has come; what follows it is not read.
    """

    def __init__(self) -> None:
        self.started = False
        self.done = False
        self._rest = b""
        self._data: list[bytes] = []
        self._events = 0
        self._parts = _Parts()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            ProtocolError: an event that is not what the API promises.
        """
        # A CR at the end may be half of a CRLF: it waits for the next chunk.
        lines = (self._rest + chunk).replace(b"\r\n", b"\n")
        held = b"\r" if lines.endswith(b"\r") else b""
        *whole, rest = lines.removesuffix(b"\r").replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + held
        for line in whole:
            self._line(line)

    def end(self) -> Answer:
        """The whole answer, after the last byte.

        Raises:
            ProtocolError: the stream ended before its end was told.
        """
        for line in (self._rest.removesuffix(b"\r"), b""):
            self._line(line)
        if not self.done:
            said = f"after {self._events} events" if self._events else "without any event"
            raise ProtocolError(f"the stream ended {said}, without its closing [DONE]")
        if self._parts.finish_reason is None:
            raise ProtocolError("the stream was closed with [DONE] but never gave a finish_reason")
        return self._parts.answer()

    def _line(self, line: bytes) -> None:
        if self.done:
            return
        if line:
            name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
        elif self._data:
            data, self._data = b"\n".join(self._data), []
            self._event(data)

    def _event(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.done = True
            return
        self._events += 1
        where = f"event {self._events}"
        event = _object(data, where)
        _raise_if_error(event)
        parts = self._parts
        parts.model = _text(event, "model", where) or parts.model
        if event.get("usage") is not None:
            parts.usage = _usage(event)
        if event.get("sglext") is not None:
            parts.cached = _cached(event)
        for found in _list(event, "choices", where):
            choice = _dict(found, f"{where}.choices[0]")
            delta = choice.get("delta")
            if delta is not None and parts.add(_dict(delta, f"{where}.delta"), f"{where}.delta"):
                self.started = True
            parts.finish_reason = _text(choice, "finish_reason", where) or parts.finish_reason


def _object(body: bytes, where: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except RecursionError:
        raise ProtocolError(f"{where} is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        if not body.strip():
            raise ProtocolError(f"{where} is empty") from e
        raise ProtocolError(f"{where} is not JSON ({str(e).rstrip('.')})") from e
    return _dict(found, where)


def _raise_if_error(found: dict[str, Any]) -> None:
    """An error object in place of an answer (create_streaming_error_response in serving_base.py, 0.5.23)."""
    error = found.get("error")
    if error is None and found.get("object") == "error":
        error = found
    if error is None:
        return
    said = error.get("message") if isinstance(error, dict) else error
    words = " ".join(said.split()) if isinstance(said, str) else ""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if type(code) is int and 400 <= code <= 599 else None
    raise ProtocolError(f"an error came in place of the answer{': ' if words else ''}{words}", status, words)


def _usage(found: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Prompt tokens, cached tokens and completion tokens, None where they are not told."""
    usage = found.get("usage")
    if usage is None:
        return None, None, None
    usage = _dict(usage, "usage")
    details = usage.get("prompt_tokens_details")
    cached = None if details is None else _count(_dict(details, "usage.prompt_tokens_details"), "cached_tokens")
    return _count(usage, "prompt_tokens"), cached, _count(usage, "completion_tokens")


def _cached(found: dict[str, Any]) -> tuple[int | None, int | None]:
    """Cached tokens on the device and in the host pool, None where they are not told."""
    more = found.get("sglext")
    details = _dict(more, "sglext").get("cached_tokens_details") if more is not None else None
    if details is None:
        return None, None
    details = _dict(details, "sglext.cached_tokens_details")
    return _count(details, "device"), _count(details, "host")


def _count(found: dict[str, Any], key: str) -> int | None:
    value = found.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 2**53:
        raise ProtocolError(f"{key} is {_kind(value)}, not a count")
    return value


def _text(found: dict[str, Any], key: str, where: str = "") -> str | None:
    value = found.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ProtocolError(f"{where}{'.' if where else ''}{key} is {_kind(value)}, not text")


def _list(found: dict[str, Any], key: str, where: str = "") -> list[Any]:
    value = found.get(key)
    if isinstance(value, list):
        return value
    raise ProtocolError(f"{where}{'.' if where else ''}{key} is {_kind(value)}, not a list")


def _dict(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ProtocolError(f"{where} is {_kind(value)}, not an object")


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value:.6g}" if abs(value) < 1e300 else "an enormous number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"
