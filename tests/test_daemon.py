"""The daemon in this process: what systemd hears of it, and that nothing of ours holds it up."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from watchdog import config, people, regular
from watchdog import daemon as module
from watchdog.asking import NAME
from watchdog.clock import BootClock
from watchdog.daemon import Daemon
from watchdog.judge.ledger import Ledger, Ordered
from watchdog.observation import Gpu, GpuDevice, GpuProc, Log, Observation, Self
from watchdog.server import owned
from watchdog.single import TakenError
from watchdog.state import Saved, StateFile, UnderWay
from watchdog.view import server_view

# dbus-fast leaves the socket of a connection that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")

TEXT = """[daemon]
tick_s = 0.5
[sources]
gpu = "off"
deps = []
[[servers]]
name = "a"
unit = "no-such-a.service"
base_url = "http://127.0.0.1:9"
[[servers]]
name = "b"
unit = "no-such-b.service"
base_url = "http://127.0.0.2:9"
"""


class Made:
    """A daemon at work, and the messages that it sends to systemd."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self.file = folder / "config.toml"
        self.file.write_text(TEXT)
        self.listener = listener
        self.heard: list[dict[str, str]] = []
        self.daemon = Daemon(config.load(self.file), self.file)
        self.task: asyncio.Task[None] | None = None

    def listen(self) -> list[dict[str, str]]:
        """All that systemd has heard so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self.listener.recv(8192).decode()
                self.heard.append(dict(line.split("=", 1) for line in message.splitlines()))
        return self.heard

    def said(self, name: str) -> list[str]:
        return [m[name] for m in self.listen() if name in m]

    async def until(self, true: Callable[[], Any], limit_s: float = 10) -> None:
        async with asyncio.timeout(limit_s):
            while not true():
                assert self.task is None or not self.task.done(), "the daemon has ended"
                await asyncio.sleep(0.02)

    async def stopped(self) -> float:
        """Send it SIGTERM; seconds until it has ended."""
        assert self.task is not None
        begun = asyncio.get_running_loop().time()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await self.task
        return asyncio.get_running_loop().time() - begun


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Made]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
        monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
        # No bus: what is asked of systemd stays unknown, and nothing may hang on that.
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/no-bus")
        one = Made(tmp_path, listener)
        one.task = asyncio.create_task(one.daemon.run())
        yield one
        if not one.task.done():
            await one.stopped()
        del one
        gc.collect()  # here, where what it finds is expected


class Disk:
    """The disk of the state directory, which answers when `well` is set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.well = threading.Event()
        self.folder = folder
        self.read = regular.read
        monkeypatch.setattr(regular, "read", self._read)

    def _read(self, path: Path, cap: int) -> bytes:
        if path.is_relative_to(self.folder):
            self.well.wait(60)
        return self.read(path, cap)


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(module, "RECALL_LIMIT_S", 0.2)
    monkeypatch.setattr(people, "READ_LIMIT_S", 0.2)
    monkeypatch.setattr(module, "READ_LIMIT_S", 0.2)
    disk = Disk(tmp_path / "state", monkeypatch)
    yield disk
    disk.well.set()


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The state file of a server of which two restarts and a pause are remembered."""
    path, clock = tmp_path / "state" / "a" / "state.json", BootClock()
    restarts = [Ordered(t=clock.now() - 60.0 * n, reason="SchedulerHung") for n in (2, 1)]
    saved = Saved(ledger=Ledger(restarts=restarts), paused=True, pause_reason="by hand")
    file = StateFile(path, clock)
    file.write(file.encode(saved))
    return path


def content(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_disk_that_does_not_answer_at_the_start_is_not_waited_for(kept: Path, hung: Disk, made: Made) -> None:
    before = content(kept)
    await made.until(lambda: made.said("WATCHDOG"))
    a = made.daemon.servers["a"]
    for server in made.daemon.servers.values():
        assert "state.json, which cannot be read yet" in str(server.watch.unread)
        await server.responder.save()
        assert server.responder.trouble == server.watch.unread
    assert server_view(a.watch)["stand_down"] == a.watch.unread
    assert content(kept) == before, "what was not read is not overwritten"
    hung.well.set()
    await made.until(lambda: a.watch.unread is None)
    assert [r.reason for r in a.watch.engine.ledger.restarts] == ["SchedulerHung", "SchedulerHung"]
    assert a.watch.engine.facts.paused(a.watch.clock.now())
    await made.until(lambda: content(kept) != before)
    again, trouble = StateFile(kept, BootClock()).load()
    assert (len(again.ledger.restarts), again.pause_reason, trouble) == (2, "by hand", None)


async def test_a_state_that_was_never_read_is_left_as_it_is(kept: Path, hung: Disk, made: Made) -> None:
    before = content(kept)
    await made.until(lambda: made.said("READY"))
    assert await made.stopped() < 5
    assert content(kept) == before


async def test_a_disk_that_does_not_answer_stops_no_tick_on_a_reload(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made.until(lambda: made.said("READY"))
    disk = Disk(tmp_path, monkeypatch)
    made.file.write_text(TEXT.replace('name = "b"', 'name = "c"'))
    monkeypatch.setattr(module, "RECALL_LIMIT_S", 0.2)
    monkeypatch.setattr(people, "READ_LIMIT_S", 0.2)
    longest, loop = 0.0, asyncio.get_running_loop()
    reloading = asyncio.create_task(made.daemon.reload())
    while not reloading.done():
        begun = loop.time()
        await asyncio.sleep(0.01)
        longest = max(longest, loop.time() - begun)
    assert await reloading is None
    assert longest < 0.5
    assert made.daemon.servers["c"].watch.unread is not None
    disk.well.set()
    await made.until(lambda: made.daemon.servers["c"].watch.unread is None)


async def test_a_configuration_that_cannot_be_read_in_time_is_kept_out(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    monkeypatch.setattr(module, "READ_LIMIT_S", 0.1)
    free = threading.Event()
    monkeypatch.setattr(config, "load", lambda _path: free.wait(30))
    for _ in range(2):  # the second one finds the first still waiting
        refused = await made.daemon.reload()
        assert refused is not None
        assert refused.endswith("cannot be read, since its disk does not answer; look at it, or at what mounts it")
    free.set()


async def test_ready_then_status_and_signs_of_life_then_stopping(made: Made) -> None:
    await made.until(lambda: made.said("WATCHDOG"))
    assert list(made.heard[0]) == ["READY", "STATUS"]
    assert await made.stopped() < 5
    assert made.said("STOPPING") == ["1"]
    assert "READY" not in made.heard[-1]


async def test_a_reload_is_told_in_its_order_good_or_bad(made: Made) -> None:
    await made.until(lambda: made.said("READY"))
    watch = made.daemon.servers["a"].watch
    made.file.write_text(TEXT.replace("tick_s = 0.5", "tick_s = 1000"))
    os.kill(os.getpid(), signal.SIGHUP)
    await made.until(lambda: len(made.said("READY")) == 2)
    assert made.daemon.whole.daemon.tick_s == 0.5, "a bad one is kept out"
    made.file.write_text(TEXT.replace('name = "b"', 'name = "c"').replace("tick_s = 0.5", "tick_s = 0.7"))
    os.kill(os.getpid(), signal.SIGHUP)
    await made.until(lambda: len(made.said("READY")) == 3)
    order = [m for m in made.heard if "RELOADING" in m or "READY" in m]
    assert ["RELOADING" in m for m in order] == [False, True, False, True, False]
    assert all("MONOTONIC_USEC" in m for m in order if "RELOADING" in m)
    assert sorted(made.daemon.servers) == ["a", "c"]
    assert made.daemon.servers["a"].watch is watch, "what was known stays known"
    assert made.daemon.whole.daemon.tick_s == 0.7


async def test_a_refused_reload_is_seen_until_a_good_one(made: Made) -> None:
    await made.until(lambda: made.said("READY"))
    assert made.daemon.roster.describe()["reload_refused"] is None
    assert b"sglang_watchdog_config_reload_ok 1" in made.daemon._metrics()
    made.file.write_text("nonsense")
    assert await made.daemon.reload() is not None
    assert "config.toml" in made.daemon.roster.describe()["reload_refused"]
    assert b"sglang_watchdog_config_reload_ok 0" in made.daemon._metrics()
    assert made.said("STATUS")[-1].startswith("the last reload was refused; a: ")
    made.file.write_text(TEXT)
    assert await made.daemon.reload() is None
    assert made.daemon.roster.describe()["reload_refused"] is None
    assert "refused" not in made.said("STATUS")[-1]


async def test_a_second_daemon_beside_it_is_turned_away(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    monkeypatch.setattr(module, "TAKEN_S", 0.0)
    second = Daemon(config.load(made.file), made.file)
    with pytest.raises(TakenError):
        await second.run()
    assert (made.daemon.runtime_dir / NAME).is_socket()
    made.daemon._stop.set()  # the second one has taken the signals
    assert made.task is not None
    await made.task
    assert not (made.daemon.runtime_dir / NAME).exists()


async def test_its_socket_is_made_anew(made: Made) -> None:
    await made.until(lambda: made.said("READY"))
    path = made.daemon.runtime_dir / NAME
    path.unlink()
    await made.until(path.exists)
    await made.stopped()
    assert not path.exists()


async def test_many_reloads_at_once_are_done_one_by_one(made: Made) -> None:
    await made.until(lambda: made.said("READY"))
    assert await asyncio.gather(*(made.daemon.reload() for _ in range(3))) == [None] * 3
    order = ["RELOADING" in m for m in made.listen() if "RELOADING" in m or "READY" in m]
    assert order == [False, *[True, False] * 3]
    assert all(len([t for t in asyncio.all_tasks() if t.get_name() == f"sources of {n}"]) == 1 for n in "ab")


async def test_a_stop_breaks_a_reload_off(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    begun, over = asyncio.Event(), []

    async def take_up(_: config.Config) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            over.append("broken off")

    monkeypatch.setattr(made.daemon, "_take_up", take_up)
    asked = asyncio.create_task(made.daemon.requests.answer({"command": "reload"}))
    await begun.wait()
    os.kill(os.getpid(), signal.SIGHUP)  # a second one, which waits for the first
    await made.until(lambda: not made.daemon._reload.is_set())
    assert await made.stopped() < 5
    assert (over, asked.done()) == (["broken off"], True)
    assert "STOPPING" in made.listen()[-1]


async def test_on_a_reload_servers_that_stay_wait_for_no_disk_of_those_that_go(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made.until(lambda: made.said("READY"))
    saving, answers = asyncio.Event(), asyncio.Event()

    async def save() -> None:
        saving.set()
        await answers.wait()

    a, b = made.daemon.servers["a"], made.daemon.servers["b"]
    before = a.task
    monkeypatch.setattr(b.responder, "save", save)
    made.file.write_text(TEXT.replace('name = "b"', 'name = "c"'))
    reloading = asyncio.create_task(made.daemon.reload())
    async with asyncio.timeout(10):
        await saving.wait()
    assert a.task is not before, "it is observed again"
    assert not reloading.done()
    answers.set()
    assert await reloading is None


async def test_another_unit_under_the_same_name_takes_up_nothing_of_the_one_before(made: Made) -> None:
    await made.until(lambda: made.said("READY"))
    before = made.daemon.servers["a"].watch
    before.engine.ledger.restarts.append(Ordered(t=0.0, reason="SchedulerHung"))
    before.saved.under_way = UnderWay(t=0.0, reason="SchedulerHung", inv="1" * 32, stage="recovery")
    made.file.write_text(TEXT.replace("no-such-a.service", "no-such-other.service"))
    assert await made.daemon.reload() is None
    watch = made.daemon.servers["a"].watch
    assert (watch.server.unit, watch.engine.ledger.restarts, watch.saved.under_way) == ("no-such-other.service", [], None)


async def test_a_source_that_does_not_end_does_not_hold_up_the_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    free = asyncio.Event()

    async def stubborn() -> None:
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()

    assert made.daemon._tasks is not None
    stuck = made.daemon._tasks.create_task(stubborn(), name="stubborn")
    assert await made.stopped() < 5
    assert not stuck.done()
    free.set()
    await stuck


async def test_a_fault_of_its_own_loops_ends_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    monkeypatch.setattr(made.daemon.roster, "sentence", lambda: 1 / 0)
    assert made.task is not None
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(10):
            await made.task
    assert made.said("STOPPING") == ["1"]


async def test_no_sign_of_life_while_a_mandatory_source_is_silent(made: Made) -> None:
    await made.until(lambda: made.said("WATCHDOG"))
    run = next(r for r in made.daemon.servers["a"].runs if r.source.mandatory)
    run.beat = lambda: None  # type: ignore[method-assign]
    run.beat_at = -1e6
    run._rests = False
    assert not made.daemon.roster.alive()


async def test_a_gap_is_told_before_what_fell_due_in_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    server = made.daemon.servers["a"]
    taken: list[Observation] = []
    monkeypatch.setattr(server.watch, "take", taken.append)
    now = made.daemon.clock.now()
    made.daemon._ticked_at = now - 60.0
    made.daemon._taker(server)(Log(t=now, message="late"))
    first, second = taken[:2]
    assert isinstance(first, Self)
    assert first.paused_s == pytest.approx(59.0)
    assert first.t <= second.t
    assert isinstance(second, Log)


async def test_each_server_hears_only_what_concerns_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    await made.until(lambda: made.said("READY"))
    taken: dict[str, list[Observation]] = {"a": [], "b": []}
    for name, server in made.daemon.servers.items():
        monkeypatch.setattr(server.watch, "take", taken[name].append)
    made.daemon.servers["a"].may_restart, made.daemon.servers["b"].may_restart = False, True
    made.daemon._fan_out(Self(t=made.daemon.clock.now()))
    told = {name: [x.may_restart for x in got if isinstance(x, Self)][-1] for name, got in taken.items()}
    assert told == {"a": False, "b": True}


async def test_a_bus_that_is_away_is_news_only_after_a_while(made: Made) -> None:
    await made.until(lambda: made.said("READY"))
    assert made.daemon._bus_ok() is None
    made.daemon._bus_seen_at -= module.BUS_PATIENCE_S
    assert made.daemon._bus_ok() is False


def test_processes_on_a_gpu_are_told_apart() -> None:
    ours = "/system.slice/kimi.service"
    cgroups = {7: f"1:name=systemd:{ours}\n0::{ours}/ranks\n".encode()}
    seen = Gpu(t=0.0, ok=True, gpus=[GpuDevice(index=0, procs=[GpuProc(pid=7, mem=1), GpuProc(pid=8, mem=1)])])
    for own, others, want in ((ours, [], True), ("/elsewhere", [ours, ""], None), ("/elsewhere", [""], False), ("", [], False)):
        (device,) = owned(seen, own, others, cgroups).gpus
        assert device.procs is not None
        assert [p.in_unit for p in device.procs] == [want, None], (own, others)
