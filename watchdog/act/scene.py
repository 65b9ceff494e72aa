"""What the daemon knows at the moment of an incident, as the collectors and the summary need it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from watchdog import config
from watchdog.clock import Clock
from watchdog.judge.verdict import Condition, Intent
from watchdog.observation import Observation, Proc, Procs

K = TypeVar("K", bound=Observation)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """An incident, seen from the daemon.

    Attributes:
        server: the server's configuration.
        intent: what was decided, and why.
        clock: turns moments into wall-clock time.
        t: the moment of the decision, in seconds since the clock's origin.
        inv: the unit's InvocationID.
        latest: the last observation of each kind.
        conditions: all conditions as they stand.
        record: the flight record around it, as encoded lines with the header first; read in another thread, so it must not
            change meanwhile (hand over a list).
        notes: sentences that the summary should carry as well.
    """

    server: config.Server
    intent: Intent
    clock: Clock
    t: float
    inv: str | None = None
    latest: Mapping[type[Observation], Observation] = {}
    conditions: Sequence[Condition] = ()
    record: Iterable[bytes] = ()
    notes: Sequence[str] = ()

    def last(self, kind: type[K]) -> K | None:
        """The last observation of a kind."""
        found = self.latest.get(kind)
        return found if isinstance(found, kind) else None

    @property
    def processes(self) -> list[Proc]:
        """The unit's processes as they were last seen."""
        seen = self.last(Procs)
        return seen.procs if seen is not None else []

    def when(self, t: float) -> str:
        """A moment in UTC, such as "2026-01-14 02:00:00 UTC"."""
        return self.clock.wall(t).strftime("%Y-%m-%d %H:%M:%S UTC")
