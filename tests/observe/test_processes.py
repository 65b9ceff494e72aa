import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observe.hosts import UNIT, fill, mount, proc, process
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Procs
from watchdog.observe import processes
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.processes import ProcessSource, read_stat, title
from watchdog.observe.source import Target

NAMED = "import setproctitle, sys, time; setproctitle.setproctitle(sys.argv[1]); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def target() -> Target:
    made = Target(config.Server(name="kimi", unit="sglang-kimi.service"))
    made.inv, made.cgroup, made.active = "a1", UNIT, True
    return made


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Cgroups, list[subprocess.Popen[str]]]]:
    """Real processes with titles of SGLang, in a made-up cgroup."""
    names = ["sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"]
    made = [subprocess.Popen([sys.executable, "-c", NAMED, name], stdout=subprocess.PIPE, text=True) for name in names]
    made.append(
        subprocess.Popen(
            [sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    )
    try:
        for each in made:
            assert each.stdout is not None and each.stdout.readline() == "up\n"
        fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": "".join(f"{each.pid}\n" for each in made)})
        yield Cgroups(proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))), made
    finally:
        for each in made:
            each.kill()
            each.communicate()


def source(target: Target, cgroups: Cgroups, root: Path = Path("/proc"), interval_s: float = 60.0) -> ProcessSource:
    return ProcessSource(target, BootClock(), config.Sources(processes_interval_s=interval_s), cgroups, root)


async def test_real_processes_by_their_titles(target: Target, real: tuple[Cgroups, list[subprocess.Popen[str]]]) -> None:
    cgroups, made = real
    looking = source(target, cgroups)

    seen = await looking.look()

    assert seen is not None and seen.inv == "a1"
    by_pid = {each.pid: each for each in seen.procs}
    assert [by_pid[each.pid].name for each in made[:3]] == [
        "sglang::scheduler_TP0",
        "sglang::scheduler_TP1",
        "sglang::detokenizer",
    ]
    python = by_pid[made[3].pid]
    assert python.name.startswith("python") and python.ppid == os.getpid() and python.state == "S"
    assert python.rss is not None and python.rss > 1 << 20 and python.cpu_s is not None
    if os.geteuid() == 0:
        assert python.wchan not in (None, "0")
    assert seen.cpu_s == pytest.approx(sum(each.cpu_s or 0 for each in seen.procs))

    made[0].send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, made[0].pid, os.WSTOPPED)  # noqa: ASYNC222 (it stops at once)
    stopped = await looking.look()
    assert stopped is not None
    assert [each.state for each in stopped.procs if each.pid == made[0].pid] == ["T"]


async def test_an_ended_process_is_left_out_and_a_hidden_one_is_told(tmp_path: Path, target: Target) -> None:
    root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
    fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": "10\n11\n"})
    process(root, 10, "sglang::schedul", "sglang::scheduler_TP0\0\0\0")

    seen = await source(target, Cgroups(root), root).look()

    assert seen is not None
    assert [(each.pid, each.name, each.state) for each in seen.procs] == [(10, "sglang::scheduler_TP0", "S"), (11, "", None)]
    assert seen.cpu_s is None


async def test_the_cgroup_counts_the_time_of_ended_processes(tmp_path: Path, target: Target) -> None:
    root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
    fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": "10\n", "cpu.stat": "usage_usec 12500000\n"})
    process(root, 10, "python3", "/usr/bin/python3\0-m\0sglang.launch_server\0")

    seen = await source(target, Cgroups(root), root).look()

    assert seen is not None and seen.cpu_s == 12.5
    assert (seen.procs[0].name, seen.procs[0].cpu_s) == ("python3", 250 / processes.TICK)


