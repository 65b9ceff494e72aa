"""Folds what the daemon says of its own sources and pauses, and what journald says it lost."""

from watchdog.observation import Self

PAUSE_S = 5.0
"""A pause of our own that is longer makes every deadline that passed meanwhile worthless."""
SETTLE_S = 60.0
"""After such a pause nothing is concluded for so long."""
HEARD_LEAST = 20
"""So many lines of a server's work tell how often it prints one."""
UNHEARD_S = 300.0
"""Work that goes on for so long without a line: the log is not read, whatever the reader says of itself."""
COUNTED_S = 330.0
"""Work is shown anew at least so often: by scrapes, or by a canary at the pace of a busy server."""
LOST_LINES_S = 90.0
"""After journald said that it dropped lines, the silence of the log proves nothing for so long."""


class Senses:
    """Folds the daemon's own state. Not bound to one life of the server."""

    def __init__(self) -> None:
        self.last: Self | None = None
        self.paused_at: float | None = None
        self.paused_s = 0.0
        self.control_failed_at: float | None = None
        self.lost_at: float | None = None
        self.journal_down_since: float | None = None
        self.bus_down_since: float | None = None
        self.lost = 0
        self._dropped = 0
        self.heard_at: float | None = None
        """When the newest line of the present life's work (a batch, a request) that was read was written."""
        self.heard = 0
        self.counted_at: float | None = None
        """When a scrape or an answered canary last showed that the present life works."""
        self.heard_gap = 0.0
        """The longest pause between two of them, in seconds."""

    def see(self, o: Self) -> bool:
        """Take in a self-report. True: we did not run for a while, so what is past must be forgiven."""
        self.last = o
        if o.journal_ok is not False:
            self.journal_down_since = None
        elif self.journal_down_since is None:
            self.journal_down_since = o.t
        if o.bus_ok is not False:
            self.bus_down_since = None
        elif self.bus_down_since is None:
            self.bus_down_since = o.t
        if o.dropped > self._dropped:
            self.lost_at = o.t
        self._dropped = o.dropped
        if o.control_probe == "failed":
            self.control_failed_at = o.t
        paused = max(o.paused_s, o.loop_lag_s or 0.0)
        if paused > PAUSE_S:
            self.paused_at, self.paused_s = o.t, paused
            return True
        return o.control_probe == "failed"

    def lose(self, t: float, lines: int) -> None:
        """Journald says that it dropped lines of the unit."""
        self.lost_at = t
        self.lost = lines

    def hear(self, t: float) -> None:
        """A line of the server's work, written at `t`, was read."""
        self.heard += 1
        if self.heard_at is not None and t - self.heard_at > self.heard_gap:
            self.heard_gap = t - self.heard_at
        self.heard_at = t

    def begin(self) -> None:
        """A new life of the server: nothing of it was read yet."""
        self.heard_at, self.heard_gap, self.heard, self.counted_at = None, 0.0, 0, None

    def unheard_s(self, now: float) -> float:
        """For how long the server has worked without one line of it being read, in seconds; 0 if that is not odd."""
        if self.heard_at is None or self.counted_at is None or self.heard < HEARD_LEAST or now - self.counted_at > COUNTED_S:
            return 0.0
        silent = self.counted_at - self.heard_at
        return silent if silent >= max(UNHEARD_S, 3 * self.heard_gap) else 0.0

    def blind(self, now: float) -> bool:
        """Whether nothing may be concluded now."""
        return self._recent(self.paused_at, now, SETTLE_S) or self._recent(self.control_failed_at, now, SETTLE_S)

    def deaf(self, now: float) -> bool:
        """Whether the silence of the log proves nothing now."""
        journal_down = self.last is not None and self.last.journal_ok is False
        return journal_down or self._recent(self.lost_at, now, LOST_LINES_S) or self.unheard_s(now) > 0

    @staticmethod
    def _recent(t: float | None, now: float, span: float) -> bool:
        return t is not None and now - t <= span

    def said(self, now: float) -> str:
        """Why we are blind, as a phrase."""
        if self._recent(self.control_failed_at, now, SETTLE_S):
            return "blind: a request to our own listener failed, so the fault is on our side"
        return f"blind: we did not run ourselves for {self.paused_s:.0f} s; what passed meanwhile proves nothing"
