"""Is the draft model still believed? A collapse costs speed; exactly nothing, or more than ever, hints at garbage."""

import statistics
from collections import deque

from watchdog.judge.facts.recent import Recent
from watchdog.observation import Metrics
from watchdog.sglang.loglines import Line

LEARN_COUNT = 30
NEWEST = 10
WINDOW_S = 600.0
"""What holds for shorter than this is the mix of requests."""


class Accepted:
    """Folds accept lengths of this life: a baseline from its beginning, and the last minutes."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life learns anew."""
        self.first: list[float] = []
        self.recent = Recent(WINDOW_S)
        self._newest: deque[tuple[float, float]] = deque(maxlen=NEWEST)
        self.plain = 0
        """Decode lines without an accept length, as long as none had one."""
        self._summary: tuple[float, tuple[float, int, float] | None] = (-1e18, None)

    def see_batch(self, t: float, line: Line) -> None:
        """Take in a decode line."""
        accept = line.fields.get("accept_len")
        if accept is not None:
            self.see(t, accept, line.fields.get("running", 0.0))
        elif not self.first:
            self.plain += 1

    def see(self, t: float, accept: float, running: float) -> None:
        """Take in one figure of a decode batch that had `running` requests."""
        if running <= 0 or accept <= 0:
            return
        if len(self.first) < LEARN_COUNT:
            self.first.append(accept)
        self.recent.add(t, accept)
        self._newest.append((t, accept))

    def see_metrics(self, o: Metrics, *, moving: bool) -> None:
        """Take in the gauge, but only while decode counters move: it keeps its last value when idle.

        The same value again counts as well: a server that accepts nothing at all never shows another one.
        """
        value = o.values.get("spec_accept_length") if o.ok else None
        if value is not None and moving:
            self.see(o.t, value, o.values.get("num_running_reqs", 0.0) or 1.0)

    def baseline(self) -> float | None:
        """The usual accept length of this life; None before enough was seen."""
        return statistics.median(self.first) if len(self.first) >= LEARN_COUNT else None

    def latest(self, now: float) -> float | None:
        """The median of the newest batches; None if there are too few of late."""
        values = [accept for t, accept in self._newest if t > now - 180.0]
        return statistics.median(values) if len(values) >= 5 else None

    def now(self, now: float) -> tuple[float, int, float] | None:
        """(median, count, span in seconds) of the last minutes; None without traffic."""
        if not self._newest or self._newest[-1][0] <= now - WINDOW_S:
            return None
        newest = self._newest[-1][0]
        if newest - self._summary[0] >= 15.0:
            self._summary = (newest, self._summarise(now))
        return self._summary[1]

    def _summarise(self, now: float) -> tuple[float, int, float] | None:
        since = now - WINDOW_S
        figures = [figure for figure in self.recent.figures if figure.t > since]
        count = sum(figure.many for figure in figures)
        if count < 10:
            return None
        return statistics.median([figure.value for figure in figures]), count, figures[-1].t - figures[0].t
