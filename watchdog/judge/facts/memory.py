"""Host memory in one life: levels of the places where pinned memory may show, before it was pinned, at readiness, and now."""

import statistics
from collections import deque
from collections.abc import Sequence

import msgspec

from watchdog.judge.facts.pool import Pool
from watchdog.judge.facts.trend import Rush, Series, Trend
from watchdog.judge.kernel_lines import KernelFact, Kind
from watchdog.observation import Cgroup, Host, Procs
from watchdog.sglang import processes
from watchdog.sglang.loglines import Line

MIB = 1024**2
RANK_FLOOR = 32 * MIB
"""What a rank's memory may change by for reasons of its own, however small its pool is."""
SHARE = 0.02
"""And the share of the pool by which it may."""
BEFORE_S = 60.0
"""A level is "before the pool" if it was looked at within so long before its announcement."""
RUSH_LEAST = 256 * MIB
"""Growth below this is never called a rush, however little is left."""
RUSH_AFTER_S = 60.0
"""So long after readiness the first requests take what they need."""
RUSH_AHEAD = 4.0
"""A rush is believed to go on for so many times as long as it was seen."""
FULL_S, FULL_LEAST, FULL_SHARE = 30.0, 512 * MIB, 0.01
"""Memory is nearly full where it lasts so long at the present pace, or where so little or such a share is left."""
NOISE_LOOKS = 30
NOISY_LOOKS = 3
"""Looks after readiness before the host's memory says anything: what others do must be seen first."""

