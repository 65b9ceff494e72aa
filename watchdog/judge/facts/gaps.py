"""The longest gap between two steps of late."""

from collections import deque


class Gaps:
    """Folds gaps; each counts for `memory_s` seconds after its end."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._gaps: deque[tuple[float, float]] = deque()
        """(its end, its seconds); each is longer than all that came after it."""

    def add(self, end: float, seconds: float) -> None:
        """Take in a gap that ended at `end`."""
        # Older ones that were no longer can never be the longest again: the first is always the longest.
        while self._gaps and self._gaps[-1][1] <= seconds:
            self._gaps.pop()
        self._gaps.append((end, seconds))

    def longest(self, now: float) -> float:
        """The longest one that still counts, in seconds; 0 without any."""
        while self._gaps and self._gaps[0][0] < now - self._memory_s:
            self._gaps.popleft()
        return self._gaps[0][1] if self._gaps else 0.0
