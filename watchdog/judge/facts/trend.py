"""Robust trends: does a quantity that should be constant climb in a straight line, and when is the room used up?"""

import statistics
from collections import deque

import msgspec

POINTS = 40
"""A slope is taken over so many medians: Theil–Sen looks at each pair of them."""


class Trend(msgspec.Struct, frozen=True):
    """A steady climb.

    Attributes:
        per_s: Theil–Sen slope, in units a second.
        grown: how much it grew over the span.
        span_s: over which time.
    """

    per_s: float
    grown: float
    span_s: float


class Series:
    """Samples of one quantity, kept as one median for each `bin_s` seconds, over at most `keep` bins."""

    def __init__(self, bin_s: float = 60.0, keep: int = 360) -> None:
        self.bin_s = bin_s
        self._bins: deque[tuple[float, float]] = deque(maxlen=keep)
        self._open: list[float] = []
        self._open_from: float | None = None
        self._fitted: dict[tuple[float, float], tuple[float, Trend | None]] = {}

    def add(self, t: float, value: float) -> None:
        """Take in one sample; `t` never decreases."""
        if self._open_from is None:
            self._open_from = t
        elif t - self._open_from >= self.bin_s:
            self._bins.append((self._open_from + self.bin_s / 2, statistics.median(self._open)))
            self._open.clear()
            self._open_from = t
        self._open.append(value)

    def clear(self) -> None:
        """Forget all samples."""
        self._bins.clear()
        self._open.clear()
        self._open_from = None

    def level(self) -> float | None:
        """The median of the first bins: what it was at the beginning; None without any."""
        values = [v for _, v in list(self._bins)[:5]]
        return statistics.median(values) if values else None

    def climb(self, least: float, least_span_s: float) -> Trend | None:
        """A steady climb by at least `least` over at least `least_span_s`; None if there is none.

        Steady means: the fourths of the span all grow, and the last one not much slower than the whole, so that a cache that
        fills up and a burst do not count.
        """
        if len(self._bins) < 8 or self._bins[-1][0] - self._bins[0][0] < least_span_s:
            return None
        newest = self._bins[-1][0]
        known = self._fitted.get((least, least_span_s))
        if known is None or known[0] != newest:
            known = self._fitted[least, least_span_s] = (newest, self._fit(least))
        return known[1]

    def _fit(self, least: float) -> Trend | None:
        bins = list(self._bins)
        span, grown = bins[-1][0] - bins[0][0], bins[-1][1] - bins[0][1]
        if grown < least:
            return None
        step = max(1, len(bins) // POINTS)
        points = bins[::-1][::step][::-1]
        slopes = [(v2 - v1) / (t2 - t1) for i, (t1, v1) in enumerate(points) for t2, v2 in points[i + 1 :] if t2 > t1]
        slope = statistics.median(slopes)
        if slope <= 0 or not self._steady(bins, slope):
            return None
        return Trend(per_s=slope, grown=grown, span_s=span)

    @staticmethod
    def _steady(bins: list[tuple[float, float]], slope: float) -> bool:
        quarter = len(bins) // 4
        parts = [bins[i * quarter : (i + 1) * quarter] for i in range(3)] + [bins[3 * quarter :]]
        middles = [(statistics.median(t for t, _ in part), statistics.median(v for _, v in part)) for part in parts]
        rises = [(v2 - v1) / (t2 - t1) for (t1, v1), (t2, v2) in zip(middles, middles[1:], strict=False)]
        return all(r > 0.4 * slope for r in rises) and max(rises) < 2.5 * slope