TITLES = {
    "unit": "the unit's anonymous and shared memory",
    "ranks": "the ranks' resident memory",
    "hugetlb": "huge pages",
    "host": "memory that the host no longer has available",
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One place where the pool could show.

    Attributes:
        kind: "unit", "ranks", "hugetlb" or "host".
        size: bytes that show there: since just before the pool was announced where that is known (`grown`), else all of them.
        unsure: by how much `size` may be off, in bytes.
        grown: whether `size` is what was added since the announcement; otherwise it is an upper bound.
        lost: bytes by which the place fell since the server was ready; 0 where it did not.
        at_ready: what `size` was when the server had become ready; None where that was not read.
    """

    kind: str
    size: int
    unsure: int
    grown: bool
    lost: int = 0
    at_ready: int | None = None

    @property
    def title(self) -> str:
        """The place's name for people."""
        return TITLES[self.kind]


class Level:
    """One quantity: its last looks, and what it was before the pool and at readiness."""

    def __init__(self) -> None:
        self.looks: deque[tuple[float, float]] = deque(maxlen=NOISE_LOOKS)
        self.before: float | None = None
        self.ready: float | None = None
        self.seen_ready = 0

    def add(self, t: float, value: float, ready_at: float | None) -> None:
        """Take in one look."""
        self.looks.append((t, value))
        if ready_at is not None and t >= ready_at and self.seen_ready < 3:
            self.seen_ready += 1
            if self.seen_ready == 3:
                self.ready = self.now()

    def mark(self, t: float) -> None:
        """The pool was announced at `t`: what was seen just before is the level without it."""
        earlier = [(at, value) for at, value in self.looks if t - BEFORE_S <= at <= t]
        if earlier:
            self.before = earlier[-1][1]

    def now(self) -> float | None:
        """The median of the last three looks; once the server is ready, of those since then: others may lack the pool."""
        values = [value for _, value in list(self.looks)[-(self.seen_ready or 3) :]]
        return statistics.median(values) if values else None

    def spread(self, since: float) -> float:
        """How much it moved over the last looks, since a moment."""
        values = [value for t, value in self.looks if t >= since]
        return max(values) - min(values) if values else 0.0


class Memory:
    """Folds the unit's and the host's memory. Levels and leak series belong to one life."""

    def __init__(self) -> None:
        self.host: Host | None = None
        self.pool = Pool()
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.pool.begin()
        self.cgroup: Cgroup | None = None
        self.levels: dict[str, Level] = {}
        """By kind of place."""
        self.others = Level()
        """What of the host's memory is in use by others than the unit."""
        self.by_others = Series()
        """The same as a trend, where the unit's own part is known."""
        self.by_rank: dict[str, Level] = {}
        """Resident memory of each rank, by its name and pid."""
        self.swap_before: int | None = None
        self.ranks: dict[str, Series] = {}
        self.unit = Series()
        self.rushes: dict[str, Rush] = {}
        """The last minutes of the unit and of each process, by name; only what is there since readiness."""
        self.pin_failures = 0
        """How often the driver could not pin memory while the server started."""
        self._tells_shmem = False
        self._marked = False
        self._ready_at = float("inf")

    def see_kernel(self, t: float, fact: KernelFact, *, ready_at: float | None) -> None:
        """Take in what a line of the kernel log, written at `t`, says. A pool is pinned in the start: later ones are others'."""
        if fact.kind is Kind.PIN_FAILED and (ready_at is None or t <= ready_at):
            self.pin_failures += 1

    def announce(self, t: float, line: Line) -> None:
        """Take in a line, written at `t`, that announces a host pool."""
        self.pool.announce(t, line)
        if self._marked or self.pool.announced_at is None:
            return
        self._marked = True
        self.swap_before = self.host.swap_used if self.host is not None else None
        for level in (*self.levels.values(), *self.by_rank.values()):
            level.mark(t)

    def see_cgroup(self, o: Cgroup, *, settled: bool, ready_at: float | None) -> None:
        """Take in the unit's memory."""
        self.cgroup = o
        self._tells_shmem = self._tells_shmem or o.shmem is not None
        if o.anon is not None and (o.shmem is not None or not self._tells_shmem):
            held = o.anon + (o.shmem or 0)
            self._level("unit").add(o.t, held, ready_at)
            self._rush("the unit", o.t, held, ready_at)
            if settled:
                self.unit.add(o.t, held)

    def see_host(self, o: Host, *, ready_at: float | None) -> None:
        """Take in the host's memory."""
        self.host = o
        if o.hugepages_total and o.hugepages_free is not None and o.hugepage_size:
            self._level("hugetlb").add(o.t, (o.hugepages_total - o.hugepages_free) * o.hugepage_size, ready_at)
        if o.mem_total is not None and o.mem_available is not None:
            used = o.mem_total - o.mem_available
            self._level("host").add(o.t, used, ready_at)
            self._ready_at = float("inf") if ready_at is None else ready_at
            own = next((level.looks[-1][1] for kind in ("unit", "ranks") if (level := self.levels.get(kind))), None)
            self.others.add(o.t, used - (own or 0.0), ready_at)
            if own is not None and ready_at is not None and o.t > ready_at + RUSH_AFTER_S:
                self.by_others.add(o.t, used - own)

    def see_procs(self, o: Procs, *, settled: bool, ready_at: float | None) -> None:
        """Take in the resident memory of each rank."""
        total, any_rank, all_read = 0, False, True
        for proc in o.procs:
            role = processes.role(proc.name) if proc.state != "Z" else None
            if proc.rss is None:
                all_read = all_read and role != "scheduler"
            if proc.rss is None or role not in ("scheduler", "detokenizer", "main"):
                continue
            name = f"{proc.name} (pid {proc.pid})"
            if role == "scheduler":
                total, any_rank = total + proc.rss, True
                level = self.by_rank.get(name)
                if level is None:
                    level = self.by_rank[name] = Level()
                level.add(o.t, proc.rss, ready_at)
            self._rush(name, o.t, proc.rss, ready_at)
            if settled:
                series = self.ranks.get(name)
                if series is None:
                    series = self.ranks[name] = Series()
                series.add(o.t, proc.rss)
        if any_rank and all_read:
            self._level("ranks").add(o.t, total, ready_at)

    def _level(self, kind: str) -> Level:
        level = self.levels.get(kind)
        if level is None:
            level = self.levels[kind] = Level()
        return level

    def _rush(self, name: str, t: float, value: float, ready_at: float | None) -> None:
        if ready_at is not None and t > ready_at + RUSH_AFTER_S:
            rush = self.rushes.get(name)
            if rush is None:
                rush = self.rushes[name] = Rush()
            rush.add(t, value)

    # ---- what judges ask

    def rush(self) -> tuple[str, Trend, float] | None:
        """Who takes memory so fast that it lasts minutes: (who, its climb, seconds until the room is used up); None: nobody."""
        room = self.room()
        if room is None:
            return None
        climbs = [(name, found) for name, rush in self.rushes.items() if (found := rush.climb(RUSH_LEAST)) is not None]
        whole = sum(found.per_s for name, found in climbs if name != "the unit")
        pace = max([whole, *(found.per_s for name, found in climbs if name == "the unit")])
        if not climbs or not pace:
            return None
        name, worst = max(climbs, key=lambda c: (c[0] != "the unit", c[1].per_s))
        return (name, worst, room / pace) if room / pace < RUSH_AHEAD * worst.span_s else None

    def nearly_full(self) -> bool:
        """Whether so little is left that the kernel may kill at any moment."""
        room, h, c = self.room(), self.host, self.cgroup
        if room is None:
            return False
        wholes = [w for w in (h.mem_total if h is not None else None, c.memory_max if c is not None else None) if w is not None]
        if room <= max(FULL_LEAST, FULL_SHARE * min(wholes, default=0)):
            return True
        rush = self.rush()
        return rush is not None and rush[2] < FULL_S

    def room(self) -> int | None:
        """Bytes that are left before the kernel must act: of the host, and of the unit's own limit."""
        rooms = []
        if self.host is not None and self.host.mem_available is not None:
            rooms.append(self.host.mem_available)
        c = self.cgroup
        if c is not None and c.memory_max is not None and c.memory_current is not None:
            rooms.append(max(0, c.memory_max - c.memory_current + (c.file or 0) - (c.shmem or 0)))
        return min(rooms) if rooms else None

    def room_for(self, kinds: Sequence[str]) -> int | None:
        """Bytes that are left for a pool in places of these kinds: huge pages are set aside, and not available otherwise."""
        room, h = self.room(), self.host
        if room is None or "hugetlb" not in kinds or "host" in kinds or h is None:
            return room
        return room + (h.hugepages_free or 0) * (h.hugepage_size or 0)

    def grown(self, kinds: Sequence[str]) -> float | None:
        """Bytes that were added since the pool was announced, in that place of these kinds that shows most; None if unknown."""
        levels = [level for kind in kinds if (level := self.levels.get(kind)) is not None]
        return max((level.looks[-1][1] - level.before for level in levels if level.before is not None), default=None)

    def places(self, wanted: float, count: int) -> list[Place]:
        """Where the pool could show, as far as it was read since the server was ready.

        Args:
            wanted: bytes of all ranks' pools.
            count: how many ranks there are.
        """
        out = []
        for kind in TITLES:
            level = self.levels.get(kind)
            if level is None or level.seen_ready == 0 or (now := level.now()) is None:
                continue
            unsure = SHARE * wanted + RANK_FLOOR * count
            if kind == "host":
                if level.seen_ready < NOISY_LOOKS or level.before is None:
                    continue  # how much others take is not known yet; or all that the host uses says nothing about this pool
                unsure += self.others.spread(self._ready_at)
            elif kind == "hugetlb":
                unsure = 0.0
            lost = max(0.0, level.ready - now) if level.ready is not None else 0.0
            base = level.before or 0.0
            out.append(
                Place(
                    kind=kind,
                    size=round(max(0.0, now - base)),
                    unsure=round(unsure),
                    grown=level.before is not None,
                    lost=round(lost),
                    at_ready=round(max(0.0, level.ready - base)) if level.ready is not None else None,
                )
            )
        return out

    def at_readiness(self, kind: str) -> Place | None:
        """What one place showed when the server had just become ready; None where that was not read."""
        level = self.levels.get(kind)
        if level is None or level.ready is None:
            return None
        return Place(kind=kind, size=round(level.ready - (level.before or 0.0)), unsure=0, grown=level.before is not None)

    def short_ranks(self, per_rank: float, least: float) -> list[tuple[str, float]]:
        """Ranks that hold less than the share `least` of their pool although others hold it: (name, bytes since before it)."""
        held = {
            name: now - level.before
            for name, level in self.by_rank.items()
            if level.before is not None and level.seen_ready and (now := level.now()) is not None
        }
        floor = SHARE * per_rank + RANK_FLOOR
        return [(name, size) for name, size in held.items() if size + floor < least * per_rank]
