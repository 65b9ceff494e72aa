"""One daemon at a time: on a state directory by a lock, on a runtime directory by its socket, which nobody else takes away."""

import asyncio
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from watchdog import control, single
from watchdog.asking import NAME, ask
from watchdog.cli.exits import TAKEN
from watchdog.control import Control
from watchdog.single import TakenError, Unlocked, alone, dying, hold, listener

HOLDS = """
import pathlib, sys
from watchdog.single import hold
hold(pathlib.Path(sys.argv[1]))
print("held", flush=True)
input()
"""


@pytest.fixture
def short() -> Iterator[Path]:
    # The address of a socket may have 107 bytes (unix(7)); the folder of a test can be longer than that.
    with TemporaryDirectory(prefix="single-") as folder:
        yield Path(folder)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []

    def say(event: str, message: str) -> None:
        heard.append((event, message))

    log = SimpleNamespace(error=say, warning=say)
    monkeypatch.setattr(control, "get", lambda: log)
    monkeypatch.setattr(single, "get", lambda: log)
    return heard


async def answer(_: dict[str, Any]) -> dict[str, Any]:
    return {"who": "first"}


async def other(_: dict[str, Any]) -> dict[str, Any]:
    return {"who": "second"}


async def claim(folder: Path, patience_s: float = 0.0, stop: asyncio.Event | None = None) -> int | None:
    return await alone(folder, lambda: None, patience_s, stop or asyncio.Event(), lambda _: None)


# ---- the state directory


def test_the_holder_is_named_and_any_death_of_it_releases_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path / "state"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(TakenError, match=rf"\(PID {first.pid}\) has .*state/\.lock: stop one of the two .*kill {first.pid}"):
            hold(tmp_path / "state")
        first.send_signal(signal.SIGKILL)
        first.wait()
        os.close(hold(tmp_path / "state"))


def test_who_may_only_read_the_file_is_kept_out_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hold(tmp_path)
    opened = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(TakenError):
        hold(tmp_path)
    os.close(held)
    os.close(hold(tmp_path))


def test_the_lock_file_can_be_read_by_a_daemon_of_another_user(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        os.close(hold(tmp_path))
    finally:
        os.umask(before)
    assert (tmp_path / single.NAME).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("why", [errno.EROFS, errno.ENOSPC, errno.EACCES])
async def test_a_disk_that_takes_no_file_is_told_and_the_daemon_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[tuple[str, str]], why: int
) -> None:
    def refused(*_: object) -> int:
        raise OSError(why, os.strerror(why))

    monkeypatch.setattr(single, "_opened", refused)
    assert await claim(tmp_path) is None
    [(event, message)] = said
    assert event == "lock-lost"
    assert os.strerror(why) in message
    assert "a second daemon beside this one would not be noticed" in message


async def test_a_file_system_without_locks_or_without_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[tuple[str, str]]
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert await claim(tmp_path) is None
    monkeypatch.setattr(single, "LOCK_LIMIT_S", 0.0)
    assert await claim(tmp_path) is None
    assert ["its file system has no locks" in said[0][1], "does not answer" in said[1][1]] == [True, True]


def test_a_process_that_was_killed_and_cannot_end_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hold(tmp_path)
    monkeypatch.setattr(single, "dying", lambda pid: pid == os.getpid())
    with pytest.raises(Unlocked, match=f"PID {os.getpid()} was killed and cannot end"):
        hold(tmp_path)
    os.close(held)


