"""What earlier lives of this deployment have taught: kept over restarts of the daemon, empty in a replay."""

import statistics

import msgspec

from watchdog.judge.text import Shape

KEPT_STARTS = 5


class OneStart(msgspec.Struct, kw_only=True):
    """How long one start took, in seconds.

    Attributes:
        inv: the life's InvocationID.
        total_s: from systemd's start to its ready line.
        phases: by the phase's name for people.
    """

    inv: str | None = None
    total_s: float
    phases: dict[str, float] = {}


class Learned(msgspec.Struct, kw_only=True):
    """Learned figures.

    Attributes:
        start_s: how long a start took (median), in seconds.
        phases: how long each phase of a start took (median), by its title, in seconds.
        starts: the last starts that were seen whole.
        shape: the shape that the canary's answers have as a rule.
    """

    start_s: float | None = None
    phases: dict[str, float] = {}
    starts: list[OneStart] = []
    shape: Shape | None = None

    def add_start(self, start: OneStart) -> None:
        """Take in a start; medians of the last few count, so that one slow disk cache does not set the rule."""
        if start.total_s <= 0 or any(known.inv == start.inv and start.inv is not None for known in self.starts):
            return
        self.starts = [*self.starts, start][-KEPT_STARTS:]
        self.start_s = statistics.median(s.total_s for s in self.starts)
        names = {name for s in self.starts for name in s.phases}
        self.phases = {name: statistics.median(s.phases[name] for s in self.starts if name in s.phases) for name in sorted(names)}
