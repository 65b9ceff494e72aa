"""The memory of a unit (its cgroup) and of the host: plain reads of small files.

Never smaps of the server: it walks all page tables and holds the memory map's lock, for seconds at hundreds of GB. Sources:
kernel Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst and blkio-controller.rst; proc_meminfo(5).
"""

import asyncio
import functools
import os
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.clock import Clock
from watchdog.observation import Cgroup, Host
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.files import number, pressure, read, table
from watchdog.observe.source import Beat, Emit, Target
from watchdog.worker import BusyError, Worker

LIMIT_S = 5.0
"""A look takes a fraction of a millisecond; after so many seconds it is given up."""

UNLIMITED = 1 << 62
"""v1 writes "no limit" as a number just below 2^63."""

KIB = 1024


class CgroupSource:
    """Emits `Cgroup` for one server at each interval; without values for a unit that has no cgroup."""

    name = "cgroup"
    mandatory = False

    def __init__(
        self, target: Target, clock: Clock, settings: config.Sources | None = None, cgroups: Cgroups | None = None
    ) -> None:
        """Prepare.

        Args:
            target: the server.
            clock: tells the moments of the observations.
            settings: has the interval.
            cgroups: this host's hierarchies; found where None.
        """
        self._target = target
        self._clock = clock
        self._interval_s = (settings or config.Sources()).memory_interval_s
        self._cgroups = cgroups or Cgroups()
        self._worker = Worker("cgroup")
        self.period_s = self._interval_s + LIMIT_S

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        while True:
            inv, cgroup = self._target.inv, self._target.cgroup
            try:
                seen = await self._worker.call(functools.partial(unit_memory, self._cgroups, cgroup), LIMIT_S)
            except (TimeoutError, BusyError):
                pass  # nothing is known, and nothing is said
            else:
                beat()
                if self._target.inv == inv:
                    emit(msgspec.structs.replace(seen, t=self._clock.now(), inv=inv))
            await asyncio.sleep(self._interval_s)


class HostSource:
    """Emits `Host` at each interval, once for all servers."""

    name = "host"
    mandatory = False

    def __init__(
        self, clock: Clock, settings: config.Sources | None = None, proc: Path = Path("/proc"), shm: Path = Path("/dev/shm")
    ) -> None:
        """Prepare, without I/O.

        Args:
            clock: tells the moments of the observations.
            settings: has the interval.
            proc: the root of procfs.
            shm: where the shared-memory file system is mounted.
        """
        self._clock = clock
        self._interval_s = (settings or config.Sources()).memory_interval_s
        self._proc = proc
        self._shm = shm
        self._worker = Worker("host")
        self.period_s = self._interval_s + LIMIT_S

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        while True:
            try:
                seen = await self._worker.call(lambda: host_memory(self._proc, self._shm), LIMIT_S)
            except (TimeoutError, BusyError):
                pass
            else:
                beat()
                emit(msgspec.structs.replace(seen, t=self._clock.now()))
            await asyncio.sleep(self._interval_s)


def unit_memory(cgroups: Cgroups, cgroup: str) -> Cgroup:
    """The memory of a cgroup now (with t = 0); blocking."""
    v2 = cgroups.folder(cgroup)
    if v2 is not None and (v2 / "memory.current").exists():
        return _v2(v2, cgroup)
    v1 = cgroups.folder(cgroup, "memory")
    seen = _v1(v1) if v1 is not None else Cgroup(t=0.0)
    some, full = pressure(read(v2 / "memory.pressure")) if v2 is not None else (None, None)
    return msgspec.structs.replace(seen, io_read=_io(cgroups, cgroup), psi_some_avg10=some, psi_full_avg10=full)


def _v2(folder: Path, cgroup: str) -> Cgroup:
    stat = table(read(folder / "memory.stat"))
    some, full = pressure(read(folder / "memory.pressure"))
    depth = len([part for part in cgroup.split("/") if part])
    # A limit of a slice above holds as well; the root has none, and it lies outside of what this process may see.
    limits = [number(each / "memory.max") for each in (folder, *folder.parents[: depth - 1])]
    return Cgroup(
        t=0.0,
        memory_current=number(folder / "memory.current"),
        anon=stat.get("anon"),
        file=stat.get("file"),
        shmem=stat.get("shmem"),
        unevictable=stat.get("unevictable"),
        kernel=stat.get("kernel"),
        memory_max=min((limit for limit in limits if limit is not None), default=None),
        oom_kill=table(read(folder / "memory.events")).get("oom_kill"),
        io_read=_io_v2(folder),
        psi_some_avg10=some,
        psi_full_avg10=full,
    )


def _v1(folder: Path) -> Cgroup:
    stat = table(read(folder / "memory.stat"))
    limit = stat.get("hierarchical_memory_limit")
    return Cgroup(
        t=0.0,
        memory_current=number(folder / "memory.usage_in_bytes"),
        anon=stat.get("total_rss"),
        file=stat.get("total_cache"),
        shmem=stat.get("total_shmem"),
        unevictable=stat.get("total_unevictable"),
        kernel=number(folder / "memory.kmem.usage_in_bytes"),
        memory_max=None if limit is None or limit >= UNLIMITED else limit,
        oom_kill=table(read(folder / "memory.oom_control")).get("oom_kill"),
    )


def _io(cgroups: Cgroups, cgroup: str) -> int | None:
    """Bytes read from storage so far; None where the unit has no I/O accounting (IOAccounting=, off by default)."""
    v2 = cgroups.folder(cgroup)
    found = _io_v2(v2) if v2 is not None else None
    v1 = cgroups.folder(cgroup, "blkio")
    if found is not None or v1 is None:
        return found
    for name in ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"):
        text = read(v1 / name)
        if text is not None:
            lines = [line.split() for line in text.splitlines()]
            return sum(int(words[2]) for words in lines if len(words) == 3 and words[1] == b"Read" and words[2].isdigit())
    return None


def _io_v2(folder: Path) -> int | None:
    text = read(folder / "io.stat")
    if text is None:
        return None
    return sum(int(word[7:]) for word in text.split() if word.startswith(b"rbytes=") and word[7:].isdigit())


def host_memory(proc: Path, shm: Path) -> Host:
    """The host's memory now (with t = 0); blocking."""
    info = table(read(proc / "meminfo"), b":")

    def size(name: str) -> int | None:
        return info[name] * KIB if name in info else None

    some, full = pressure(read(proc / "pressure/memory"))
    swap, swap_free = size("SwapTotal"), size("SwapFree")
    shm_total, shm_free = _space(shm)
    return Host(
        t=0.0,
        mem_total=size("MemTotal"),
        mem_available=size("MemAvailable"),
        mem_free=size("MemFree"),
        shmem=size("Shmem"),
        mlocked=size("Mlocked"),
        unevictable=size("Unevictable"),
        swap_used=None if swap is None or swap_free is None else swap - swap_free,
        hugepages_total=info.get("HugePages_Total"),
        hugepages_free=info.get("HugePages_Free"),
        hugepage_size=size("Hugepagesize"),
        shm_total=shm_total,
        shm_free=shm_free,
        psi_some_avg10=some,
        psi_full_avg10=full,
        load1=_load1(proc),
        cpus=os.cpu_count(),
    )


def _space(mount: Path) -> tuple[int | None, int | None]:
    """Size and free space of a file system."""
    try:
        space = os.statvfs(mount)
    except OSError:
        return None, None
    return space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail


def _load1(proc: Path) -> float | None:
    try:
        return float((read(proc / "loadavg") or b"").split()[0])
    except (ValueError, IndexError):
        return None
