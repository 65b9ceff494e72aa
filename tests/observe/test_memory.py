import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.observe.hosts import MEMINFO, UNIT, V1_BLKIO, V1_MEMORY, V2_FILES, fill, mount, proc
from watchdog import config
from watchdog.clock import BootClock, FakeClock
from watchdog.observation import Cgroup, Host, Observation
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.memory import CgroupSource, HostSource, host_memory, unit_memory
from watchdog.observe.source import Target


@pytest.fixture
def target() -> Target:
    made = Target(config.Server(name="kimi", unit="sglang-kimi.service"))
    made.inv, made.cgroup, made.active = "a1", UNIT, True
    return made


def test_v2(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    fill(root / UNIT[1:], V2_FILES)
    fill(root / "system.slice", {"memory.max": "900000000000\n"})

    seen = unit_memory(Cgroups(proc(tmp_path, mount(root, "cgroup2", "rw"))), UNIT)

    assert seen == Cgroup(
        t=0.0,
        memory_current=401472487424,
        anon=396846170112,
        file=3435134976,
        shmem=4096,
        unevictable=8192,
        kernel=1190133760,
        memory_max=900000000000,
        oom_kill=1,
        io_read=1234,
        psi_some_avg10=1.25,
        psi_full_avg10=0.75,
    )


def test_v2_without_io_accounting_and_limits(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    fill(root / UNIT[1:], {name: text for name, text in V2_FILES.items() if name != "io.stat"})

    seen = unit_memory(Cgroups(proc(tmp_path, mount(root, "cgroup2", "rw"))), UNIT)

    assert (seen.io_read, seen.memory_max) == (None, None)


def test_hybrid_takes_memory_from_v1_and_pressure_from_v2(tmp_path: Path) -> None:
    lines = [mount(tmp_path / name, "cgroup", f"rw,{name}") for name in ("memory", "blkio")]
    lines += [mount(tmp_path / "unified", "cgroup2", "rw")]
    fill(tmp_path / "memory" / UNIT[1:], V1_MEMORY)
    fill(tmp_path / "blkio" / UNIT[1:], V1_BLKIO)
    fill(tmp_path / "unified" / UNIT[1:], {"memory.pressure": V2_FILES["memory.pressure"]})

    seen = unit_memory(Cgroups(proc(tmp_path, *lines)), UNIT)

    assert seen == Cgroup(
        t=0.0,
        memory_current=5000,
        anon=3000,
        file=900,
        shmem=100,
        unevictable=50,
        kernel=700,
        memory_max=None,
        oom_kill=4,
        io_read=4097,
        psi_some_avg10=1.25,
        psi_full_avg10=0.75,
    )


def test_v1_limit(tmp_path: Path) -> None:
    fill(tmp_path / "memory" / UNIT[1:], {"memory.stat": "hierarchical_memory_limit 4096\n"})
    seen = unit_memory(Cgroups(proc(tmp_path, mount(tmp_path / "memory", "cgroup", "rw,memory"))), UNIT)
    assert (seen.memory_max, seen.anon) == (4096, None)


def test_a_unit_without_a_cgroup_has_no_values(tmp_path: Path) -> None:
    assert unit_memory(Cgroups(proc(tmp_path)), UNIT) == Cgroup(t=0.0)


def test_host(tmp_path: Path) -> None:
    fill(tmp_path, {"meminfo": MEMINFO, "pressure/memory": V2_FILES["memory.pressure"], "loadavg": "8.46 1 1 1/2 3\n"})

    seen = host_memory(tmp_path, tmp_path)

    assert seen.mem_total == 1000 * 1024
    assert seen.mem_available == 400 * 1024
    assert (seen.mlocked, seen.unevictable, seen.shmem) == (6 * 1024, 7 * 1024, 30 * 1024)
    assert seen.swap_used == 30 * 1024
    assert (seen.hugepages_total, seen.hugepages_free, seen.hugepage_size) == (8, 3, 2048 * 1024)
    assert (seen.psi_some_avg10, seen.load1) == (1.25, 8.46)
    assert seen.shm_total is not None and seen.shm_free is not None and seen.shm_total >= seen.shm_free > 0


def test_a_host_that_shows_nothing(tmp_path: Path) -> None:
    seen = host_memory(tmp_path / "none", tmp_path / "none")
    assert (seen.mem_total, seen.swap_used, seen.shm_total, seen.psi_some_avg10, seen.load1) == (None, None, None, None, None)


async def first(source: CgroupSource | HostSource, when: Callable[[], object] = lambda: True) -> Observation:
    seen: asyncio.Queue[Observation] = asyncio.Queue()
    beats: list[int] = []
    task = asyncio.create_task(source.run(seen.put_nowait, lambda: beats.append(1)))
    try:
        got = await asyncio.wait_for(seen.get(), 30)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert beats
    return got


async def test_the_host_of_this_machine() -> None:
    seen = await first(HostSource(BootClock()))
    assert isinstance(seen, Host)
    assert seen.mem_total and seen.mem_available and seen.mem_total > seen.mem_available
    assert seen.inv is None and seen.t >= 0


async def test_the_unit_is_told_with_its_life(tmp_path: Path, target: Target) -> None:
    fill(tmp_path / "cg" / UNIT[1:], V2_FILES)
    clock = FakeClock()
    clock.advance(7)
    seen = await first(CgroupSource(target, clock, cgroups=Cgroups(proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw")))))
    assert isinstance(seen, Cgroup)
    assert (seen.t, seen.inv, seen.memory_current) == (7.0, "a1", 401472487424)


def test_real_v1_memory_controller() -> None:
    """The cgroup in which this test runs, where the host has the memory controller as v1."""
    cgroups = Cgroups()
    own = [line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line]
    if "memory" not in cgroups.v1 or not own or cgroups.folder(own[0], "memory") is None:
        pytest.skip("the memory controller is not v1 here, or its tree is out of sight")
    seen = unit_memory(cgroups, own[0])
    assert seen.memory_current and seen.memory_current > 1 << 20
    assert seen.anon is not None and seen.file is not None and seen.oom_kill is not None
