"""Robust trends: does a quantity that should be constant climb in a straight line, and when is the room used up?"""

import itertools
import math
import statistics
from collections import deque

import msgspec

POINTS = 40
"""A slope is taken over so many medians: Theil–Sen looks at each pair of them."""
BIN_S = 60.0
KEEP = 360
"""Minutes, six hours of them."""
LEAST_BINS = 8
COARSE_S = 1800.0
COARSE_KEEP = 1008
"""Half-hours, three weeks of them: a slow leak grows too little in the hours that are kept minute by minute."""
RUSH_SPANS = (60.0, 120.0, 300.0, 600.0)
"""Spans over which a quantity may shoot up, in seconds."""
LEAST_LOOKS = 6
ABOVE_NOISE = 8.0
"""A climb must be so many times what the samples scatter about its line."""

Bins = list[tuple[float, float]]


class Trend(msgspec.Struct, frozen=True):
    """A steady climb.

    Attributes:
        per_s: Theil–Sen slope, in units a second.
        grown: how much it grew over the span.
        span_s: over which time.
        ahead: how much may still come, at most, where the climb slows down from part to part; infinite where it does not.
    """

    per_s: float
    grown: float
    span_s: float
    ahead: float = math.inf

    def reaches(self, ahead_s: float) -> bool:
        """Whether a forecast so far ahead may be believed: the line has been straight for an eighth of that time."""
        return self.span_s * 8 >= ahead_s


