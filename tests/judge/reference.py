"""The reference deployment as observations: Kimi-K2.5 on 8 GPUs, hicache at ratio 4, EAGLE3, one start and what follows."""

from collections.abc import Iterator
from typing import Any

from watchdog import observation as o
from watchdog.judge.engine import SLOW_S, Engine, Settings
from watchdog.judge.verdict import Condition, Intent, Verdict
from watchdog.units import GIB

INV = "a" * 32
GB = 10**9
ARGS: dict[str, Any] = {
    "model_path": "/models/Kimi-K2.5",
    "tp_size": 8,
    "page_size": 1,
    "enable_hierarchical_cache": True,
    "hicache_ratio": 4.0,
    "hicache_size": 0,
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
}
POOL = 44_770_000_000
"""Of one rank, as it is announced."""
OTHERS_PAGES = 1000 * GB
STAMP = "[2026-02-25 03:08:10"


class Deployment:
    """An engine, and a world that is told to it every ten seconds."""

    def __init__(
        self,
        *,
        version: str | None = "0.5.9",
        args: dict[str, Any] | None = None,
        ranks: int = 8,
        per_rank: int = POOL,
        own: int = 4 * GB,
        host: int = 2000 * GB,
        shared: bool = False,
        huge: int | None = None,
        cgroup: bool = True,
        mid_life: bool = False,
        tick_s: float = 10.0,
    ) -> None:
        self.engine = Engine(Settings(tick_s=tick_s), mid_life=mid_life)
        self.version, self.args = version, {**ARGS, "tp_size": ranks, **(args or {})}
        self.per_rank, self.own, self.host, self.shared, self.cgroup = per_rank, own, host, shared, cgroup
        self.huge = huge
        """Bytes of the host in huge pages: the pools lie in them, if there are enough."""
        self.t = 0.0
        self.held = [0.0] * ranks
        """Bytes of each rank's pool that are there."""
        self.extra = [0.0] * ranks
        self.others = 30.0 * GB
        self.intents: list[Intent] = []
        self.memory_max: int | None = None
        self.psi = 0.0
        self.gone: set[int] = set()
        """Ranks that are no more; what they held is free."""
        self.unread: set[int] = set()
        """Ranks whose memory could not be read; with any, the unit's shared memory could not be read either."""
        self.oom_kills = 0
        self.hidden = 0.0
        """Bytes that the driver holds for the unit, and that no process owns."""
        self.others_pages: float | None = None
        """Bytes of huge pages that other programs hold, out of some that are there for them; None: there are none for others."""

    @property
    def ranks(self) -> range:
        return range(len(self.held))

    def feed(self, x: o.Observation) -> None:
        self.intents += [e.intent for e in self.engine.observe(x) if e.intent is not None]

    def log(self, message: str) -> None:
        self.feed(o.Log(t=self.t, inv=INV, message=message, pid=7))

    def unit(self) -> None:
        self.feed(
            o.Unit(t=self.t, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=1, since=0.0)
        )

    def server(self, **more: Any) -> None:
        env = {} if self.huge is None else {"SGLANG_HUGEPAGE_SIZE": "2MB"}
        self.feed(o.Server(t=self.t, inv=INV, version=self.version, args=self.args, env=env, **more))

    def look(self, seconds: float = 10.0) -> None:
        """Ten seconds pass, and memory is looked at."""
        self.t += seconds
        small = [0.0] * len(self.held) if self._in_huge_pages else self.held
        each = [round(self.own + held + extra) for held, extra in zip(small, self.extra, strict=True)]
        each = [0 if r in self.gone else size for r, size in enumerate(each)]
        pool = round(sum(held for r, held in enumerate(small) if r not in self.gone))
        anon = sum(each) - (pool if self.shared else 0)
        names = [f"sglang::scheduler_TP{r}" for r in self.ranks] if len(self.held) > 1 else ["sglang::scheduler"]
        told = [None if r in self.unread else size for r, size in enumerate(each)]
        procs = [o.Proc(pid=100 + r, name=name, state="S", rss=told[r]) for r, name in enumerate(names) if r not in self.gone]
        self.feed(o.Procs(t=self.t, inv=INV, procs=procs))
        if self.cgroup:
            shmem, current = pool if self.shared else 0, sum(each)
            self.feed(
                o.Cgroup(
                    t=self.t,
                    inv=INV,
                    anon=anon,
                    shmem=None if self.unread else shmem,
                    file=shmem,
                    memory_current=current,
                    memory_max=self.memory_max,
                    oom_kill=self.oom_kills,
                    psi_full_avg10=self.psi,
                )
            )
        # What is set aside for huge pages is not available, whether in use or not (kernel, hugetlbpage.rst).
        available = max(0, round(self.host - sum(each) - self.others - self.hidden - (self.huge or 0)))
        pages = {} if self.huge is None and self.others_pages is None else self._huge_pages()
        self.feed(o.Host(t=self.t, mem_total=self.host, mem_available=available, swap_used=0, psi_full_avg10=self.psi, **pages))

    @property
    def _in_huge_pages(self) -> bool:
        return self.huge is not None and self.huge >= self.per_rank * len(self.held)

    def _huge_pages(self) -> dict[str, int]:
        size = 2 * 2**20
        theirs = round(self.others_pages or 0.0) // size
        whole = (self.huge or 0) // size + (0 if self.others_pages is None else OTHERS_PAGES // size)
        used = theirs + (-(-round(sum(self.held)) // size) if self._in_huge_pages else 0)
        return {"hugepages_total": whole, "hugepages_free": max(0, whole - used), "hugepage_size": size}

    def begin(self) -> None:
        """Up to the KV caches."""
        self.unit()
        self.server()
        for _ in range(4):
            self.look()
        for r in self.ranks:
            self.log(f"{STAMP} TP{r}] KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB")
        for r in self.ranks:
            self.log(f"{STAMP} TP{r}] KV Cache is allocated. #tokens: 159277, K size: 0.30 GB, V size: 0.30 GB")
        self.look()

    def announce(self, gb: float | None = None, ranks: range | None = None) -> None:
        """Each rank says what it allocates."""
        for r in self.ranks if ranks is None else ranks:
            size = self.per_rank / GB if gb is None else gb
            self.log(f"{STAMP} TP{r}] Allocating {size:.2f} GB host memory for hierarchical KV cache.")

    def pin(self, share: float = 1.0) -> None:
        """The pools are touched, a tenth every ten seconds."""
        for step in range(1, 11):
            self.held = [self.per_rank * share * step / 10 for _ in self.held]
            self.look()

    def ready(self) -> None:
        """The ready line, and a few looks."""
        self.log(f"{STAMP}] The server is fired up and ready to roll!")
        for _ in range(4):
            self.look()

    def start(self) -> "Deployment":
        """A whole start that went well."""
        self.begin()
        self.announce()
        self.pin()
        self.ready()
        return self

    def hours(self, hours: float, step: float = 60.0) -> Iterator[float]:
        """Time passes: yields the seconds that have passed, before each look."""
        begun = self.t
        while self.t - begun < hours * 3600:
            yield self.t - begun
            self.look(step)

    # ---- what came of it

    def condition(self, kind: str) -> Condition:
        self.t += SLOW_S  # what changes slowly is looked at no more often
        self.intents += [e.intent for e in self.engine.tick(self.t) if e.intent is not None]
        return self.engine.conditions[kind]

    def verdict(self, kind: str) -> Verdict:
        return next(v for v in self.engine.judge(self.t) if v.type == kind)

    def reasons(self, action: str = "alert") -> set[str]:
        return {i.reason for i in self.intents if str(i.action) == action}


def gib(amount: float) -> float:
    return amount / GIB
