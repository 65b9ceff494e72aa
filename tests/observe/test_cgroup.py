from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observe.hosts import UNIT, fill, mount, proc
from watchdog.observe.cgroup import Cgroups, contains, mounts
from watchdog.observe.files import number, pressure, read, table


def v2(tmp_path: Path, inner: str = "/") -> tuple[Cgroups, Path]:
    root = tmp_path / "cgroup two"
    root.mkdir()
    return Cgroups(proc(tmp_path, mount(root, "cgroup2", "rw,nsdelegate", inner))), root


def test_v2_lists_the_processes_of_a_unit_and_of_the_cgroups_below(tmp_path: Path) -> None:
    cgroups, root = v2(tmp_path)
    fill(root / UNIT[1:], {"cgroup.procs": "30\n7\n", "inner/cgroup.procs": "8\n", "inner/deep/cgroup.procs": "9\n0\n"})

    assert cgroups.processes(UNIT) == [7, 8, 9, 30]
    assert cgroups.processes("/system.slice/gone.service") == []


@pytest.mark.parametrize("hybrid", [True, False])
def test_v1_and_hybrid_use_the_tree_of_systemd(tmp_path: Path, hybrid: bool) -> None:
    named, memory, unified = tmp_path / "systemd", tmp_path / "memory", tmp_path / "unified"
    lines = [mount(named, "cgroup", "rw,xattr,name=systemd"), mount(memory, "cgroup", "rw,memory")]
    fill(named / UNIT[1:], {"cgroup.procs": "11\n"})
    fill(memory / UNIT[1:], {"memory.usage_in_bytes": "1\n"})
    if hybrid:
        lines.append(mount(unified, "cgroup2", "rw"))
        fill(unified, {"cgroup.procs": ""})
    cgroups = Cgroups(proc(tmp_path, *lines))

    assert cgroups.processes(UNIT) == [11]
    assert cgroups.folder(UNIT, "memory") == memory / UNIT[1:]
    assert cgroups.folder(UNIT, "cpuacct") is None


def test_without_a_hierarchy_nothing_is_known(tmp_path: Path) -> None:
    cgroups = Cgroups(proc(tmp_path))

    assert not cgroups.known
    assert cgroups.processes(UNIT) is None


def test_a_mount_of_a_part_of_the_tree(tmp_path: Path) -> None:
    cgroups, root = v2(tmp_path, inner="/system.slice")
    fill(root / "sglang-kimi.service", {"cgroup.procs": "5\n"})

    assert cgroups.processes(UNIT) == [5]


@pytest.mark.parametrize("path", ["", "system.slice/x", "/../etc", "/a/../../b"])
def test_odd_paths_lead_nowhere(tmp_path: Path, path: str) -> None:
    cgroups, _ = v2(tmp_path)
    assert cgroups.folder(path) is None


def test_the_hierarchies_of_this_host_are_found() -> None:
    assert Cgroups().known


def test_membership_by_proc_cgroup() -> None:
    assert contains(UNIT, f"0::{UNIT}\n".encode()) is True
    assert contains(UNIT, f"4:memory:/x\n1:name=systemd:{UNIT}/inner\n".encode()) is True
    assert contains(UNIT, f"0::{UNIT}2\n".encode()) is False
    assert contains(UNIT, f"4:memory:{UNIT}\n0::/\n".encode()) is False
    assert contains(UNIT, None) is None
    assert contains("", b"0::/\n") is None


@given(st.binary(max_size=400))
def test_garbage_is_survived(garbage: bytes) -> None:
    assert isinstance(mounts(garbage), list)
    assert isinstance(table(garbage), dict)
    assert len(pressure(garbage)) == 2
    contains(UNIT, garbage)


def test_small_files(tmp_path: Path) -> None:
    fill(tmp_path, {"max": "max\n", "seven": "7\n", "long": "x" * 5000})

    assert number(tmp_path / "max") is None
    assert number(tmp_path / "seven") == 7
    assert number(tmp_path / "none") is None
    assert read(tmp_path / "long", 10) == b"x" * 10
    assert read(tmp_path) is None
    assert pressure(b"some avg10=12.50 avg60=1 avg300=1 total=1\nfull avg10=x\n") == (12.5, None)
