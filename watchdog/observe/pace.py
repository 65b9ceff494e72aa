"""When each kind of probe is due: the intervals, their jitter, confirmation after a first failure, and backoff after several."""

import random
from collections import deque

CLOSER = 4
"""While the daemon wants to look closer, and to confirm a failure, intervals are divided by this."""

CLOSER_SHARE = 3
"""Of an hour's budget a closer look may take one part in so many: what looks ill can last for days."""

CONFIRMED = 3
"""So many failures in a row are believed: from there on the pace slows down."""

SLOWEST = 8
"""Backoff multiplies an interval by at most this."""

JITTER = 0.1
"""Intervals are stretched by up to this ratio, so that servers of one host are not asked in step."""

SERVER_TIMEOUT_S = 20.0
"""SGLANG_HEALTH_CHECK_TIMEOUT. Probes at that very interval would meet each old probe's end, and hide what happens between."""

GAP_S = 2.0
"""Between the end of one probe and the beginning of the next of its kind, at least, in seconds (less for shorter intervals)."""


RARELY_S = 300.0
"""In traffic a probe still has its turn so often, in seconds: that requests end does not say what they are answered."""


class Pace:
    """The pace of one kind of probe. Moments are those of the clock, intervals seconds.

    Args:
        interval_s: between the beginnings of two probes in good times.
        rng: of the jitter.
        first: the moment at which the first one is due.
        patient: a turn that traffic took is made up for as soon as traffic ends, not an interval later.
    """

    def __init__(self, interval_s: float, rng: random.Random, first: float, *, patient: bool = False) -> None:
        self.interval_s = interval_s
        self.failures = 0
        self.held: str | None = None
        self._awaited = ("starting", "paused", "traffic") if patient else ("starting", "paused")
        self._rng = rng
        self._due_first: float | None = first
        self._begun = first
        self._ended = first
        self._turn = first
        self._jitter = 1.0

    def due(self, *, closer: bool, hold: str | None) -> float:
        """The moment of the next turn."""
        if self._due_first is not None:
            return self._due_first
        if hold is None and self.held in self._awaited:
            # The reason not to ask is gone, and nothing is known yet.
            return self._turn
        quick = self.failures in range(1, CONFIRMED) or (closer and self.failures < CONFIRMED)
        period = self.interval_s / CLOSER if quick else self.interval_s
        period *= self._jitter
        if abs(period - SERVER_TIMEOUT_S) < 2:
            period += 5
        return max(self._turn + period, self._ended + min(GAP_S, period))

    def long_ago(self, now: float) -> bool:
        """Whether the last probe is so old that traffic is to hold back no more."""
        return now - self._begun >= max(RARELY_S, self.interval_s)

    def backing_off(self, now: float, *, closer: bool) -> bool:
        """Whether this turn is to be left out, since several probes failed."""
        if closer or self.failures < CONFIRMED:
            return False
        return now < self._begun + self.interval_s * min(1 << min(self.failures - CONFIRMED + 1, 10), SLOWEST)

    def skipped(self, now: float, why: str) -> None:
        """The turn passed without a probe."""
        self._next(now)
        self._ended = now
        self.held = why

    def asked(self, begun: float, ended: float, *, failed: bool) -> None:
        """A probe ran."""
        self._next(begun)
        self._begun = begun
        self._ended = ended
        self.failures = self.failures + 1 if failed else 0
        self.held = None

    def _next(self, turn: float) -> None:
        self._due_first = None
        self._turn = turn
        self._jitter = 1.0 + self._rng.random() * JITTER


class Budget:
    """At most `limit` in any hour."""

    WINDOW_S = 3600.0

    def __init__(self, limit: int, before: "Budget | None" = None) -> None:
        """At most `limit`, with what was spent of the one `before`."""
        self.limit = limit
        self._spent: deque[float] = deque(before._spent if before is not None else (), maxlen=limit)

    def left(self, now: float) -> bool:
        """Whether one more may be sent."""
        return len(self._spent) < self.limit or now - self._spent[0] >= self.WINDOW_S

    def ample(self, now: float) -> bool:
        """Whether so little was spent that a closer look leaves enough for an hour of ordinary ones."""
        return sum(now - t < self.WINDOW_S for t in self._spent) < self.limit / CLOSER_SHARE

    def spend(self, now: float) -> None:
        """One is sent, whether or not the budget allowed it."""
        self._spent.append(now)
