"""Folds lines that tell of trouble without an end, by their marks: there may be one for each request."""

from collections import deque

import msgspec

from watchdog.sglang.marks import Line, Mark

KINDS = (Mark.HICACHE_TROUBLE, Mark.NAN, Mark.MEMORY_UNBALANCED)
TRANSFERS = 10
"""So many requests that got no KV cache from another server are no accident."""
TOGETHER_S = 1.0
"""Each rank tells of a request within so long: that counts once."""


class Trouble(msgspec.Struct):
    """Lines of one mark: the moments of the first and of the last, how many there were, and the last."""

    first: float
    last: float
    count: int
    line: Line


class Troubles:
    """What the lines of this life told; forgets with the life."""

    def __init__(self) -> None:
        self.told: dict[Mark, Trouble] = {}
        self.transfers: deque[float] = deque(maxlen=TRANSFERS)
        """When the last requests failed whose KV cache did not come from, or go to, another server."""

    def begin(self) -> None:
        """A new life has told of nothing yet."""
        self.told.clear()
        self.transfers.clear()

    def see_aborted(self, t: float, line: Line) -> None:
        """Take in that a request was given up, and why."""
        new = not self.transfers or t - self.transfers[-1] >= TOGETHER_S
        if new and line.text.get("cause") == "transfer":
            self.transfers.append(t)

    def see(self, t: float, line: Line) -> None:
        """Take in a line that was written at `t`."""
        known = self.told.get(line.mark)
        if known is None:
            self.told[line.mark] = Trouble(t, t, 1, line)
        elif t >= known.last:
            known.last, known.line = t, line
            known.count += 1
        else:
            known.first = min(t, known.first)
            known.count += 1
