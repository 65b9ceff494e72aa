"""Host memory: does it hold what hicache announced, does a rank leak, is there room for what is still to come?"""

from watchdog.judge.facts.trend import Series
from watchdog.observation import Cgroup, Host, Procs
from watchdog.sglang import processes
from watchdog.sglang.loglines import Line

GIB = 1024**3


class Memory:
    """Folds the unit's and the host's memory. Leak series belong to one life."""

    def __init__(self) -> None:
        self.host: Host | None = None
        self.before_start: Host | None = None
        """The host before this life touched memory."""
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.cgroup: Cgroup | None = None
        self.before_start = self.host
        self.resident: int | None = None
        """Resident memory of all ranks together."""
        self.announced: dict[str, float] = {}
        """Host pools that SGLang announced: rank (and count) → bytes."""
        self.ranks: dict[str, Series] = {}
        self.unit = Series()
        self.peak_seen = 0

    def announce(self, line: Line) -> None:
        """Take in a line that announces a host pool."""
        size = line.fields.get("bytes")
        if size:
            rank = line.rank or "all"
            self.announced[f"{rank}#{sum(k.startswith(rank + '#') for k in self.announced)}"] = size

    def see_cgroup(self, o: Cgroup, *, settled: bool) -> None:
        """Take in the unit's memory."""
        self.cgroup = o
        if o.anon is not None:
            self.peak_seen = max(self.peak_seen, o.anon + (o.shmem or 0))
            if settled:
                self.unit.add(o.t, o.anon + (o.shmem or 0))

    def see_host(self, o: Host) -> None:
        """Take in the host's memory."""
        self.host = o

    def see_procs(self, o: Procs, *, settled: bool) -> None:
        """Take in the resident memory of each rank."""
        schedulers = [x.rss for x in o.procs if x.rss is not None and processes.role(x.name) == "scheduler"]
        self.resident = sum(schedulers) if schedulers else None
        if not settled:
            return
        for proc in o.procs:
            if proc.rss is not None and processes.role(proc.name) in ("scheduler", "detokenizer", "main"):
                self.ranks.setdefault(f"{proc.name} (pid {proc.pid})", Series()).add(o.t, proc.rss)

    def room(self) -> int | None:
        """Bytes that are left before the kernel must act: of the host, and of the unit's own limit."""
        rooms = []
        if self.host is not None and self.host.mem_available is not None:
            rooms.append(self.host.mem_available)
        c = self.cgroup
        if c is not None and c.memory_max is not None and c.memory_current is not None:
            rooms.append(max(0, c.memory_max - c.memory_current + (c.file or 0) - (c.shmem or 0)))
        return min(rooms) if rooms else None

    def seen(self) -> tuple[float, str] | None:
        """What could be the pinned pool, in bytes, and where it shows; None if nothing could be read."""
        places: list[tuple[float, str]] = []
        c, h, b = self.cgroup, self.host, self.before_start
        if c is not None and c.anon is not None:
            places += [(c.anon + (c.shmem or 0), "the unit's anonymous and shared memory")]
        if self.resident is not None:
            places.append((self.resident, "the ranks' resident memory"))
        if h is not None and b is not None:
            if h.hugepages_total and h.hugepages_free is not None and h.hugepage_size:
                places.append(((h.hugepages_total - h.hugepages_free) * h.hugepage_size, "hugepages"))
            if h.mem_available is not None and b.mem_available is not None:
                places.append((b.mem_available - h.mem_available, "memory that the host no longer has available"))
        return max(places, default=None)
