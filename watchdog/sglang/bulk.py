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

_HEAD = 64
"""By so many characters nearly every line shows whether it comes in bulk."""

_heads: set[bytes] = set()


Sort = tuple[bytes | None, ...]
"""A sort of line that comes in bulk: the ranks in its prefix, as they stand there; "Decode" or "Prefill", if it is a batch line;
the status, if it is one of the access log. (As the regular expression gives it: to make more of it would double the cost.)"""


def is_bulk(message: bytes) -> bool:
    """Whether a line comes in bulk."""
    head = message[:_HEAD].translate(ZEROS)
    if head in _heads:
        return True
    match = _BULK.match(message)
    if match is None:
        return False
    if match.end() <= _HEAD:
        if len(_heads) >= MAX_FORMS:
            _heads.clear()
        _heads.add(head)
    return True


def sort_of(message: bytes) -> Sort | None:
    """The sort of a line that comes in bulk; None for any other line, of which each one may matter."""
    match = _SORT.match(message)
    return None if match is None else match.groups()
