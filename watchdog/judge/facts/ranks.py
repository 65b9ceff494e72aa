"""Folds looks at the processes of the unit: which were there, which are missed, what they use of the CPU."""

import re
from collections.abc import Sequence

from watchdog.observation import Proc, Procs
from watchdog.sglang import processes

FRESH_S = 35.0
GONE_S = 15.0
"""A process that vanished is believed to be gone after so long, or when a second look misses it too."""
COMPILES = re.compile(r"(?:\[[^\]\n]{19,60}\] )?(?:(?:Entering|Try) DeepGEMM JIT |DeepGEMM warmup: )")
"""Kernels are compiled within the rank, without a compiler of its own to be seen (SGLang issues 4773, 9867, 29170)."""
COMPUTES = 2.5
"""A scheduler that uses so many cores computes on them: one that idles, or waits for GPUs, spins on one."""
HELPED = 0.5
"""Processes below the ranks that use so many cores together are at work: torch.compile compiles in a pool of `python3` workers
(torch/_inductor/compile_worker), which bear no compiler's name. Idle pools and trackers use next to nothing."""
ESSENTIAL = ("scheduler", "detokenizer", "dp_controller")


class Ranks:
    """Folds looks at the unit's processes. Forgets with the life."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life: no process of it was seen yet."""
        self.last: Procs | None = None
        self.before: Procs | None = None
        """The look before the last."""
        self.left: list[Proc] = []
        """Engine processes that are still there though systemd holds the unit to be down."""
        self.left_at: float | None = None
        self.known: dict[int, Proc] = {}
        """Essential processes that were seen in this life: pid → process."""
        self.missing: dict[int, tuple[float, int]] = {}
        """Those of them that are gone: pid → (since when, in how many looks)."""
        self.begun = False
        """Whether a process was seen that may be SGLang, not only what runs before it."""
        self.compiler_at: float | None = None
        self.compiler = ""
        self.closing_at: float | None = None
        """When its HTTP server said that it waits for its connections to close, and does nothing else (uvicorn)."""
        self.compile_told_at: float | None = None
        """When a line last said that kernels are being compiled."""
        self.helped_at: float | None = None
        """When processes below the ranks last used the CPU between two looks."""
        self.cpu_rate: float | None = None
        """Cores in use by the whole unit between the last two looks."""

    def see(self, o: Procs) -> None:
        """Take in one look. One that shows no process at all of a unit that had some could not see."""
        if not o.procs and self.known:
            return
        if self.last is not None and o.cpu_s is not None and self.last.cpu_s is not None and o.t > self.last.t:
            self.cpu_rate = max(0.0, (o.cpu_s - self.last.cpu_s) / (o.t - self.last.t))
        if self.last is not None and o.t > self.last.t and self._below_used(self.last, o) > HELPED * (o.t - self.last.t):
            self.helped_at = o.t
        self.before, self.last = self.last, o
        here = set()
        names = {proc.pid: proc.name for proc in o.procs}
        for proc in o.procs:
            role = processes.role(proc.name)
            here.add(proc.pid)
            self.begun = self.begun or processes.may_serve(proc.name)
            if proc.pid not in self.known and names.get(proc.ppid or 0) == proc.name:
                continue  # a rank has forked, for a compiler or a tool: until it runs that, the child has its title; it may go
            if role == "compiler":
                self.compiler_at, self.compiler = o.t, proc.name
            if proc.state == "Z":
                here.discard(proc.pid)
            if role in ESSENTIAL and (proc.state != "Z" or proc.pid not in self.known):
                self.known[proc.pid] = proc  # one that is defunct at the first look was there, too
        for pid in self.known:
            if pid in here:
                self.missing.pop(pid, None)
            else:
                since, looks = self.missing.get(pid, (o.t, 0))
                self.missing[pid] = (since, looks + 1)

    @staticmethod
    def _below_used(before: Procs, o: Procs) -> float:
        """CPU seconds that processes below the schedulers used between two looks. One that is new began after the first."""
        below: set[int] = set()
        found = {x.pid for x in o.procs if processes.role(x.name) == "scheduler"}
        while found:
            found = {x.pid for x in o.procs if x.ppid in found and x.pid not in below}
            below |= found
        had = {x.pid: x.cpu_s or 0.0 for x in before.procs}
        return sum(max(0.0, (x.cpu_s or 0.0) - had.get(x.pid, 0.0)) for x in o.procs if x.pid in below)

    def see_text(self, t: float, message: str) -> None:
        """Take in a line that was written at `t` and may tell of a compilation."""
        if COMPILES.match(message):
            self.compile_told_at = t

    def see_left(self, o: Procs) -> None:
        """Take in a look at the processes of a unit that is down."""
        self.left = self._engine(o)
        self.left_at = o.t

    def unsure(self, down_since: float, now: float) -> bool:
        """Whether engine processes were there at the last look, and none was taken since the unit went down."""
        looked = self.left_at is not None and self.left_at > down_since
        return not looked and now - down_since < FRESH_S and self.last is not None and bool(self._engine(self.last))

    @staticmethod
    def _engine(o: Procs) -> list[Proc]:
        return [x for x in o.procs if processes.role(x.name) in ESSENTIAL and x.state != "Z"]

    def computing(self, now: float) -> bool:
        """Whether a scheduler does real work on the CPU: between the last two looks it used more cores than spinning takes."""
        if self.last is None or self.before is None or now - self.last.t > FRESH_S:
            return False
        spans = {x.pid: x.cpu_s for x in self.before.procs if processes.role(x.name) == "scheduler"}
        took = self.last.t - self.before.t
        used = [(x.cpu_s, spans[x.pid]) for x in self.last.procs if x.pid in spans]
        return any(now is not None and then is not None and now - then > COMPUTES * took for now, then in used)

    def compiling(self, now: float) -> bool:
        """Whether a compiler was seen in the unit lately."""
        return self.compiler_at is not None and now - self.compiler_at <= FRESH_S

    def gone(self, now: float) -> list[Proc]:
        """Essential processes that were there and are surely gone."""
        return [self.known[pid] for pid, (since, looks) in self.missing.items() if looks >= 2 or now - since >= GONE_S]

    def absent(self, expected: Sequence[str | None], ready_at: float) -> list[str]:
        """The schedulers that should be there since the life is ready, and were never seen in it.

        Two looks since then must tell of schedulers, and only of such as are expected: else they run elsewhere (Ray), or the
        layout is another than the arguments let us think.
        """
        seen = [processes.rank(x.name) for x in self.known.values() if processes.role(x.name) == "scheduler"]
        looked = self.before is not None and self.before.t > ready_at and bool(self._engine(self.before))
        if not looked or not seen or len(seen) >= len(expected) or not set(seen) <= set(expected):
            return []
        return ["_".join(["sglang::scheduler", *(rank or "").split()]) for rank in expected if rank not in seen]

    def halted(self, now: float) -> list[Proc]:
        """Essential processes that somebody holds: stopped by a signal (T), or by a debugger (t); proc_pid_stat(5)."""
        if self.last is None or now - self.last.t > FRESH_S:
            return []
        return [x for x in self.last.procs if x.state in ("T", "t") and x.pid in self.known]

    def stopped(self, now: float) -> list[Proc]:
        """Those of them that a signal has stopped (T) for two looks."""
        before = {x.pid for x in self.before.procs if x.state == "T"} if self.before is not None else set()
        return [x for x in self.halted(now) if x.state == "T" and x.pid in before]
