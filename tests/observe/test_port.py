import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observe.hosts import UNIT, fill, mount, proc
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Port
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.port import PortSource, address, sockets
from watchdog.observe.source import Target

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(number: int, local: str, state: str, uid: int = 1000, inode: int = 555) -> str:
    queues = "00000000:00000000 00:00000000 00000000"
    return f"{number:4}: {local} 00000000:0000 {state} {queues} {uid:5}        0 {inode} 1 0 100 0 0 10 0\n"


def made(tmp_path: Path, tcp: str = "", tcp6: str = "", pids: str = "", port: int = 30000) -> tuple[PortSource, Target, Path]:
    root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
    fill(root / "net", {"tcp": HEAD + tcp, "tcp6": HEAD + tcp6})
    fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": pids})
    target = Target(config.Server(name="kimi", unit="sglang-kimi.service", base_url=f"http://127.0.0.1:{port}"))
    target.inv, target.cgroup, target.active, target.known = "a1", UNIT, True, True
    return PortSource(target, BootClock(), Cgroups(root), root), target, root


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def test_a_real_listener_of_the_unit(tmp_path: Path, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    _, target, _ = made(tmp_path, pids=f"{os.getpid()}\n", port=port)
    target.main_pid = os.getpid()
    looking = PortSource(target, BootClock(), Cgroups(tmp_path / "proc"))

    with socket.create_connection(("127.0.0.1", port)):
        seen = await looking.look()

    assert seen is not None
    assert seen == Port(
        t=seen.t, inv="a1", listening=True, address=f"127.0.0.1:{port}", pid=os.getpid(), in_unit=True, established=1
    )


@pytest.fixture
def stranger() -> Iterator[tuple[int, int]]:
    """The pid and the port of another process that listens."""
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate("\n")


async def test_a_real_stranger(tmp_path: Path, stranger: tuple[int, int]) -> None:
    pid, port = stranger
    _, target, _ = made(tmp_path, pids=f"{os.getpid()}\n", port=port)
    seen = await PortSource(target, BootClock(), Cgroups(tmp_path / "proc")).look()
    assert seen is not None
    assert (seen.listening, seen.address, seen.pid, seen.in_unit) == (True, f"0.0.0.0:{port}", pid, False)


async def test_nobody_listens(tmp_path: Path) -> None:
    looking, _, _ = made(tmp_path, tcp=row(0, "0100007F:7531", "0A"))
    seen = await looking.look()
    assert seen is not None
    assert (seen.listening, seen.address, seen.pid, seen.in_unit, seen.established) == (False, "127.0.0.1:30000", None, None, 0)


async def test_tables_that_cannot_be_read_tell_nothing(tmp_path: Path) -> None:
    looking, _, root = made(tmp_path)
    (root / "net/tcp").unlink()
    (root / "net/tcp6").unlink()
    seen = await looking.look()
    assert seen is not None and seen.listening is None and seen.established is None


async def test_a_holder_out_of_sight_is_unknown_unless_it_must_be_a_stranger(tmp_path: Path) -> None:
    looking, _, root = made(tmp_path, tcp=row(0, "00000000:7530", "0A", uid=1000))
    procs = tmp_path / "cg" / UNIT[1:] / "cgroup.procs"

    async def in_unit() -> bool | None:
        seen = await looking.look()
        assert seen is not None and seen.listening and seen.pid is None
        return seen.in_unit

    assert await in_unit() is False  # the unit has no process
    procs.write_text("40\n")
    assert await in_unit() is False  # the same socket as before the unit started
    (root / "net/tcp").write_text(HEAD + row(0, "00000000:7530", "0A", uid=1000, inode=777))
    assert await in_unit() is None  # the unit's process cannot be read
    fill(root / "40", {"status": "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n"})
    assert await in_unit() is None  # the same user: it may be the server
    fill(root / "40", {"status": "Name:\tpython3\nUid:\t64\t64\t64\t64\n"})
    assert await in_unit() is False  # no process of the unit has this user


def test_addresses() -> None:
    everything = "00000000000000000000000000000000:7530"
    mapped = "0000000000000000FFFF00000100007F:7530"
    table = "".join(
        (
            row(0, "0100007F:7530", "0A", inode=1),
            row(1, "00000000:7530", "0A", inode=2),
            row(2, "0200000A:7530", "0A", inode=3),
            row(3, "0100007F:7530", "01", inode=4),
            row(4, "0100007F:7530", "06", inode=0),
        )
    )
    table6 = row(0, everything, "0A", inode=5) + row(1, mapped, "01", inode=6)

    listeners, established = sockets([table.encode(), table6.encode()], "127.0.0.1", 30000)

    assert [(each.host, each.inode) for each in listeners] == [("127.0.0.1", 1), ("0.0.0.0", 2), ("::", 5)]
    assert established == 2
    assert [each.inode for each in sockets([table.encode()], "localhost", 30000)[0]] == [1, 3, 2]


def test_base_addresses() -> None:
    assert address("http://127.0.0.1:30000") == ("127.0.0.1", 30000)
    assert address("https://[::1]") == ("::1", 443)


@given(st.binary(max_size=500))
def test_garbage_is_survived(garbage: bytes) -> None:
    sockets([garbage, HEAD.encode() + garbage], "127.0.0.1", 30000)


async def test_it_looks_at_each_start_and_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, target, _ = made(tmp_path)
    seen: list[Port] = []
    task = asyncio.create_task(looking.run(seen.append, lambda: None))  # type: ignore[arg-type]
    try:
        await asyncio.sleep(0.3)
        assert len(seen) == 1
        target.inv = "b2"
        target.tell()
        await asyncio.sleep(0.3)
        assert [each.inv for each in seen] == ["a1", "b2"]
        looking.look_now()
        await asyncio.sleep(0.3)
        assert len(seen) == 3
        monkeypatch.setattr("watchdog.observe.port.STARTING_INTERVAL_S", 0.05)
        target.inv, target.hold = "c3", "starting"
        target.tell()
        await asyncio.sleep(0.4)
        assert len(seen) >= 5
        monkeypatch.setattr("watchdog.observe.port.STARTING_INTERVAL_S", 3600.0)
        await asyncio.sleep(0.2)
        before = len(seen)
        target.hold = None  # it is ready: what was seen before is out of date
        target.tell()
        await asyncio.sleep(0.3)
        assert len(seen) == before + 1
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_ran_before_us_is_no_stranger(tmp_path: Path) -> None:
    """Its socket belongs to another user, so only the unit's processes tell that it is its own: these are not known at first."""
    looking, target, root = made(tmp_path, tcp=row(0, "0100007F:7530", "0A", uid=4321), pids="41\n")
    fill(root / "41", {"status": "Name:\tpython\nUid:\t4321\t4321\t4321\t4321\n"})
    target.inv, target.cgroup, target.active, target.known = None, "", False, False
    seen: list[Port] = []
    task = asyncio.create_task(looking.run(seen.append, lambda: None))  # type: ignore[arg-type]
    try:
        looking.look_now()
        await asyncio.sleep(0.2)
        assert seen == []
        target.inv, target.cgroup, target.active, target.known = "a1", UNIT, True, True
        target.tell()
        await asyncio.sleep(0.2)
        assert [each.in_unit for each in seen] == [None]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
