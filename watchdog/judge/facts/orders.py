"""What came of others' orders to systemd: a start that was refused, a stop that only SIGKILL ended."""

import re
from typing import NamedTuple

from watchdog.observation import Job, Log, Unit

STARTS = ("start", "restart", "try-restart", "")
"""Jobs that want the unit up. "": over before its kind could be asked for; of such jobs only a start is refused."""
NO_REFUSAL = ("done", "canceled", "collected", None)
"""Results that tell of no refusal: carried out, replaced by another job, no longer needed, not seen."""
KILLING = re.compile(r"\b(?:stop|final)(?:-[a-z]+)?'? timed out\. Killing\b|^\S+: Stopping timed out\. Killing\b")
"""What PID 1 says when it sends SIGKILL: "State 'stop-sigterm' timed out. Killing." (the quotes not in all versions)."""
KILLED = ("stop-sigkill", "final-sigkill")


class Refusal(NamedTuple):
    """A start that somebody ordered, and that brought no life.

    Attributes:
        t: when its job was over.
        job: its kind; "" if unknown.
        result: of the job, as systemd has it.
    """

    t: float
    job: str
    result: str


class Stop:
    """The stop of one life.

    Attributes:
        first: what systemd told of it first.
        quiet: it is no news: ours, or that of a start, which ignores SIGTERM.
        killed_s: how long after its beginning SIGKILL was sent; None if it was not.
        over_at: when the life was seen to be over; None before. While SIGKILL does not end it, that is told, and not this.
    """

    def __init__(self, first: Unit, *, quiet: bool) -> None:
        self.first = first
        self.quiet = quiet
        self.killed_s: float | None = None
        self.over_at: float | None = None


class Orders:
    """Folds jobs of others and the stops of lives."""

    def __init__(self) -> None:
        self._ordered: tuple[str | None, str] | None = None
        """The start that is under way: in which life it was ordered, and its kind."""
        self._refused: tuple[str | None, Refusal] | None = None
        self.stop: Stop | None = None
        """The present stop of a life, or the last one."""

    def begun(self, o: Job, inv: str | None) -> None:
        """Somebody's job on the unit has begun: a new order takes the place of the one before it."""
        self._ordered = (inv, o.job) if o.job in STARTS else None
        self._refused = None

    def over(self, o: Job, inv: str | None) -> bool:
        """Somebody's job is over; True if it was a start that has brought no life."""
        ordered, self._ordered = self._ordered, None
        if ordered is None or ordered[0] != inv or o.result in NO_REFUSAL:
            return False
        self._refused = (inv, Refusal(o.t, o.job or ordered[1], o.result or ""))
        return True

    def refused(self, inv: str | None) -> Refusal | None:
        """The start that was refused since the life `inv`, if that is the last one."""
        return self._refused[1] if self._refused is not None and self._refused[0] == inv else None

    def see_unit(self, o: Unit, *, quiet: bool) -> None:
        """Take in systemd's view; `quiet`: a stop that is begun now is no news."""
        if o.active_state in ("active", "activating"):
            self._refused = None
        stop = self.stop
        if stop is not None and stop.over_at is None and (o.inv != stop.first.inv or o.active_state != "deactivating"):
            stop.over_at = o.t
        if stop is not None and o.inv == stop.first.inv:
            if o.result == "timeout" and (o.sub_state in KILLED or o.active_state in ("failed", "inactive")):
                self._kill(o.t, o.inv)
        elif o.active_state == "deactivating" and o.main_pid is not None and o.result == "success":
            # What systemd ends while it lives was to be stopped: whatever it ends for a fault has that fault as its result.
            self.stop = Stop(o, quiet=quiet)

    def see_systemd(self, o: Log) -> None:
        """Take in a line of PID 1 about the unit."""
        if KILLING.search(o.message):
            self._kill(o.written, o.inv)

    def _kill(self, t: float, inv: str | None) -> None:
        if self.stop is not None and inv == self.stop.first.inv and self.stop.killed_s is None:
            self.stop.killed_s = max(0.0, t - self.stop.first.t)
