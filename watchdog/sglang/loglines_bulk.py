"""Batch lines and access lines → what they mean. A busy server prints hundreds of them a second, and little else.

Lines that differ in nothing but their digits are of one form: the same words, and the same values at the same places. Which
values a form has, and where, is found out once; from then on a line of it costs a third.
"""

import re
from collections.abc import Callable, Mapping
from struct import Struct

import msgspec

from watchdog.sglang.bulk import MAX_FORMS, ZEROS
from watchdog.sglang.logrules import MESSAGE_LIMIT
from watchdog.sglang.marks import ACCESS, Line, Mark

_ACCESS = re.compile(
    r'INFO: +(?:\S{1,60}:\d{1,5})? ?- "(?P<method>[A-Z]{1,10}) (?P<path>[^\s?]*)(?:\?\S*)? HTTP/[\d.]{1,4}" (?P<status>\d{3})'
)

# Names of a batch line's values. Hybrid models print one usage for each kind of pool: the full-attention pool counts.
_BATCH_NAMES = {
    "#running-req": "running",
    "#queue-req": "queue",
    "#new-seq": "new_seq",
    "#new-token": "new_token",
    "#cached-token": "cached_token",
    "#pending-token": "pending_token",
    "#token": "tokens",
    "#full token": "tokens",
    "token usage": "token_usage",
    "full token usage": "token_usage",
    "swa token usage": "swa_token_usage",
    "mamba usage": "mamba_usage",
    "accept len": "accept_len",
    "accept rate": "accept_rate",
    "gen throughput (token/s)": "gen_throughput",
    "input throughput (token/s)": "input_throughput",
    "#retracted-req": "retracted",
    "#prealloc-req": "prealloc",
    "#bootstrap-req": "bootstrap",
    "#unbootstrapped-req": "bootstrap",
    "#inflight-req": "inflight",
    "#transfer-req": "transfer",
}

MAX_LENGTH = 1000
"""The forms of longer lines are not kept."""

_Reader = Callable[[str, bytes], Line]
"""Reads the lines of one form, each as text and as ASCII: one byte for each character."""

_readers: dict[bytes, _Reader] = {}
_requests: dict[str, tuple[float, str, str]] = {}
"""Of the ends of access lines, from the method on: the status, the method and the path. Clients ask for the same things."""
_decode_numbers = msgspec.json.Decoder(dict[str, float]).decode


def read_known(message: str) -> Line | None:
    """What a line means whose form is known by now; None for any other line."""
    if not message.isascii():
        return None
    raw = message.encode()
    read = _readers.get(raw.translate(ZEROS))
    return None if read is None else read(message, raw)


def read_batch(mark: Mark, message: str, start: int, rank: str | None) -> Line | None:
    """What a batch line means.

    Args:
        mark: which sort of batch line it is.
        message: the line.
        start: where its own text begins: two characters after the rank, where it names one.
        rank: as the line names it.

    Returns:
        None if it has no values.
    """
    at = message.find("#", start, start + 40)
    if at < 0:
        return None
    raw = message.encode("ascii", "replace")
    places: dict[str, slice] = {}
    for pair in message[at:].split(", ", 40):
        key, _, value = pair.partition(": ")
        name = _BATCH_NAMES.get(key)
        if name is not None:
            begin = at + len(key) + 2
            place = slice(begin, begin + len(value.rstrip(" ,")))
            if _is_number(raw[place]):
                places[name] = place
        at += len(pair) + 2
    ranks = slice(0) if rank is None else slice(start - 2 - len(rank), start - 2)
    return _learn(message, raw, _batch_reader(mark, start, ranks, places, len(raw)))


def read_access(message: str, start: int) -> Line | None:
    """What a line of the access log means whose own text begins at `start`; None for any other line."""
    match = _ACCESS.match(message, start)
    if match is None:
        return None
    asked, body = match.start("method"), slice(start, start + MESSAGE_LIMIT)
    # Of one form are lines with their method at the same place, and the same letters in it and in the path.
    method, path, status = (slice(*match.span(name)) for name in ("method", "path", "status"))
    path = slice(path.start, min(path.stop, path.start + MESSAGE_LIMIT))

    def read(message: str, _: bytes) -> Line:
        request = message[asked:]
        known = _requests.get(request)
        if known is None:
            if len(_requests) >= MAX_FORMS:
                _requests.clear()
            known = _requests[request] = float(message[status]), message[method], message[path]
        fields, text = {"status": known[0]}, {"method": known[1], "path": known[2]}
        return Line(mark=ACCESS, fields=fields, text=text, message=message[body])

    return _learn(message, message.encode("ascii", "replace"), read)


def _batch_reader(mark: Mark, start: int, ranks: slice, places: Mapping[str, slice], size: int) -> _Reader:
    body = slice(start, start + MESSAGE_LIMIT)
    in_order = sorted(places.items(), key=lambda item: item[1].start)
    # Numbers are read several times faster from JSON than by float(), and cut out in one go twice as fast as one by one.
    as_json = b"{" + b",".join(b'"%b":%%b' % name.encode() for name, _ in in_order) + b"}"
    cut = _cutter([place for _, place in in_order], size)

    def read(message: str, raw: bytes) -> Line:
        try:
            fields = _decode_numbers(as_json % cut(raw))
        except msgspec.DecodeError:  # numbers as JSON does not write them: "007", "nan"
            fields = {name: float(raw[place]) for name, place in in_order}
        return Line(mark=mark, rank=message[ranks] or None, fields=fields, message=message[body])

    return read


def _cutter(places: list[slice], size: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Cuts the pieces at `places`, which are in order and apart, out of lines of `size` bytes."""
    form, at = "", 0
    for place in places:
        form += f"{place.start - at}x{place.stop - place.start}s"
        at = place.stop
    return Struct(f"{form}{size - at}x").unpack


def _learn(message: str, raw: bytes, read: _Reader) -> Line:
    if message.isascii() and len(message) <= MAX_LENGTH:
        if len(_readers) >= MAX_FORMS:
            _readers.clear()
        _readers[raw.translate(ZEROS)] = read
    return read(message, raw)


def _is_number(value: bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