async def test_a_command_line_is_read_once_and_again_when_the_title_comes(tmp_path: Path, target: Target) -> None:
    root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
    fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": "10\n"})
    process(root, 10, "pt_main_thread", "/usr/bin/python3\0-c\0from multiprocessing.spawn …\0")
    looking = source(target, Cgroups(root), root)

    async def name() -> str:
        seen = await looking.look()
        assert seen is not None
        return seen.procs[0].name

    assert await name() == "python3"
    (root / "10/cmdline").write_text("not read again")
    assert await name() == "python3"
    process(root, 10, "sglang::schedul", "sglang::scheduler_DP1_TP1\0\0")
    assert await name() == "sglang::scheduler_DP1_TP1"
    process(root, 10, "bash", "bash\0", started=77)  # the pid was given to another process
    assert await name() == "bash"


async def test_a_blocked_command_line_costs_only_the_title(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TITLES_LIMIT_S", 0.1)
    root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
    fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": "9\n10\n11\n"})
    for pid, rank in ((9, 0), (10, 1), (11, 2)):
        process(root, pid, "sglang::schedul", f"sglang::scheduler_TP{rank}\0")
    (root / "10/cmdline").unlink()
    os.mkfifo(root / "10/cmdline")  # a read of it blocks until somebody writes
    looking = source(target, Cgroups(root), root)

    for _ in range(2):
        seen = await looking.look()
        assert seen is not None
        assert [each.name for each in seen.procs] == ["sglang::scheduler_TP0", "sglang::schedul", "sglang::schedul"]

    with (root / "10/cmdline").open("w") as pipe:
        pipe.write("sglang::scheduler_TP1\0")
    while looking._titles._worker.busy:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (root / "10/cmdline").unlink()
    (root / "10/cmdline").write_text("sglang::scheduler_TP1\0")
    seen = await looking.look()
    assert seen is not None
    assert [each.name[-3:] for each in seen.procs] == ["TP0", "TP1", "TP2"]


async def test_without_any_hierarchy_proc_is_searched(tmp_path: Path, target: Target) -> None:
    root = proc(tmp_path)
    for pid, path in ((10, UNIT), (11, "/other"), (12, UNIT + "/inner")):
        process(root, pid, "sleep")
        fill(root / str(pid), {"cgroup": f"0::{path}\n"})

    seen = await source(target, Cgroups(root), root).look()

    assert seen is not None
    assert [each.pid for each in seen.procs] == [10, 12]


async def test_an_inactive_unit_has_no_processes_and_look_now_cuts_the_interval(tmp_path: Path, target: Target) -> None:
    target.cgroup = ""
    root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
    looking = source(target, Cgroups(root), root, interval_s=600)
    seen: asyncio.Queue[Procs] = asyncio.Queue()
    task = asyncio.create_task(looking.run(seen.put_nowait, lambda: None))  # type: ignore[arg-type]
    try:
        for _ in range(3):
            got = await asyncio.wait_for(seen.get(), 30)
            assert (got.procs, got.cpu_s, got.inv) == ([], None, "a1")
            looking.look_now()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("cmdline", "comm", "name"),
    [
        (b"sglang::scheduler_TP0\0\0\0", b"sglang::schedul", "sglang::scheduler_TP0"),
        (b"sglang::detokenizer    ", b"sglang::detoken", "sglang::detokenizer"),
        (b"/opt/venv/bin/python3.12\0-m\0sglang.launch_server", b"pt_main_thread", "python3.12"),
        (b"/usr/local/cuda/bin/cicc\0-x", b"cicc", "cicc"),
        (b"", b"python3", "python3"),
        (b"/usr/bin/pythonista\0", b"pythonista", "pythonista"),
        (b"sglang::\x1b[31m\0", b"x", "sglang::�[31m"),
    ],
)
def test_titles(cmdline: bytes, comm: bytes, name: str) -> None:
    assert title(cmdline, comm) == name


def test_a_comm_with_brackets_and_spaces(tmp_path: Path) -> None:
    process(tmp_path, 3, "a) R (b", state="D")
    stat = read_stat(tmp_path, 3)
    assert stat is not None and (stat.comm, stat.state, stat.started, stat.rss) == (b"a) R (b", "D", 5, 3 * processes.PAGE)


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_any_command_line_has_a_printable_name(cmdline: bytes, comm: bytes) -> None:
    name = title(cmdline, comm)
    assert name.isprintable() and len(name) <= 200
