"""Folds the signs of progress of a start, whatever shows them."""

import re
from collections.abc import Mapping

from watchdog.observation import Cgroup, Gpu, Log
from watchdog.sglang import startup
from watchdog.sglang.loglines import Line, Mark

GROWTH = 256 * 1024**2
"""Memory or reading that grew by so many bytes is a sign of progress."""
DIGITS = re.compile(r"[0-9]+(?:\.[0-9]+)?|0x[0-9a-f]+")
BAR = re.compile(r"(\d{1,3})%\|[^|]{0,200}\| *([\d.]+[kMGTP]?B?)/[\d.]+[kMGTP]?B? \[")
"""Any bar of tqdm, whatever it counts: its share, and how much is done."""
HELPED_S = 3600.0
"""For so long after any other sign of progress, work of processes below the ranks is one; a helper that spins shows no more."""
NO_PROGRESS = {Mark.ACCESS, Mark.HEALTH_FAILED, Mark.WATCHDOG_SOFT, Mark.DUMP, Mark.HEALTH_DRAINING}


class Start:
    """Folds the signs of progress of one start: lines, growing memory, bytes read, compilers."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, t: float | None) -> None:
        """A new life began at `t`."""
        self.progress_at = t
        self.progress_by = "its start"
        self._own_at = t
        """When there last was a sign of progress other than that processes below the ranks work."""
        self.step: startup.Phase | None = None
        self.reached: startup.Phase | None = None
        """The farthest phase so far: a draft model that is loaded after the target's graphs goes back to weights."""
        self.step_since = t
        self.bar: float | None = None
        self.eta_s: float | None = None
        self.took: dict[str, float] = {}
        """How long each phase took that is over, by its name for people, in seconds."""
        self._shapes: set[str] = set()
        self._bar_done = -1.0
        self._high: dict[str, int] = {}

    def see_line(self, o: Log, line: Line | None) -> None:
        """Take in a line of the server: new kinds of lines and moving bars are progress, repeated ones are not."""
        t = o.written
        if line is not None and line.mark in NO_PROGRESS:
            return
        if line is not None and ("done" in line.fields or line.mark is Mark.WARMUP):
            self._bar(t, line)
        elif line is None and "%|" in o.message:
            self._other_bar(t, o.message)
        phase = startup.phase_of(line.mark) if line is not None else None
        if phase is not None and phase is not self.step:
            if self.step is not None and self.step_since is not None:
                # Ranks interleave, and a draft model goes through phases again: what belongs to one phase adds up.
                self.took[self.step.value] = self.took.get(self.step.value, 0.0) + max(0.0, t - self.step_since)
            self.step, self.step_since, self.bar, self._bar_done = phase, t, None, -1.0
            self.reached = phase if self.reached is None else max(self.reached, phase, key=startup.PHASES.index)
            self._progress(t, f"{phase.value}")
        shape = DIGITS.sub("#", o.message[:200]).strip()
        if shape and shape not in self._shapes and len(self._shapes) < 5000:
            self._shapes.add(shape)
            self._progress(t, f"the line “{(line.message if line else o.message)[:60].strip()}”")

    def _other_bar(self, t: float, message: str) -> None:
        """A bar that belongs to no phase (a download, a compile) moves when it shows a state that it never showed before."""
        last = message[message.rstrip("\r").rfind("\r") + 1 :][:500]
        bar = BAR.search(last)
        if bar is None:
            return
        state = f"{last[: bar.start()]}{bar[1]}% {bar[2]}"
        if state not in self._shapes and len(self._shapes) < 5000:
            self._shapes.add(state)
            self._progress(t, f"a moving bar at {bar[1]} %")

    def _bar(self, t: float, line: Line) -> None:
        ratio, done = line.fields.get("ratio"), line.fields.get("done", line.fields.get("ratio", -1.0))
        if ratio is not None:
            self.bar = ratio
        self.eta_s = line.fields.get("eta_s", self.eta_s)
        if done != self._bar_done:
            self._bar_done = done
            self._progress(
                t, f"{ratio:.0%} of {self.step.value if self.step else 'a bar'}" if ratio is not None else "a moving bar"
            )

    def see_cgroup(self, o: Cgroup) -> None:
        """Growing memory and bytes read from storage are progress."""
        self._grow(o.t, "the unit's memory grows", "memory", _sum(o.anon, o.shmem, o.file) or o.memory_current)
        self._grow(o.t, "it reads from storage", "io", o.io_read)

    def see_gpu(self, o: Gpu, *, working: bool) -> None:
        """Growing device memory is progress, and so is the power of real work."""
        if working:
            self.see_work(o.t, "the GPUs work")
        if o.ok:
            self._grow(o.t, "GPU memory grows", "gpu", sum(g.mem_used or 0 for g in o.gpus))

    def see_compiler(self, t: float, name: str) -> None:
        """A compiler in the unit is progress."""
        self._progress(t, f"{name} compiles")

    def see_helpers(self, t: float) -> None:
        """Processes below the ranks use the CPU: that is how torch.compile looks from outside, and it says no word for long."""
        if self._own_at is None or t - self._own_at < HELPED_S:
            own = self._own_at
            self._progress(t, "processes below the ranks compute")
            self._own_at = own

    def see_work(self, t: float, by: str) -> None:
        """Work is progress, also where nothing has told yet that the server is ready."""
        self._progress(t, by)

    def _grow(self, t: float, by: str, key: str, value: int | None) -> None:
        if value is None:
            return
        high = self._high.get(key)
        if high is None or value < high - 4 * GROWTH:
            self._high[key] = value
        elif value >= high + GROWTH:
            self._high[key] = value
            self._progress(t, by)

    def _progress(self, t: float, by: str) -> None:
        if self.progress_at is None or t >= self.progress_at:
            self.progress_at, self.progress_by, self._own_at = t, by, t

    def ahead_s(self, now: float, usual: Mapping[str, float]) -> float:
        """What this phase and those after it take as usual, less what is done of them; 0 where that is unknown.

        Args:
            now: the moment.
            usual: seconds of each phase in earlier starts, by its name for people.
        """
        if self.step is None or self.step_since is None:
            return 0.0
        order = list(startup.PHASES)
        left = {p: usual.get(p.value, 0.0) - self.took.get(p.value, 0.0) for p in order[order.index(self.step) :]}
        left[self.step] -= now - self.step_since
        if self.bar is not None:
            left[self.step] = self.eta_s or 0.0
        return sum(max(0.0, seconds) for seconds in left.values())


def _sum(*values: int | None) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
