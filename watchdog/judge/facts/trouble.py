"""Folds lines that tell of trouble without an end, by their marks: there may be one for each request."""

import msgspec

from watchdog.sglang.marks import Line, Mark

KINDS = (Mark.HICACHE_TROUBLE, Mark.NAN, Mark.MEMORY_UNBALANCED)


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

    def begin(self) -> None:
        """A new life has told of nothing yet."""
        self.told.clear()

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
