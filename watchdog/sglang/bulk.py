"""The lines of which a busy server prints very many, told apart from the others cheaply."""

import re
from typing import NamedTuple

_BULK = re.compile(
    rb"(?:\x1b\[[\d;]*m)*(?:\[[^\]]{19}(?P<ranks>[^\]]{0,60})\] )?"
    rb'(?:(?P<batch>Decode|Prefill) batch|INFO: +[^"\s]{0,80} ?- "[A-Z]{1,10} )'
)
_STATUS = re.compile(rb'\S{1,2000} HTTP/[\d.]{1,4}" (\d{3})')

ZEROS = bytes.maketrans(b"123456789", b"000000000")
"""Lines that are the same after this translation are of one form: the same words, and values at the same places."""

MAX_FORMS = 500
"""So many forms are known at most: of batch lines there are some hundred, of access lines as many as clients have paths."""

_HEAD = 64
"""By so many characters nearly every line shows whether it comes in bulk."""

_heads: set[bytes] = set()


class Bulk(NamedTuple):
    """A sort of line that comes in bulk.

    Attributes:
        access: True for a line of the access log, False for a batch line.
        name: the status of an access line; "Decode" or "Prefill" of a batch line.
        ranks: the ranks in a batch line's prefix, as they stand there.
    """

    access: bool
    name: bytes
    ranks: bytes


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


def bulk_of(message: bytes) -> Bulk | None:
    """The sort of a line that comes in bulk; None for any other line, of which each one may matter."""
    match = _BULK.match(message)
    if match is None:
        return None
    if match["batch"] is not None:
        return Bulk(False, match["batch"], match["ranks"] or b"")
    status = _STATUS.match(message, match.end())
    return None if status is None else Bulk(True, status[1], b"")
