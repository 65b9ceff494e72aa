"""Is what ended unasked repaired? When the next life is well, and where it ends again and again, when that has lasted."""

import math
from collections.abc import Mapping

from watchdog.judge.facts import Facts
from watchdog.judge.proof import against, answered, serving
from watchdog.judge.verdict import Condition, Status

STEADY_S = 3600.0
"""Where it died several times in a day, the present life is well for so long first: else each death is told, and its end."""
UNASKED_S = 600.0
"""Where nobody asks it anything, nothing speaks against it for so long after its readiness."""


class Recovery:
    """Looks at the present life at each judgement.

    Attributes:
        over_at: all deaths until this moment are made good; state.py carries it over the daemon's restarts.
    """

    def __init__(self) -> None:
        self.over_at = -math.inf
        self._inv: str | None = None
        self._since: float | None = None

    def look(self, f: Facts, conditions: Mapping[str, Condition], now: float) -> None:
        """Take in how it is at `now`."""
        life = f.life
        if life.inv != self._inv:
            self._inv, self._since = life.inv, None
        if not life.deaths or life.deaths[-1].t <= self.over_at or not _well(f, conditions, now):
            return
        if self._since is None:
            self._since = now
        if life.deaths.in_a_day(now) <= 1 or now - self._since >= STEADY_S:
            self.over_at = life.deaths[-1].t


def _well(f: Facts, conditions: Mapping[str, Condition], now: float) -> bool:
    if against(f, conditions) is not None:
        return False
    if f.life.headless:
        started = conditions.get("Started")
        return started is not None and started.status is Status.TRUE
    ready_at = f.life.ready_at
    return serving(f) and (answered(f) or (ready_at is not None and now - ready_at >= UNASKED_S))
