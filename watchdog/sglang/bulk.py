"""The lines of which a busy server prints very many, told apart from the others cheaply."""

import re

_PREFIX = rb"(?:\x1b\[[\d;]*m)*(?:\[[^\]]{19}([^\]]{0,60})\] )?"
_ACCESS = rb'INFO: +[^"\s]{0,80} ?- "[A-Z]{1,10} '
_BULK = re.compile(_PREFIX + rb"(?:(?:Decode|Prefill) batch|" + _ACCESS + rb")")
_SORT = re.compile(_PREFIX + rb"(?:(Decode|Prefill) batch|" + _ACCESS + rb'\S{1,2000} HTTP/[\d.]{1,4}" (\d{3}))')

ZEROS = bytes.maketrans(b"123456789", b"000000000")
"""Lines that are the same after this translation are of one form: the same words, and values at the same places."""

MAX_FORMS = 500
"""So many forms are known at most: of batch lines there are some hundred, of access lines as many as clients have paths."""

_STAMP, _HEAD = 20, 40
"""Where the stamp in a line's prefix ends, and by where nearly every line shows whether it comes in bulk."""

_SHOWN = re.compile(rb"[^\]]{0,60}\] (?:Decode b|Prefill|INFO: +\d)")
"""What shows it, between these two: only lines of the access log have a digit there."""

_BRACKET = ord("[")

_heads: set[bytes] = set()
"""Of lines that came in bulk, what stands between these two. Such lines are known by it several times faster."""


Sort = tuple[bytes | None, ...]
"""A sort of line that comes in bulk: the ranks in its prefix, as they stand there; "Decode" or "Prefill", if it is a batch line;
the status, if it is one of the access log. (As the regular expression gives it: to make more of it would double the cost.)"""


def is_bulk(message: bytes) -> bool:
    """Whether a line comes in bulk, as far as its first characters show."""
    head = message[_STAMP:_HEAD]
    if head in _heads and message[0] == _BRACKET:
        return True
    match = _BULK.match(message)
    if match is None:
        return False
    if message[0] == _BRACKET and _SHOWN.match(head):
        if len(_heads) >= MAX_FORMS:
            _heads.clear()
        _heads.add(head)
    return True


def sort_of(message: bytes) -> Sort | None:
    """The sort of a line that comes in bulk; None for any other line, of which each one may matter."""
    match = _SORT.match(message)
    return None if match is None else match.groups()
