"""Who was killed by the kernel for memory: seen in a counter or in the kernel log, or inferred from memory that had run out."""

from collections import deque

from watchdog.judge.kernel_lines import KernelFact, Kind
from watchdog.observation import Cgroup, Procs
from watchdog.units import format_gib as gib

BEFORE_S = 120.0
"""A kill may be so much older than the end that it brought: SGLang dumps and waits up to 76 s after a child's death."""
LATE_S = 30.0
"""So long after a death may the counter and the kernel's line be read."""
SEEN_S = 600.0
"""A process belongs to the unit for so long after it was last seen in it: later, its number may be somebody else's."""
SHORT_S = 60.0
"""Memory that was short at most so long before a SIGKILL from nowhere explains it."""
BY_KERNEL = "killed by the kernel for memory"


class Kills:
    """Folds the signs of the kernel's OOM killer. Outlives a life: a death is told after it."""

    def __init__(self) -> None:
        self._counted: dict[str | None, int] = {}
        """The unit's counter of OOM kills (memory.events) at the last look, by life."""
        self._rises: deque[tuple[float, str | None]] = deque(maxlen=20)
        self._kernel: deque[tuple[float, KernelFact]] = deque(maxlen=20)
        self._short: deque[tuple[float, str | None, int]] = deque(maxlen=20)
        self._pids: dict[str | None, dict[int, float]] = {}
        """The processes of a life, and when each was last seen."""

    def begin(self, inv: str | None) -> None:
        """A new life: those of the last one are kept."""
        for kept in (self._counted, self._pids):
            for old in list(kept)[:-1]:
                del kept[old]
        self._pids[inv] = {}

    def see_procs(self, o: Procs, inv: str | None) -> None:
        """Take in which processes belong to the life."""
        seen = {pid: t for pid, t in self._pids.get(inv, {}).items() if o.t - t <= SEEN_S}
        self._pids[inv] = seen | {p.pid: o.t for p in o.procs}

    def see_cgroup(self, o: Cgroup, inv: str | None) -> None:
        """Take in the unit's counter. A life's first look only says where it stands."""
        if o.oom_kill is None:
            return
        if o.oom_kill > self._counted.get(inv, o.oom_kill):
            self._rises.append((o.t, inv))
        self._counted[inv] = o.oom_kill

    def see_kernel(self, t: float, fact: KernelFact) -> None:
        """Take in what a line of the kernel log says."""
        if fact.kind is Kind.OOM_KILL:
            self._kernel.append((t, fact))

    def see_short(self, t: float, inv: str | None, room: int) -> None:
        """So many bytes were left, and that was too little."""
        self._short.append((t, inv, room))

    def said(self, at: float, inv: str | None, pids: set[int] | None = None, *, guess: bool) -> str | None:
        """Whether a death seen at `at` was the kernel's doing, as a phrase; None where nothing says so.

        Args:
            at: when the process was first missed, or the life was over.
            inv: the life.
            pids: the processes that died; None: any of this life.
            guess: whether it may be inferred, since nothing else explains the death.
        """
        own = self._pids.get(inv, {})
        for t, fact in self._kernel:
            if fact.pid in (own.keys() if pids is None else pids) and at - BEFORE_S <= t <= at + LATE_S:
                return f"{BY_KERNEL} ({'its control group was at its limit' if fact.limited else 'the host had none left'})"
        if any(life == inv and at - BEFORE_S <= t <= at + LATE_S for t, life in self._rises):
            return BY_KERNEL
        left = [room for t, life, room in self._short if life == inv and at - SHORT_S <= t <= at]
        return f"probably {BY_KERNEL}: {gib(min(left))} were left" if guess and left else None
