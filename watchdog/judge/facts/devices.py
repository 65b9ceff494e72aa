"""Folds what NVML and the kernel say of GPUs and their driver."""

from collections import deque

from watchdog.judge import kernel_lines, throttling
from watchdog.judge.facts.gpu_memory import GpuMemory
from watchdog.judge.facts.storage import Storage
from watchdog.judge.facts.trend import Series
from watchdog.judge.kernel_lines import KernelFact, Kind
from watchdog.observation import Gpu, GpuDevice, GpuProc, Kernel
from watchdog.units import GIB
from watchdog.wording import counted

FRESH_S = 30.0
POLLS = 2
"""A GPU must be gone in so many rounds: one round after a boot may miss it."""
FABRIC = "fabricmanager"
"""Part of the name of the unit that brings up the fabric of NVSwitches."""


def _foreign(g: GpuDevice) -> list[GpuProc]:
    """Processes outside the unit that hold memory of this GPU."""
    return [p for p in g.procs or [] if p.in_unit is False]


class Devices:
    """Folds NVML rounds and kernel lines.

    Faults of devices outlive the server's life: a latch holds until proof or a person lifts it.
    """

    def __init__(self) -> None:
        self.last: Gpu | None = None
        self.good: Gpu | None = None
        self.most = 0
        self.bad_rounds = 0
        self.bad_since: float | None = None
        """When the first of those rounds without a good one ended."""
        self.error = ""
        self.deps: dict[str, str] = {}
        """Units that the server leans on → ActiveState."""
        self.fabric_failed_at: float | None = None
        """Since when each good round has had a GPU whose NVLink fabric failed."""
        self.latched: dict[tuple[str, str | None], tuple[float, KernelFact]] = {}
        self.notable: deque[tuple[float, KernelFact]] = deque(maxlen=20)
        self.gpu_memory = GpuMemory()
        self.storage = Storage()
        self.rounds: deque[Gpu] = deque()
        self.held_at: float | None = None
        """When a GPU last gave a reason for a clock below its usual one."""
        self.violated: dict[int, float] = {}
        """GPUs whose thermal violation time grew in the last minutes → by how much of the time."""
        self._throttled: tuple[float, throttling.Throttled | None] = (-1e18, None)
        self.begin()

    def begin(self) -> None:
        """A new life: what its work draws is learned anew, what the devices are is kept."""
        self.worked_at: float | None = None
        """When they last drew the power of real work."""
        self.idle_w: float | None = None
        self.work_w: float | None = None
        self.memory: dict[int, Series] = {}
        """GPU → the memory of it that no process outside the unit is known to hold."""

    def see(self, o: Gpu, *, working: bool, settled: bool) -> None:
        """Take in one NVML round, and whether the engine was stepping meanwhile."""
        self.last = o
        if not o.ok:
            again = o.error == self.error
            self.bad_rounds, self.bad_since = (self.bad_rounds + 1, self.bad_since) if again else (1, o.t)
            self.error = o.error or "unknown"
            return
        self.bad_rounds, self.bad_since, self.error = 0, None, ""
        before, self.good = self.good, o
        self.gpu_memory.see(o)
        if self.without_fabric():
            self.fabric_failed_at = o.t if self.fabric_failed_at is None else self.fabric_failed_at
        else:
            self.fabric_failed_at = None
        self.most = max(self.most, len(o.gpus), o.expected or 0)
        if before is not None and len(o.gpus) < self.most:
            self.bad_rounds = 1 if len(before.gpus) >= self.most else POLLS
        if any(throttling.held(g) or g.throttle_s for g in o.gpus):
            self.held_at = o.t
        self.rounds.append(o)
        while self.rounds and self.rounds[0].t < o.t - throttling.WINDOW_S:
            self.rounds.popleft()
        self._violations(o)
        power = self._power(o)
        if power is not None:
            self.idle_w = power if self.idle_w is None else min(self.idle_w, power)
            if working:
                self.work_w = power if self.work_w is None else max(power, self.work_w * 0.98 + power * 0.02)
            if self.at_work(o.t):
                self.worked_at = o.t
        if settled:
            for g in o.gpus:
                if g.mem_used is not None:
                    series = self.memory.get(g.index)
                    if series is None:
                        series = self.memory[g.index] = Series()
                    series.add(o.t, g.mem_used - sum(p.mem or 0 for p in _foreign(g)))

    def _violations(self, o: Gpu) -> None:
        """Samples miss bursts, counters do not (nvmlDeviceGetViolationStatus)."""
        first = self.rounds[0]
        span = o.t - first.t
        if span < throttling.WINDOW_S * 0.9 or not any(g.throttle_s for g in o.gpus):
            return
        before = {g.index: (g.throttle_s or {}).get("thermal") for g in first.gpus}
        self.violated.clear()
        for g in o.gpus:
            now, then = (g.throttle_s or {}).get("thermal"), before.get(g.index)
            if now is not None and then is not None and now > then:
                self.violated[g.index] = (now - then) / span

    def see_kernel(self, o: Kernel) -> KernelFact | None:
        """Take in a line of the kernel log; what it says, where that is known."""
        fact = kernel_lines.classify(o.message)
        if fact is None:
            return None
        self.notable.append((o.written, fact))
        if fact.kind is Kind.RECOVERED:
            self.latched = {key: fault for key, fault in self.latched.items() if key[1] != fact.pci}
            self.gpu_memory.reset(fact.pci)
        elif fact.blocks_restart:
            self.latched.setdefault((fact.kind, fact.pci), (o.written, fact))
        self.gpu_memory.see_kernel(o.written, fact)
        self.storage.see_kernel(o.written, fact)
        return fact

    def without_fabric(self) -> list[int]:
        """GPUs whose NVLink fabric has failed."""
        return [g.index for g in self.good.gpus if g.fabric == "failed"] if self.good is not None else []

    def fabric_said(self) -> str | None:
        """What is wrong with the NVLink fabric, as a phrase; None where nothing is."""
        gpus = self.without_fabric()
        shown = [f"the NVLink fabric of {counted(len(gpus), 'GPU')} has failed"] if gpus else []
        shown += [f"{name} is failed" for name, state in self.deps.items() if FABRIC in name and state == "failed"]
        return " and ".join(shown) or None

    def repaired(self) -> None:
        """A person says that the devices are well again."""
        self.latched.clear()
        self.gpu_memory.repaired()
        self.bad_rounds = 0
        self.most = len(self.good.gpus) if self.good is not None else 0

    @staticmethod
    def _power(o: Gpu) -> float | None:
        watts = [g.power_w for g in o.gpus if g.power_w is not None]
        return sum(watts) / len(watts) if watts else None

    def fresh(self, now: float) -> Gpu | None:
        """The last good round, if it is recent enough to be believed."""
        return self.good if self.good is not None and self.good is self.last and now - self.good.t <= FRESH_S else None

    def at_work(self, now: float, part: float = 0.45) -> bool:
        """Whether the GPUs draw the power of real work. Utilisation alone proves nothing: polling collectives show 100 %.

        Args:
            now: the moment.
            part: of the way from the power at rest to that of the hardest work so far, 0…1.
        """
        o = self.fresh(now)
        power = self._power(o) if o is not None else None
        if o is None or power is None or self.idle_w is None:
            return False
        limits = [g.power_limit_w for g in o.gpus if g.power_limit_w]
        much = 0.6 * sum(limits) / len(limits) if limits else None
        if much is not None and power > much:
            return True  # also where it was never seen at rest
        high = self.work_w if self.work_w is not None and self.work_w > self.idle_w * 1.5 else much
        return high is not None and power > self.idle_w + part * (high - self.idle_w) and power > self.idle_w * 1.3

    def at_rest(self, now: float) -> bool:
        """Whether GPUs are seen, and none does real work."""
        o = self.fresh(now)
        return o is not None and self._power(o) is not None and not self.at_work(now)

    def oddity(self, now: float) -> str | None:
        """What the GPUs add to a suspicion, as a phrase."""
        o = self.fresh(now)
        if o is None or not o.gpus:
            return None
        utils = [g.util for g in o.gpus if g.util is not None]
        power = self._power(o)
        if not utils or power is None:
            return None
        if min(utils) > 0.95 and not self.at_work(now):
            return f"GPUs at full use but only {power:.0f} W"
        if max(utils) < 0.05:
            return f"GPUs idle at {power:.0f} W"
        return None

    def throttled(self) -> throttling.Throttled | None:
        """The GPU that is held back most in the last minutes; looked at anew when a quarter of a minute of rounds has come in."""
        if self.held_at is None or not self.rounds or self.rounds[-1].t - self.held_at > throttling.WINDOW_S:
            return None
        if self.rounds[-1].t - self._throttled[0] >= 15.0:
            self._throttled = (self.rounds[-1].t, throttling.judge_rounds(list(self.rounds)))
        return self._throttled[1]

    def strangers(self) -> list[tuple[GpuDevice, int, int]]:
        """Processes outside the unit that hold a lot of device memory: (GPU, pid, bytes)."""
        if self.good is None:
            return []
        return [
            (g, proc.pid, proc.mem) for g in self.good.gpus for proc in _foreign(g) if proc.mem is not None and proc.mem > 2 * GIB
        ]
