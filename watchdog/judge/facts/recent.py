"""Figures of the last minutes, thinned out: a busy server prints hundreds of lines a second, and minutes of it must fit."""

import statistics
from bisect import insort
from collections import deque
from typing import NamedTuple

EACH_S = 1.0
"""Figures that come within so many seconds of a first one are put together with it."""


class Figure(NamedTuple):
    """The figures of about a second.

    Attributes:
        t: when the first of them came.
        value: their median.
        many: how many there were.
    """

    t: float
    value: float
    many: int


class Recent:
    """Folds figures.

    Attributes:
        figures: those of the last minutes, oldest first.
        count: how many they were before they were put together.
    """

    def __init__(self, window_s: float) -> None:
        """Begin with none.

        Args:
            window_s: what is older than the newest by more than so many seconds is forgotten.
        """
        self.figures: deque[Figure] = deque()
        self.count = 0
        self._window_s = window_s
        self._together: list[float] = []
        """The values of the newest figure, in order."""

    def add(self, t: float, value: float) -> bool:
        """Take in one figure; returns whether it was put together with those before it."""
        self.count += 1
        last = self.figures[-1] if self.figures else None
        if last is not None and t - last.t < EACH_S:
            insort(self._together, value)
            self.figures[-1] = Figure(last.t, statistics.median(self._together), last.many + 1)
            return True
        self._together = [value]
        self.figures.append(Figure(t, value, 1))
        while self.figures[0].t < t - self._window_s:
            self.count -= self.figures.popleft().many
        return False
