"""Text of journal entries: lines of any length within bounds, and which lines can be spared when there are too many."""

import msgspec

from watchdog.observation import Log
from watchdog.sglang.bulk import Sort, sort_of

HEAD_BYTES = 6144
TAIL_BYTES = 2048
"""Of a longer line the beginning and the end are kept; a line of token ids may have megabytes."""

PART_MIN_BYTES = 1024
"""Shorter messages are never a part that journald split off (LineMax=, 48K by default, journald.conf(5))."""

JOIN_LIMIT_S = 10.0
"""A line whose end has not come after so many seconds is told without it."""

MAX_OPEN = 64
"""At most so many lines are held while their ends are awaited, one for each stream."""

ACCESS_SPARED_S = 5.0
BATCH_SPARED_S = 15.0
"""So many seconds behind, lines of the access log, and then batch lines, are no longer told one by one."""

MAX_SORTS = 1000
"""So many sorts of lines are told apart at most: a few for each rank."""


def shorten(message: bytes) -> str:
    """A message as text: invalid UTF-8 replaced, the middle of a long one left out and said so."""
    if len(message) <= HEAD_BYTES + TAIL_BYTES:
        return message.decode("utf-8", "replace")
    return _joined(message[:HEAD_BYTES], len(message), message[-TAIL_BYTES:])


def _joined(head: bytes, size: int, tail: bytes) -> str:
    left_out = size - len(head) - len(tail)
    said = f" … [{left_out} bytes left out] … " if left_out else ""
    return head.decode("utf-8", "replace") + said + tail.decode("utf-8", "replace")


class _Open:
    """A line whose end has not come yet."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.head = b""
        self.tail = b""
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        rest = part
        if len(self.head) < HEAD_BYTES:
            room = HEAD_BYTES - len(self.head)
            self.head += part[:room]
            rest = part[room:]
        self.tail = (self.tail + rest)[-TAIL_BYTES:]

    def whole(self, t: float) -> Log:
        return msgspec.structs.replace(self.log, t=t, message=_joined(self.head, self.size, self.tail))


class LongLines:
    """Joins the parts of lines that journald split (_LINE_BREAK=line-max, systemd.journal-fields(7)).

    Attributes:
        open: the lines whose end has not come, by their streams.
    """

    def __init__(self) -> None:
        self.open: dict[bytes, _Open] = {}

    def add(self, log: Log, part: bytes, stream: bytes, more: bool) -> Log | None:
        """One entry of a stream.

        Args:
            log: the entry as an observation of its own.
            part: its message.
            stream: its _STREAM_ID.
            more: whether the line goes on in the stream's next entry.

        Returns:
            The line, if it is whole now.
        """
        begun = self.open.get(stream)
        if begun is None:
            if not more or len(self.open) >= MAX_OPEN:
                return log
            begun = self.open[stream] = _Open(log)
        begun.add(part)
        if more:
            return None
        del self.open[stream]
        return begun.whole(log.t)

    def overdue(self, t: float) -> list[Log]:
        """The lines that have waited too long for their end, as far as they came."""
        streams = [stream for stream, begun in self.open.items() if t - begun.log.t > JOIN_LIMIT_S]
        return [self.open.pop(stream).whole(t) for stream in streams]


class Backlog:
    """Chooses the lines that can be spared while we are behind: of each second and sort, all but the first.

    Lines of the access log are spared first, batch lines next; every other line is told.
    """

    def __init__(self) -> None:
        self._told: dict[Sort, int] = {}

    def spares(self, message: bytes, written: float, behind_s: float) -> bool:
        """Whether a line that was written at `written` need not be told, `behind_s` seconds later."""
        if behind_s < ACCESS_SPARED_S:
            return False
        sort = sort_of(message)
        if sort is None or (behind_s < BATCH_SPARED_S and sort[1] is not None):
            return False
        second = int(written)
        if self._told.get(sort) == second:
            return True
        if len(self._told) >= MAX_SORTS:
            self._told.clear()
        self._told[sort] = second
        return False