def test_who_is_dying() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        assert not dying(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert dying(child.pid)
    assert not dying(child.pid), "it is gone, and holds nothing"
    assert not dying(os.getpid())


async def test_a_service_waits_for_the_other_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(single, "AGAIN_S", 0.01)
    held, waits = hold(tmp_path), []

    def waiting(status: str) -> None:
        waits.append(status)
        if len(waits) == 3:
            os.close(held)

    fd = await alone(tmp_path, lambda: None, 5.0, asyncio.Event(), waiting)
    assert fd is not None
    os.close(fd)
    assert [event for event, _ in said] == ["start-refused"], "said once"
    assert waits[0].startswith("waits: another sglang-watchdog")


async def test_by_hand_it_refuses_at_once_and_who_is_told_to_end_waits_no_longer(
    tmp_path: Path, said: list[tuple[str, str]]
) -> None:
    held = hold(tmp_path)
    with pytest.raises(TakenError):
        await claim(tmp_path)
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(TakenError):
        await claim(tmp_path, 60.0, stop)
    assert [event for event, _ in said] == ["start-refused"] * 2
    os.close(held)


# ---- the runtime directory


async def test_a_socket_that_is_alive_is_neither_removed_nor_replaced(short: Path, said: list[tuple[str, str]]) -> None:
    async with Control(short, answer):
        second = Control(short, other)
        with pytest.raises(TakenError, match=rf"\(PID {os.getpid()}\) has {short / NAME}"):
            second.check()
        async with second:
            assert await asyncio.to_thread(ask, short, {}) == {"who": "first"}
        assert await asyncio.to_thread(ask, short, {}) == {"who": "first"}, "its end takes nobody else's socket along"
    assert [event for event, _ in said] == ["control-lost"]
    assert not (short / NAME).exists()


def test_a_listener_whose_queue_is_full_is_alive(short: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as caller:
        busy.bind(str(short / NAME))
        busy.listen(0)
        caller.connect(str(short / NAME))
        assert listener(short / NAME) == (True, None)


def test_a_listener_that_was_killed_and_cannot_end_is_none(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "dying", lambda _: True)
    with socket.socket(socket.AF_UNIX) as wedged:
        wedged.bind(str(short / NAME))
        wedged.listen()
        assert listener(short / NAME) == (False, None)
        Control(short, answer).check()


async def test_a_socket_that_is_lost_is_made_anew(short: Path, said: list[tuple[str, str]]) -> None:
    folder = short / "run"
    async with Control(folder, answer) as one:
        await one.look()
        assert not said
        (folder / NAME).unlink()
        await one.look()
        assert await asyncio.to_thread(ask, folder, {}) == {"who": "first"}
        (folder / NAME).unlink()
        folder.rmdir()
        await one.look()
        assert await asyncio.to_thread(ask, folder, {}) == {"who": "first"}
    assert [event for event, _ in said] == ["control-made"] * 2


async def test_where_it_cannot_be_made_anew_it_is_told_once_and_tried_again(short: Path, said: list[tuple[str, str]]) -> None:
    folder = short / "run"
    async with Control(folder, answer) as one:
        (folder / NAME).unlink()
        folder.rmdir()
        folder.write_text("in the way")
        for _ in range(3):
            await one.look()
        assert [event for event, _ in said] == ["control-lost"]
        folder.unlink()
        await one.look()
        assert await asyncio.to_thread(ask, folder, {}) == {"who": "first"}
    assert [event for event, _ in said] == ["control-lost", "control-made"]


async def test_a_socket_that_another_put_in_our_place_stays_while_it_lives(short: Path, said: list[tuple[str, str]]) -> None:
    async with Control(short, answer) as one:
        (short / NAME).unlink()
        async with Control(short, other):
            await one.look()
            await one.look()
            assert await asyncio.to_thread(ask, short, {}) == {"who": "second"}
        await one.look()
        assert await asyncio.to_thread(ask, short, {}) == {"who": "first"}
    assert [event for event, _ in said] == ["control-lost", "control-made"]


# ---- the command

CONFIG = """[daemon]
state_dir = "{state}"
runtime_dir = "{run}"
[sources]
gpu = "off"
deps = []
[[servers]]
name = "a"
unit = "no-such-a.service"
base_url = "http://127.0.0.1:9"
"""


@pytest.mark.parametrize("shared", ["state", "run"])
async def test_a_second_daemon_by_hand_says_one_line_and_has_its_own_exit_status(short: Path, shared: str) -> None:
    state, run = short / "state", short / "run"
    config = short / "config.toml"
    config.write_text(
        CONFIG.format(
            state=state if shared == "state" else short / "state-of-its-own",
            run=run if shared == "run" else short / "run-of-its-own",
        )
    )
    environ = {"PATH": "/usr/bin:/bin", "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={short}/no-bus"}
    held = hold(state)
    async with Control(run, answer):
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "watchdog", "run", "--config", str(config)), env=environ, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(30):
            _, told = await second.communicate()
        assert await asyncio.to_thread(ask, run, {}) == {"who": "first"}
    os.close(held)
    assert second.returncode == TAKEN
    [line] = told.decode().splitlines()
    assert f"another sglang-watchdog (PID {os.getpid()}) has {short / shared}" in line
