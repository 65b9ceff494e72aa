"""The unit, its jobs and restarts of it, against a real systemd, dbus-daemon and polkit."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.box.box import Box
from watchdog import config
from watchdog.act.attempt import Terms
from watchdog.act.restart import restart, see_through
from watchdog.clock import BootClock
from watchdog.observation import Deps, Job, Observation, Unit
from watchdog.observe.deps import DepsSource
from watchdog.observe.source import Target
from watchdog.observe.unit import UnitSource
from watchdog.systemd import Bus, JobConflictError, running

QUIET = "[Service]\nExecStart=/bin/sleep infinity\n"
STUBBORN = """[Service]
ExecStart=/bin/sh -c 'trap "" TERM; sleep infinity & while :; do sleep 0.2; done'
TimeoutStopSec=infinity
"""


@pytest.fixture
async def bus(box: Box) -> AsyncIterator[Bus]:
    pid = (box.dir / "pid").read_text().strip()
    async with running(Bus(f"unix:path=/proc/{pid}/root/run/dbus/system_bus_socket")) as bus:
        assert await bus.until_connected(10)
        yield bus


class Watched:
    """A UnitSource at work, and what it told."""

    def __init__(self, box: Box, unit: str, bus: Bus) -> None:
        self.box = box
        self.unit = unit
        self.clock = BootClock()
        self.target = Target(config.Server(name="box", unit=unit))
        self.source = UnitSource(self.target, self.clock, bus)
        self.told: list[Observation] = []
        self.last = Unit(t=0.0)

    def emit(self, observation: Observation) -> None:
        self.told.append(observation)
        if isinstance(observation, Unit):
            self.last = observation

    async def systemctl(self, *args: str, check: bool = True) -> None:
        await asyncio.to_thread(self.box.run, "systemctl", *args, check=check)

    async def until(self, what: Callable[[], object], limit_s: float = 10.0) -> None:
        async with asyncio.timeout(limit_s):
            while not what():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def state(self) -> tuple[str | None, str | None]:
        return self.last.active_state, self.last.sub_state

    def jobs(self) -> list[tuple[str, str, str | None, bool, bool]]:
        return [(o.phase, o.job, o.result, o.mine, o.auto) for o in self.told if isinstance(o, Job)]


@contextlib.asynccontextmanager
async def watched(box: Box, bus: Bus, unit: str, text: str | None) -> AsyncIterator[Watched]:
    if text is not None:
        await asyncio.to_thread(box.unit, unit, text)
    w = Watched(box, unit, bus)
    task = asyncio.create_task(w.source.run(w.emit, lambda: None))
    try:
        await w.until(lambda: w.told)
        yield w
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await w.systemctl("stop", "--no-block", unit, check=False)
        await w.systemctl("kill", "-s", "KILL", unit, check=False)


async def test_a_life_is_seen_from_start_to_stop(box: Box, bus: Bus) -> None:
    text = QUIET + "Restart=always\nRestartSec=0.2\nTimeoutStartSec=infinity\nTimeoutStopSec=7\n"
    async with watched(box, bus, "life.service", text) as w:
        first = w.last
        assert (first.load_state, first.active_state, first.main_pid, first.inv) == ("loaded", "inactive", None, None)
        assert (first.restart, first.timeout_start_s, first.timeout_stop_s, first.watchdog_s) == ("always", None, 7.0, 0.0)
        assert (first.start_limit_burst, first.start_limit_interval_s) == (5, 10.0)

        before = w.clock.now()
        await w.systemctl("start", w.unit)
        await w.until(lambda: w.state() == ("active", "running"))
        assert w.jobs() == [("new", "start", None, False, False), ("removed", "start", "done", False, False)]
        assert w.target.inv == w.last.inv == box.show(w.unit, "InvocationID")
        assert w.target.main_pid == w.last.main_pid == int(box.show(w.unit, "MainPID"))
        assert w.target.cgroup == "/system.slice/life.service"
        assert w.target.active
        assert w.last.since is not None
        assert before <= w.last.since <= w.last.t

        life = w.target.inv
        w.told.clear()
        await w.systemctl("restart", w.unit)
        await w.until(lambda: w.target.inv != life and len(w.jobs()) == 2)
        assert w.jobs() == [("new", "restart", None, False, False), ("removed", "restart", "done", False, False)]

        life = w.target.inv
        w.told.clear()
        await w.systemctl("kill", "--kill-who=main", "-s", "SEGV", w.unit)
        await w.until(lambda: w.target.inv != life and len(w.jobs()) == 2)
        died = next(o for o in w.told if isinstance(o, Unit) and o.sub_state == "auto-restart")
        assert (died.exec_main_code, died.exec_main_status, died.main_pid) in [("killed", 11, None), ("dumped", 11, None)]
        assert died.inv == life
        assert w.jobs() == [("new", "restart", None, False, True), ("removed", "restart", "done", False, True)]
        assert w.last.n_restarts == 1

        life = w.target.inv
        w.told.clear()
        await w.systemctl("stop", w.unit)
        await w.until(lambda: w.state() == ("inactive", "dead") and len(w.jobs()) == 2)
        assert w.jobs() == [("new", "stop", None, False, False), ("removed", "stop", "done", False, False)]
        assert (w.target.inv, w.target.main_pid, w.target.active) == (life, None, False)


async def test_an_operators_restart_during_the_wait_of_systemds_own_is_not_auto(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "waits.service", QUIET + "Restart=always\nRestartSec=30\n") as w:
        await w.systemctl("start", w.unit)
        await w.systemctl("kill", "-s", "KILL", w.unit)
        await w.until(lambda: w.state() == ("activating", "auto-restart"))
        refused = await restart(bus, w.unit, w.clock, Terms(stop_s=30))
        assert (refused.result, refused.stand_down) == ("refused", True)
        assert "about to restart it itself" in refused.message
        w.told.clear()
        await w.systemctl("restart", w.unit)
        await w.until(lambda: w.state() == ("active", "running") and len(w.jobs()) == 2)
        assert [(auto, mine) for *_, mine, auto in w.jobs()] == [(False, False)] * 2


async def test_a_missing_unit_is_an_observation_and_seen_when_it_comes(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "later.service", None) as w:
        assert (w.last.load_state, w.last.active_state) == ("not-found", "inactive")
        outcome = await restart(bus, w.unit, w.clock, Terms(stop_s=30))
        assert (outcome.result, outcome.stand_down) == ("refused", False)
        assert "not-found" in outcome.message
        await asyncio.to_thread(box.unit, w.unit, QUIET)
        await w.until(lambda: w.last.load_state == "loaded")
        await w.systemctl("start", w.unit)
        await w.until(lambda: w.state() == ("active", "running"))
        life = w.target.inv
        await w.systemctl("stop", w.unit)
        await w.systemctl("reset-failed")  # systemd may now forget the unit
        await w.until(lambda: w.state() == ("inactive", "dead"))
        assert w.target.inv == life


async def test_our_restart_is_ours_and_verified_by_a_new_life(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "ours.service", QUIET) as w:
        await w.systemctl("start", w.unit)
        await w.until(lambda: w.target.inv)
        life, begun = w.target.inv, []
        outcome = await restart(bus, w.unit, w.clock, Terms(stop_s=30), inv=life, begun=begun.append)
        assert (outcome.result, outcome.killed, outcome.stand_down) == ("done", False, False)
        assert outcome.inv == box.show(w.unit, "InvocationID") != life
        assert outcome.stop_s is not None
        assert 0 <= outcome.stop_s < 5
        assert outcome.start_s is not None
        assert "stopped in" in outcome.message
        await w.until(
            lambda: w.jobs()[-2:] == [("new", "restart", None, True, False), ("removed", "restart", "done", True, False)]
        )
        assert begun[0].startswith("/org/freedesktop/systemd1/job/")
        again = await restart(bus, w.unit, w.clock, Terms(stop_s=30), inv=life)
        assert again.result == "refused"
        assert "new life" in again.message


async def test_the_start_limit_does_not_leave_the_server_down(box: Box, bus: Bus) -> None:
    text = "[Unit]\nStartLimitBurst=3\nStartLimitIntervalSec=1h\n" + QUIET
    async with watched(box, bus, "limited.service", text) as w:
        await w.systemctl("start", w.unit)
        for _ in range(4):
            outcome = await restart(bus, w.unit, w.clock, Terms(stop_s=30))
            assert outcome.result == "done", outcome.message
        assert box.show(w.unit, "ActiveState") == "active"


async def test_a_failing_start_is_told_with_systemds_word(box: Box, bus: Bus) -> None:
    text = "[Service]\nType=exec\nExecStart=/bin/sleep infinity\nExecStartPre=/bin/sh -c '! test -e /run/broken'\n"
    async with watched(box, bus, "breaks.service", text) as w:
        await w.systemctl("start", w.unit)
        box.write("/run/broken", "")
        outcome = await restart(bus, w.unit, w.clock, Terms(stop_s=30))
        assert (outcome.result, outcome.stand_down) == ("failed", False)
        assert "exit-code" in outcome.message


async def test_what_a_person_stopped_stays_stopped(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "stopped.service", QUIET) as w:
        await w.systemctl("start", w.unit)
        await w.systemctl("stop", w.unit)
        outcome = await restart(bus, w.unit, w.clock, Terms(stop_s=30))
        assert (outcome.result, outcome.stand_down) == ("refused", True)
        assert "stopped by somebody" in outcome.message
        assert box.show(w.unit, "ActiveState") == "inactive"
        # …but a crash with status 0 looks the same to systemd, and the caller may know better.
        assert (await restart(bus, w.unit, w.clock, Terms(stop_s=30), down=True)).result == "done"


async def test_an_operators_stop_during_our_restart_wins(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "contested.service", STUBBORN) as w:
        await w.systemctl("start", w.unit)
        ours = asyncio.create_task(restart(bus, w.unit, w.clock, Terms(stop_s=30)))
        await w.until(lambda: w.state() == ("deactivating", "stop-sigterm"))
        await w.systemctl("stop", "--no-block", w.unit)
        outcome = await ours
        assert (outcome.result, outcome.stand_down, outcome.killed) == ("canceled", True, False)
        assert "standing down" in outcome.message
        # The operator's stop goes on, and is none of our business: not to restart, and not to kill.
        with pytest.raises(JobConflictError):
            await bus.restart(w.unit)
        refused = await restart(bus, w.unit, w.clock, Terms(stop_s=30))
        assert (refused.result, refused.stand_down) == ("refused", True)
        assert "stop job that we did not begin" in refused.message
        assert await see_through(bus, w.unit, w.clock, Terms(stop_s=0), None, inv=w.target.inv) is not None
        assert box.show(w.unit, "ActiveState") == "deactivating", "a stop that is not ours is not ended by force"
        await w.systemctl("kill", "-s", "KILL", w.unit)
        await w.until(lambda: not w.target.active)


async def test_a_stop_without_end_is_ended(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "stubborn.service", STUBBORN) as w:
        await w.systemctl("start", w.unit)
        began = time.monotonic()
        outcome = await restart(bus, w.unit, w.clock, Terms(stop_s=0.5, kill_s=5))
        assert (outcome.result, outcome.killed) == ("done", True), outcome.message
        assert time.monotonic() - began < 20
        assert outcome.stop_s is not None
        assert outcome.stop_s >= 0.5
        assert re.search(r"SIGKILL after \d+\.\d s", outcome.message)
        assert box.show(w.unit, "ActiveState") == "active"


async def test_a_daemon_that_was_started_anew_ends_the_stop_that_it_began(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "resumed.service", STUBBORN) as w:
        await w.systemctl("start", w.unit)
        job: list[str] = []
        lost = asyncio.create_task(restart(bus, w.unit, w.clock, Terms(stop_s=30), begun=job.append))
        await w.until(lambda: w.state() == ("deactivating", "stop-sigterm"))
        lost.cancel()
        pid = (box.dir / "pid").read_text().strip()
        async with running(Bus(f"unix:path=/proc/{pid}/root/run/dbus/system_bus_socket")) as anew:
            await anew.until_connected(10)
            outcome = await see_through(anew, w.unit, w.clock, Terms(stop_s=0.5), job[0], inv=w.target.inv)
        assert outcome is not None
        assert (outcome.result, outcome.killed) == ("done", True), outcome.message


async def test_the_bus_may_come_and_go(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "busless.service", STUBBORN) as w:
        await w.systemctl("start", w.unit)
        await w.until(lambda: w.state() == ("active", "running"))
        before = box.show("dbus.service", "MainPID")
        ours = asyncio.create_task(restart(bus, w.unit, w.clock, Terms(stop_s=3)))
        await w.until(lambda: w.state() == ("deactivating", "stop-sigterm"))
        await asyncio.to_thread(box.run, "kill", "-KILL", before)
        await w.until(lambda: not bus.connected)
        outcome = await ours
        assert box.show("dbus.service", "MainPID") not in (before, "0")
        assert (outcome.result, outcome.killed) == ("done", True), outcome.message
        await w.until(lambda: w.target.inv == outcome.inv)
        await w.until(lambda: ("removed", "restart", "done", True, False) in w.jobs())
        w.told.clear()
        await w.systemctl("kill", "-s", "KILL", w.unit)
        await w.until(lambda: w.last.active_state == "failed")


async def test_systemd_may_be_executed_anew(box: Box, bus: Bus) -> None:
    async with watched(box, bus, "reexec.service", QUIET) as w:
        await w.systemctl("start", w.unit)
        await w.systemctl("daemon-reexec")
        await w.systemctl("restart", w.unit)
        await w.until(lambda: w.target.inv == box.show(w.unit, "InvocationID") and w.state() == ("active", "running"))
        w.told.clear()
        await w.until(lambda: bus.connected)
        await asyncio.sleep(0.6)
        await w.systemctl("stop", w.unit)
        await w.until(lambda: ("removed", "stop", "done", False, False) in w.jobs())


async def test_units_that_the_server_leans_on(box: Box, bus: Bus) -> None:
    await asyncio.to_thread(box.unit, "fabric.service", QUIET)
    told: list[Deps] = []
    source = DepsSource(["fabric.service", "absent.service"], BootClock(), bus)
    task = asyncio.create_task(source.run(told.append, lambda: None))  # type: ignore[arg-type]
    try:
        for verb, want in (("start", "active"), ("kill -s KILL", "failed"), ("reset-failed", "inactive")):
            await asyncio.to_thread(box.run, "systemctl", *verb.split(), "fabric.service")
            async with asyncio.timeout(10):
                while not told or told[-1].units != {"fabric.service": want}:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
    finally:
        task.cancel()