class Series:
    """Samples of one quantity, kept as one median for each minute over six hours, and for each half-hour over three weeks."""

    def __init__(self) -> None:
        self._bins: deque[tuple[float, float]] = deque(maxlen=KEEP)
        self._coarse: deque[tuple[float, float]] = deque(maxlen=COARSE_KEEP)
        self._half_hour: Bins = []
        self._open: list[float] = []
        self._open_from: float | None = None
        self._fitted: dict[tuple[float, float], tuple[float, Trend | None]] = {}

    def add(self, t: float, value: float) -> None:
        """Take in one sample; `t` never decreases."""
        if self._open_from is None:
            self._open_from = t
        elif t - self._open_from >= BIN_S:
            self._close(self._open_from + BIN_S / 2)
            self._open_from = t
        self._open.append(value)

    def _close(self, middle: float) -> None:
        median = statistics.median(self._open)
        self._open.clear()
        self._bins.append((middle, median))
        if self._half_hour and middle - self._half_hour[0][0] >= COARSE_S:
            first, last = self._half_hour[0][0], self._half_hour[-1][0]
            self._coarse.append(((first + last) / 2, statistics.median(v for _, v in self._half_hour)))
            self._half_hour.clear()
        self._half_hour.append((middle, median))

    def level(self) -> float | None:
        """The median of the first bins: what it was at the beginning; None without any."""
        first = [v for _, v in [*self._coarse, *self._bins][:5]]
        return statistics.median(first) if first else None

    def climb(self, least: float, least_span_s: float) -> Trend | None:
        """A steady climb by at least `least` over at least `least_span_s`, up to now; None if there is none.

        Looked at are the last six hours, their last half, quarter and eighth (a leak may have begun an hour ago), and the last
        three weeks. Steady means: the fourths of the span all grow, and the last not much slower than the first, so that a cache
        that is nearly full and a burst do not count; one that still fills is told by what may still come (`ahead`).
        """
        if len(self._bins) < LEAST_BINS or self._bins[-1][0] - self._bins[0][0] < least_span_s:
            return None
        newest = self._bins[-1][0]
        known = self._fitted.get((least, least_span_s))
        if known is None or known[0] != newest:
            known = self._fitted[least, least_span_s] = (newest, self._find(least, least_span_s))
        return known[1]

    def _find(self, least: float, least_span_s: float) -> Trend | None:
        for part in (1, 2, 4, 8):
            found = _fit(self._bins, len(self._bins) // part, least, least_span_s)
            if found is not None:
                return found
        return _fit(self._coarse, len(self._coarse), least, least_span_s)


class Rush:
    """The samples of the last minutes, one by one: does a quantity shoot up, so that hours of it need not be awaited?"""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        self._lows: deque[tuple[float, float]] = deque()
        """Those samples below all that came after them: the first is the lowest of all."""
        self._highest: float | None = None
        """The most of what was seen before the samples that are kept."""

    def add(self, t: float, value: float) -> None:
        """Take in one sample; `t` never decreases."""
        self._samples.append((t, value))
        while self._samples[0][0] < t - RUSH_SPANS[-1]:
            _, old = self._samples.popleft()
            self._highest = old if self._highest is None else max(old, self._highest)
        while self._lows and self._lows[-1][1] >= value:
            self._lows.pop()
        self._lows.append((t, value))
        while self._lows[0][0] < t - RUSH_SPANS[-1]:
            self._lows.popleft()

    def climb(self, least: float) -> Trend | None:
        """The climb by at least `least` over one of the last spans, the longest that is straight; None if there is none.

        It counts only where it is far above the noise about its line, and most of it is new ground: a quantity that swings
        between levels that it had before does not shoot up.
        """
        if not self._samples or self._samples[-1][1] - self._lows[0][1] < least:
            return None
        for span in reversed(RUSH_SPANS):
            found = self._over(span, least)
            if found is not None:
                return found
        return None

    def _over(self, span_s: float, least: float) -> Trend | None:
        now = self._samples[-1][0]
        bins = [(t, v) for t, v in self._samples if t >= now - span_s]
        if len(bins) < LEAST_LOOKS or bins[-1][0] - bins[0][0] < 0.8 * span_s:
            return None
        found = _climb(bins, least)
        if found is None:
            return None
        noise = statistics.median(abs(v - bins[0][1] - found.per_s * (t - bins[0][0])) for t, v in bins)
        earlier = [v for t, v in self._samples if t < now - span_s] + ([] if self._highest is None else [self._highest])
        ground = bins[-1][1] - max(earlier, default=bins[0][1])
        return found if found.grown > ABOVE_NOISE * noise and ground > found.grown / 2 else None


def _fit(kept: deque[tuple[float, float]], count: int, least: float, least_span_s: float) -> Trend | None:
    """The climb of the last `count` of the bins that are kept."""
    if count < LEAST_BINS:
        return None
    span, grown = kept[-1][0] - kept[-count][0], kept[-1][1] - kept[-count][1]
    if grown < least or span < least_span_s:
        return None
    return _climb(list(kept)[-count:], least)


def _climb(bins: Bins, least: float) -> Trend | None:
    """The steady climb of these points by at least `least`; None if it is none."""
    span, grown = bins[-1][0] - bins[0][0], bins[-1][1] - bins[0][1]
    if grown < least:
        return None
    step = max(1, len(bins) // POINTS)
    points = bins[::-1][::step][::-1]
    slopes = [(v2 - v1) / (t2 - t1) for i, (t1, v1) in enumerate(points) for t2, v2 in points[i + 1 :] if t2 > t1]
    slope = statistics.median(slopes)
    if slope <= 0:
        return None
    middles = _middles(bins)
    rises = [(v2 - v1) / (t2 - t1) for (t1, v1), (t2, v2) in itertools.pairwise(middles)]
    if not _steady(rises, slope):
        return None
    return Trend(per_s=slope, grown=grown, span_s=span, ahead=_ahead(rises, middles[-1][0] - middles[-2][0]))


def _middles(bins: Bins) -> Bins:
    """The median of each fourth."""
    quarter = len(bins) // 4
    parts = [bins[i * quarter : (i + 1) * quarter] for i in range(3)] + [bins[3 * quarter :]]
    return [(statistics.median(t for t, _ in part), statistics.median(v for _, v in part)) for part in parts]


def _steady(rises: list[float], slope: float) -> bool:
    return min(rises) > 0.4 * slope and max(rises) < 2.5 * slope and rises[-1] > 0.6 * rises[0]


def _ahead(rises: list[float], part_s: float) -> float:
    """How much is still to come if each part goes on to bring less than the one before it.

    A store that fills slows down by the same ratio from part to part: the sum of a geometric series, its last term included, is
    more than what follows. It may have begun to fill within the first part, so the fastest part is where it slows down from.
    """
    fastest = max(rises)
    parts = len(rises) - 1 - rises.index(fastest)
    ratio = (rises[-1] / fastest) ** (1 / parts) if parts else 1.0
    return rises[-1] * part_s / (1 - ratio) if ratio < 1 else math.inf
