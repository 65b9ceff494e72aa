"""How the watchdog's sources see the simulated server: probes, scrapes, processes, memory, GPUs, the daemon itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.incidents import wording
from tests.incidents.asks import Asks
from watchdog import observation as o

if TYPE_CHECKING:
    from tests.incidents.sim import Sim

GIB = 1024**3


class Ramp:
    """A quantity that goes in a straight line from one value to another between two moments."""

    def __init__(self, value: float = 0.0) -> None:
        self.begin, self.end, self.low, self.high = 0.0, 0.0, value, value
        self.slope = 0.0
        self.hold: float | None = None

    def go(self, begin: float, end: float, high: float, low: float | None = None) -> None:
        self.begin, self.end, self.low, self.high = begin, end, self.high if low is None else low, high

    def value(self, t: float) -> float:
        t = t if self.hold is None else min(t, self.hold)
        if t >= self.end:
            return self.high + self.slope * max(0.0, t - self.end)
        return self.low + (self.high - self.low) * max(0.0, (t - self.begin) / (self.end - self.begin))


class Looks(Asks):
    """The sources, each on its own beat. Faults are fields that scenarios set."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.s = sim.setup
        self.gone: set[str] = set()
        """Names of processes that are gone."""
        self.zombies: set[str] = set()
        self.sleeping: str | None = None
        """A state letter that all ranks have, and no CPU time with it."""
        self.compilers: list[str] = []
        self.alive = self.s.mid_life
        self.gpu_power: tuple[float, float] | None = None
        """(use, watts) that all GPUs show, whatever the engine does."""
        self.gpu_error: str | None = None
        self.fabric: str | None = None
        self.gpu_missing: set[int] = set()
        self.throttled: dict[int, tuple[float, list[str]]] = {}
        self.throttle_seconds: dict[int, float] = {}
        self.strangers: list[tuple[int, int]] = []
        """(pid, bytes) on each GPU."""
        self.gpu_mem = Ramp(0.5 * GIB)
        self.anon = Ramp(0.0)
        self.read = Ramp(0.0)
        self.leak = Ramp(0.0)
        """Bytes on top in the memory of the first rank."""
        self.mem_total = 448 * GIB * (8 if self.s.ranks > 1 else 1)
        self.others = 11 * GIB
        self.shm_free_ratio = 0.999
        self.oom_kills = 0
        self.memory_max: int | None = None
        self.psi = 0.0
        self.answer: Callable[[], o.Answer] = self.good_answer
        self.health_as: Callable[[], dict[str, Any]] | None = None
        """What every probe of these kinds gets at once, in place of the truth."""
        self.chat_as: Callable[[], dict[str, Any]] | None = None
        self.models_as: Callable[[], dict[str, Any]] | None = None
        self.ready_as: Callable[[], dict[str, Any]] | None = None
        self.slow_front_s = 0.0
        self.metrics_fail: str | None = None
        self.metrics_extra: dict[str, float] = {}
        self.metrics_hide: set[str] = set()
        self.stranger_port: int | None = None
        self.self_report: dict[str, Any] = {}
        self._accept: float | None = None
        self._speed = 0.0
        self._scraped = (0, 0)
        self._worked = 0.0
        self._backoff = 0
        self._asked_at = -1e9
        self._sane = True
        self._cpu = 20000.0
        self._deps: dict[str, str] = {"nvidia-persistenced.service": "active"}

    # ---- beats

    def begin(self) -> None:
        rng, s = self.sim.rng, self.s
        self.sim.emit(o.Deps, units=self._deps)
        if s.mid_life:
            self.look_port()
            self.look_server()
        self._every(30.0, self.sim.tell_unit, 29.9)
        self._every(30.0, self.look_self, rng.uniform(1, 20))
        if s.gpu:
            self._every(5.0, self.look_gpu, rng.uniform(1, 5))
        self._every(10.0, self.look_memory, rng.uniform(1, 10))
        if s.procs:
            self._every(10.0, self.look_procs, rng.uniform(1, 10))
        if s.probes and s.node_rank == 0:
            self.sim.after(rng.uniform(2, 25), self.ask_health)
            self.sim.after(rng.uniform(5, 55), self.ask_chat)
            self._every(300.0, self.ask_models, rng.uniform(5, 60))
            if wording.number(s.version) >= (0, 5, 20):
                self._every(60.0, self.ask_ready, rng.uniform(5, 60))
            self._every(s.metrics_gap_s if s.metrics else 30.0, self.scrape, rng.uniform(1, 10))

    def look_self(self) -> None:
        report = {
            "loop_lag_s": 0.004,
            "paused_s": 0.0,
            "journal_ok": True,
            "bus_ok": True,
            "nvml_ok": self.s.gpu and self.gpu_error is None,
            "dropped": 0,
            "control_probe": "ok",
        }
        self.sim.emit(o.Self, **{**report, **self.self_report})

    def look_port(self) -> None:
        sim = self.sim
        if self.stranger_port is not None:
            sim.emit(
                o.Port, inv=sim.inv, listening=True, address="0.0.0.0:30000", pid=self.stranger_port, in_unit=False, established=2
            )
        elif sim.listening:
            sim.emit(o.Port, inv=sim.inv, listening=True, address="0.0.0.0:30000", pid=sim.pid, in_unit=True, established=2)
        else:
            sim.emit(o.Port, inv=sim.inv, listening=False, address=None, pid=None, in_unit=None, established=0)

    def look_server(self) -> None:
        s = self.s
        args = {
            "model_path": "/models/Kimi-K2.5",
            "served_model_name": "kimi-k2.5",
            "port": 30000,
            "tp_size": s.ranks,
            "dp_size": s.dp,
            "pp_size": 1,
            "nnodes": s.nnodes,
            "node_rank": s.node_rank,
            "chunked_prefill_size": s.chunk,
            "max_running_requests": s.max_running,
            "decode_log_interval": 40,
            "watchdog_timeout": s.watchdog_s,
            "soft_watchdog_timeout": None,
            "enable_metrics": s.metrics,
            "enable_hierarchical_cache": s.hicache,
            "hicache_ratio": 4.0,
            "speculative_algorithm": "EAGLE3" if s.spec else None,
            "speculative_num_steps": 3 if s.spec else None,
            "reasoning_parser": "kimi_k2",
            "disaggregation_mode": "null",
            **s.args,
        }
        if s.nnodes > 1:
            args["tp_size"] = s.ranks * s.nnodes
        known = {"max_total_num_tokens": 159_277} if self.sim.ready else {}
        self.sim.emit(o.Server, inv=self.sim.inv, version=s.version if self.sim.ready else None, args=args, env=s.env, **known)

    def names(self) -> list[str]:
        """Titles of the engine's processes, ranks first."""
        s = self.s
        if s.dp > 1 and s.args.get("enable_dp_attention") is None:
            ranks = [f"sglang::scheduler_DP{d}" for d in range(s.dp)]
        elif s.ranks == 1:
            ranks = ["sglang::scheduler"]
        else:
            first = s.ranks * s.node_rank
            ranks = [f"sglang::scheduler_TP{first + i}" for i in range(s.ranks)]
        return (
            ranks
            + (["sglang::data_parallel_controller"] if s.dp > 1 else [])
            + (["sglang::detokenizer"] if s.node_rank == 0 else [])
        )

    def look_procs(self) -> None:
        sim = self.sim
        self._cpu += 0.0 if self.sleeping else 80.0
        procs: list[o.Proc] = []
        if self.alive and sim.unit["main_pid"] is not None:
            procs.append(
                o.Proc(pid=sim.pid, ppid=1, name="python3", state="S", cpu_s=self._cpu / 10, rss=int(2.3 * GIB), wchan="ep_poll")
            )
        if self.alive:
            pool = self.anon.value(sim.now) / max(1, self.s.ranks)
            for i, name in enumerate(self.names()):
                if name in self.gone:
                    continue
                state = "Z" if name in self.zombies else self.sleeping or "R"
                rank = "scheduler" in name
                rss = int(2 * GIB + (pool if rank else 0) + (self.leak.value(sim.now) if i == 0 else 0))
                cpu = self._cpu / 10 if rank else 50.0
                procs.append(o.Proc(pid=sim.pid + 2 + i, ppid=sim.pid, name=name, state=state, cpu_s=cpu, rss=rss, wchan="0"))
            for i, name in enumerate(self.compilers):
                procs.append(o.Proc(pid=sim.pid + 50 + i, ppid=sim.pid, name=name, state="R", cpu_s=5.0, rss=GIB // 4, wchan="0"))
        sim.emit(o.Procs, inv=sim.inv, procs=procs, cpu_s=round(self._cpu, 1))

    def look_memory(self) -> None:
        sim = self.sim
        anon = int(self.anon.value(sim.now) + self.leak.value(sim.now) + (20 * GIB if self.alive else 0))
        file = int(min(self.read.value(sim.now), 40 * GIB))
        sim.emit(
            o.Cgroup,
            inv=sim.inv,
            memory_current=anon + file,
            anon=anon,
            file=file,
            shmem=0,
            unevictable=0,
            kernel=GIB,
            memory_max=self.memory_max,
            oom_kill=self.oom_kills,
            io_read=int(self.read.value(sim.now)),
            psi_some_avg10=self.psi,
            psi_full_avg10=self.psi / 2,
        )
        free = int(max(0, self.mem_total - self.others - anon))
        sim.emit(
            o.Host,
            mem_total=self.mem_total,
            mem_available=free,
            mem_free=free // 2,
            shmem=GIB // 4,
            mlocked=0,
            unevictable=0,
            swap_used=0,
            hugepages_total=0,
            hugepages_free=0,
            hugepage_size=2 * 1024**2,
            shm_total=self.mem_total // 2,
            shm_free=int(self.mem_total // 2 * self.shm_free_ratio),
            psi_some_avg10=self.psi,
            psi_full_avg10=self.psi / 2,
            load1=8.0,
            cpus=192,
        )

    def look_gpu(self) -> None:
        sim = self.sim
        if self.gpu_error is not None:
            sim.emit(o.Gpu, ok=False, error=self.gpu_error)
            return
        share = min(1.0, max(0.0, sim.engine.busy_s() - self._worked) / 5.0)
        self._worked = sim.engine.busy_s()
        gpus = []
        for i in range(self.s.ranks):
            if i in self.gpu_missing:
                continue
            util, watts = share, (105.0 if self.alive and sim.ready else 88.0) + 250.0 * share + sim.rng.uniform(-4, 4)
            if self.gpu_power is not None:
                util, watts = self.gpu_power[0], self.gpu_power[1] + sim.rng.uniform(-4, 4)
            name = f"sglang::scheduler_TP{i}" if self.s.ranks > 1 else "sglang::scheduler"
            mem = 0.5 * GIB if not self.alive or name in self.gone else self.gpu_mem.value(sim.now)
            mhz, reasons = self.throttled.get(i, (2300.0, []))
            procs = [o.GpuProc(pid=pid, mem=size, in_unit=False) for pid, size in self.strangers]
            if self.alive and name not in self.gone:
                procs.append(o.GpuProc(pid=sim.pid + 2 + i, mem=int(mem), in_unit=True))
            gpus.append(
                o.GpuDevice(
                    index=i,
                    uuid=f"GPU-{i}",
                    pci=f"0000:{16 + 16 * i:02x}:00.0",
                    util=round(util, 2),
                    mem_used=int(mem + sum(size for _, size in self.strangers)),
                    mem_total=96 * GIB,
                    power_w=round(watts),
                    power_limit_w=600.0,
                    temp_c=93.0 if reasons else 40.0,
                    sm_mhz=mhz,
                    sm_max_mhz=2430.0,
                    throttle=reasons or ([] if share > 0 else ["idle"] if not self.alive else []),
                    throttle_s={"thermal": self.throttle_seconds[i]} if i in self.throttle_seconds else None,
                    ecc_uncorrected=0,
                    retired_pending=False,
                    fabric=self.fabric,
                    procs=procs,
                )
            )
        sim.emit(o.Gpu, ok=True, gpus=gpus, expected=self.s.ranks)

    def kernel(self, message: str) -> None:
        self.sim.emit(o.Kernel, message=message, priority=3)

    # ---- what the life of the server does to memory

    def loaded(self) -> None:
        """The server stands: memory at its level."""
        self.alive = True
        pool = 44.8 * GIB * self.s.ranks if self.s.hicache else 0.0
        for ramp, value in ((self.gpu_mem, 88 * GIB), (self.anon, pool), (self.read, 550 * GIB)):
            ramp.hold, ramp.slope = None, 0.0
            ramp.go(0, 0, value)

    def begin_life(self) -> None:
        self.alive = True
        self.gone.clear()
        self.zombies.clear()
        self.sleeping = None
        self.leak = Ramp(0.0)

    def loading(self, times: dict[str, float]) -> None:
        """Memory grows as the start gets on."""
        t = self.sim.now + 5 + times["imports"] + times["init"]
        weights = t + 2 + times["weights"]
        graphs = weights + times["pool"] + times["graphs"]
        for ramp in (self.gpu_mem, self.anon, self.read):
            ramp.hold, ramp.slope = None, 0.0
        self.read.go(t, weights, 550 * GIB, 0.0)
        self.gpu_mem.go(t, weights, 88 * GIB, 0.5 * GIB)
        pool = 44.8 * GIB * self.s.ranks if self.s.hicache else 0.0
        self.anon.go(graphs, graphs + (times["host"] if self.s.hicache else 1.0), pool, 0.0)

    def freeze_growth(self, t: float) -> None:
        """From `t` on nothing grows any more."""
        for ramp in (self.gpu_mem, self.anon, self.read):
            ramp.hold = t

    def died(self) -> None:
        self.sleeping = "D"

    def emptied(self) -> None:
        self.alive = False
        for ramp in (self.gpu_mem, self.anon, self.read, self.leak):
            ramp.hold, ramp.slope = None, 0.0
            ramp.go(0, 0, 0.0)
