"""Does host memory fit what the hierarchical cache takes, is it where it should be, and is there room left? Pure."""

from watchdog.sglang import hostpool
from watchdog.units import GIB, format_gb, format_gib
from watchdog.verify.findings import Item, bad, odd, ok, unknown
from watchdog.verify.seen import Seen

AREA = "memory"
LEAST_SHOWN = 0.85
"""The pool counts as seen if so much of what was announced shows (as the judge of FootprintAsAnnounced has it)."""
TIGHT = 0.03
"""Less room than this share of the host's (or the unit's) memory is tight."""

PLACES = {
    "anon": "anonymous memory",
    "shmem": "shared memory",
    "hugetlb": "huge pages",
    "driver": "the driver's own mapping",
}


def check(seen: Seen) -> list[Item]:
    """The findings of host memory."""
    items = []
    if seen.hicache is not False or seen.announced:
        items += [fits(seen), shows(seen)]
    return [*items, room(seen)]


def fits(seen: Seen) -> Item:
    """The pools against the memory of the host, and of the unit's own limit."""
    host, cgroup = seen.host, seen.cgroup
    whole = host.mem_total if host is not None else None
    limit = cgroup.memory_max if cgroup is not None else None
    least = min((size for size in (whole, limit) if size is not None), default=None)
    pool = seen.announced
    place = "the unit's MemoryMax" if limit is not None and least == limit else "the host"
    expected = f"host pools below {size(least)} of {place}" if least is not None else "host pools below the host's memory"
    if pool is None or least is None:
        return unknown(AREA, "pool fits", expected, "the announcement or the host's memory could not be read")
    if not pool:
        return unknown(AREA, "pool fits", expected, "no host pool was announced in the lines that were read")
    shown = f"{size(pool)}, {pool / least:.0%}"
    if pool >= least:
        return bad(AREA, "pool fits", expected, shown, "lower --hicache-ratio or --hicache-size, or raise the limit")
    if pool > 0.9 * least:
        return odd(AREA, "pool fits", expected, shown, "lower --hicache-ratio or --hicache-size: the ranks need memory as well")
    return ok(AREA, "pool fits", expected, shown)


def shows(seen: Seen) -> Item:
    """Whether the memory is there, and where."""
    pool = seen.announced
    place = hostpool.where_visible(seen.version, seen.args, seen.engine.env if seen.engine is not None else None)
    where = PLACES.get(place or "", "the unit's memory")
    if not pool:
        return unknown(AREA, "pool is held", f"the pools in {where}", "no announcement to compare with")
    expected = f"{size(pool)} in {where}"
    if place == "driver":
        return unknown(AREA, "pool is held", expected, "this version's pools cannot be seen from outside")
    found = _held(seen, place)
    if found is None:
        return unknown(AREA, "pool is held", expected, "the unit's memory could not be read", "run this as root")
    held, source = found
    shown = f"{size(held)} {source}"
    if held >= LEAST_SHOWN * pool:
        return ok(AREA, "pool is held", expected, shown)
    cure = "pinning may have failed silently: look for cudaHostRegister in the journal and in the kernel log"
    return bad(AREA, "pool is held", expected, shown, cure)


def _held(seen: Seen, place: str | None) -> tuple[int, str] | None:
    """The memory that could be the pools', and where it was seen. Anonymous memory of the unit is the ranks' own as well."""
    host, cgroup = seen.host, seen.cgroup
    if place == "hugetlb":
        if host is None or host.hugepages_total is None or host.hugepages_free is None or host.hugepage_size is None:
            return None
        return (host.hugepages_total - host.hugepages_free) * host.hugepage_size, "of huge pages in use"
    if cgroup is not None and place == "shmem" and cgroup.shmem is not None:
        return cgroup.shmem, "of shared memory in the unit's cgroup"
    if cgroup is not None and place == "anon" and cgroup.anon is not None:
        return cgroup.anon, "of anonymous memory in the unit's cgroup"
    if cgroup is not None and place is None and cgroup.anon is not None:
        return cgroup.anon + (cgroup.shmem or 0), "of anonymous and shared memory in the unit's cgroup"
    return None if seen.resident is None else (seen.resident, "resident in the ranks")


def room(seen: Seen) -> Item:
    """What is left before the kernel has to act."""
    host, cgroup = seen.host, seen.cgroup
    expected = f"more than {TIGHT:.0%} free"
    if host is None or host.mem_available is None or not host.mem_total:
        return unknown(AREA, "room left", expected, "the host's memory could not be read")
    left, whole, place = host.mem_available, host.mem_total, "the host"
    if cgroup is not None and cgroup.memory_max is not None and cgroup.memory_current is not None:
        own = max(0, cgroup.memory_max - cgroup.memory_current + (cgroup.file or 0) - (cgroup.shmem or 0))
        if own < left:
            left, whole, place = own, cgroup.memory_max, "the unit's MemoryMax"
    shown = f"{size(left)} of {size(whole)} ({place})"
    if cgroup is not None and cgroup.oom_kill:
        shown += f"; {cgroup.oom_kill} killed for memory in this life"
        return bad(AREA, "room left", expected, shown, "lower the host pool, or give the unit more memory")
    if left < max(0.01 * whole, GIB // 2):
        return bad(AREA, "room left", expected, shown, "free memory before the kernel's OOM killer decides")
    if left < TIGHT * whole:
        return odd(AREA, "room left", expected, shown, "lower --hicache-ratio or --hicache-size, or find who else needs memory")
    return ok(AREA, "room left", expected, shown)


def size(amount: float | None) -> str:
    """Bytes in both spellings."""
    return "an unknown size" if amount is None else f"{format_gb(amount)} ({format_gib(amount, 2)})"
