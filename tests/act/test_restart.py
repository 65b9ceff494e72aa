"""What a real systemd shows rarely; the usual ways are in tests/box/test_box_systemd.py."""

import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from watchdog.act.attempt import Outcome, Terms
from watchdog.act.restart import patience, restart, see_through
from watchdog.act.rights import Rights, rights
from watchdog.clock import FakeClock
from watchdog.systemd import RESYNC, BusUnavailableError, NoAnswerError, Signal, SystemdError, UnitState
from watchdog.systemd.errors import from_reply

JOB = "/org/freedesktop/systemd1/job/7"
UP = UnitState(
    load_state="loaded",
    active_state="active",
    sub_state="running",
    result="success",
    invocation="a1",
    inactive_exit_at=-1000.0,
    start_limit_burst=5,
    start_limit_interval_s=10.0,
)
STOPPING = msgspec.structs.replace(UP, active_state="deactivating", sub_state="stop-sigterm", job=JOB)
ANEW = msgspec.structs.replace(
    UP, invocation="b2", active_exit_at=1.0, inactive_enter_at=40.0, inactive_exit_at=41.0, active_enter_at=43.5
)


def removed(result: str) -> Signal:
    return Signal("/org/freedesktop/systemd1", "m", "JobRemoved", [7, JOB, "a.service", result])


class FakeBus:
    """A systemd that goes through a script: (seconds that pass, signals that came, the state after that)."""

    def __init__(self, clock: FakeClock, before: UnitState, *script: tuple[float, list[Signal], UnitState | None]) -> None:
        self.clock = clock
        self.now: UnitState | None = before
        self.script = list(script)
        self.shutting_down = False
        self.job: str | SystemdError = JOB
        self.jobs = {"/job/stop": "stop", "/job/start": "start", "/job/restart": "restart"}
        self.owned: set[str] = set()
        self.calls: list[Any] = []
        self.kill_error: SystemdError | None = None

    async def load(self, unit: str) -> str:
        return "/unit"

    @contextlib.asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator["FakeBus"]:
        yield self

    async def next(self, limit_s: float) -> list[Signal]:
        if limit_s == 0 or not self.script:
            self.clock.advance(limit_s)
            return []
        passed, signals, state = self.script.pop(0)
        self.clock.advance(min(passed, limit_s))
        self.now = state
        return signals

    async def look_at_host(self) -> None:
        pass

    async def state(self, path: str) -> UnitState:
        if self.now is None:
            raise BusUnavailableError("gone")
        return self.now

    async def job_type(self, job: str) -> str | None:
        return self.jobs.get(job)

    def is_own(self, job: str) -> bool:
        return job in self.owned

    def own(self, job: str, kind: str) -> None:
        self.owned.add(job)

    async def reset_failed(self, unit: str) -> None:
        self.calls.append("reset-failed")

    async def restart(self, unit: str, mode: str = "fail") -> str:
        self.calls.append(("restart", mode))
        if isinstance(self.job, SystemdError):
            raise self.job
        return self.job

    async def kill(self, unit: str, whom: str, number: int) -> None:
        self.calls.append(("kill", whom, number))
        if self.kill_error is not None:
            raise self.kill_error


async def tried(bus: FakeBus, **kwargs: Any) -> Outcome:
    terms = Terms(**{"stop_s": 60.0, **{k: kwargs.pop(k) for k in list(kwargs) if k in Terms.__annotations__}})
    return await restart(bus, "a.service", bus.clock, terms, **kwargs)  # type: ignore[arg-type]


def with_(state: UnitState, **changes: Any) -> UnitState:
    return msgspec.structs.replace(state, **changes)


async def test_done_tells_how_long_it_took() -> None:
    bus = FakeBus(FakeClock(), UP, (1.0, [], STOPPING), (42.0, [removed("done")], ANEW))
    outcome = await tried(bus)
    assert (outcome.result, outcome.inv, outcome.stop_s, outcome.start_s) == ("done", "b2", 40.0, 2.5)
    assert outcome.message == "restarted: stopped in 40 s, started in 2.5 s"
    assert bus.calls == [("restart", "fail")]


async def test_a_bare_process_counts_as_no_start() -> None:
    """With Type=simple systemd has started it at once, while the server still needs minutes."""
    at_once = with_(ANEW, active_enter_at=ANEW.inactive_exit_at)
    bus = FakeBus(FakeClock(), UP, (1.0, [], STOPPING), (42.0, [removed("done")], at_once))
    outcome = await tried(bus)
    assert (outcome.start_s, outcome.message) == (0.0, "restarted: stopped in 40 s")


@pytest.mark.parametrize(
    ("before", "kwargs", "stand_down", "word"),
    [
        (with_(UP, load_state="not-found"), {}, False, "not-found"),
        (with_(UP, load_state="masked"), {}, False, "masked"),
        (with_(UP, load_state=None), {}, False, "unknown"),
        (with_(UP, job="/job/stop"), {}, True, "stop job"),
        (with_(UP, job="/job/restart"), {}, True, "restart job"),
        (UP, {"inv": "00"}, True, "new life"),
        (with_(UP, active_state="inactive"), {}, True, "stopped by somebody"),
        (with_(UP, active_state="activating", sub_state="auto-restart"), {}, True, "itself"),
        (with_(UP, active_state="activating", sub_state="auto-restart-queued"), {}, True, "itself"),
    ],
)
async def test_nothing_is_done_where_something_speaks_against_it(
    before: UnitState, kwargs: dict[str, Any], stand_down: bool, word: str
) -> None:
    bus = FakeBus(FakeClock(), before)
    outcome = await tried(bus, **kwargs)
    assert (outcome.result, outcome.stand_down) == ("refused", stand_down)
    assert word in outcome.message
    assert bus.calls == []


async def test_a_host_that_goes_down_is_left_alone() -> None:
    bus = FakeBus(FakeClock(), UP)
    bus.shutting_down = True
    outcome = await tried(bus)
    assert (outcome.result, outcome.stand_down, bus.calls) == ("refused", True, [])


@pytest.mark.parametrize(
    "before",
    [
        with_(UP, active_state="activating", job="/job/start"),  # a start-up that is stuck
        with_(UP, active_state="failed"),
        with_(UP, active_state="active", job="/job/gone"),
    ],
)
async def test_these_are_restarted(before: UnitState) -> None:
    bus = FakeBus(FakeClock(), before, (2.0, [removed("done")], ANEW))
    assert (await tried(bus)).result == "done"


@pytest.mark.parametrize(
    ("started_ago", "burst", "interval", "want"),
    [
        (5.0, 3, 10.0, True),
        (11.0, 3, 10.0, False),
        (5.0, 0, 10.0, False),
        (5.0, 3, 0.0, False),
        (5.0, 3, None, True),
        (None, 3, 10.0, True),
        (5.0, None, 10.0, False),
    ],
)
async def test_the_start_limit_is_emptied_where_it_may_bite(
    started_ago: float | None, burst: int | None, interval: float | None, want: bool
) -> None:
    clock = FakeClock()
    clock.advance(1000.0)
    at = None if started_ago is None else 1000.0 - started_ago
    before = with_(UP, inactive_exit_at=at, start_limit_burst=burst, start_limit_interval_s=interval)
    bus = FakeBus(clock, before, (2.0, [removed("done")], ANEW))
    await tried(bus)
    assert bus.calls == [*(["reset-failed"] if want else []), ("restart", "fail")]


@pytest.mark.parametrize(
    ("result", "stand_down"),
    [("failed", False), ("canceled", True), ("timeout", False), ("dependency", False), ("skipped", False)],
)
async def test_each_result_is_named(result: str, stand_down: bool) -> None:
    bus = FakeBus(FakeClock(), UP, (1.0, [removed(result)], with_(UP, active_state="failed", result="start-limit-hit")))
    outcome = await tried(bus)
    assert (outcome.result, outcome.stand_down, outcome.inv) == (result, stand_down, None)
    assert result in outcome.message
    assert ("start-limit-hit" in outcome.message) == (result == "failed")


async def test_a_stop_that_lasts_is_killed_and_pinned_memory_gets_its_time() -> None:
    bus = FakeBus(
        FakeClock(), UP, (30.0, [], STOPPING), (30.0, [], STOPPING), (29.0, [], STOPPING), (30.0, [removed("done")], ANEW)
    )
    outcome = await tried(bus)
    assert bus.calls == [("restart", "fail"), ("kill", "all", signal.SIGKILL)]
    assert (outcome.result, outcome.killed) == ("done", True)
    assert "SIGKILL after 1 min" in outcome.message


async def test_a_stop_that_we_may_not_end_is_waited_for_and_ended_once_we_may() -> None:
    """A reload has set another mode meanwhile; systemd's own TimeoutStopSec= may end it."""
    bus = FakeBus(FakeClock(), UP, *[(30.0, [], STOPPING)] * 30, (1.0, [removed("done")], ANEW))
    assert (await tried(bus, may_kill=lambda: False)).result == "done"
    assert bus.calls == [("restart", "fail")]

    bus = FakeBus(FakeClock(), UP, *[(30.0, [], STOPPING)] * 30)
    outcome = await tried(bus, may_kill=lambda: bus.clock.now() >= 600.0)
    assert bus.calls == [("restart", "fail"), ("kill", "all", signal.SIGKILL)]
    assert (outcome.result, bus.clock.now()) == ("timeout", 720.0)


async def test_what_forbids_it_is_asked_last() -> None:
    bus = FakeBus(FakeClock(), with_(UP, inactive_exit_at=0.0))
    outcome = await tried(bus, forbidden=lambda: "paused by a person" if bus.calls == ["reset-failed"] else None)
    assert (outcome.result, outcome.message, outcome.stand_down) == ("dropped", "not restarted: paused by a person", True)
    assert bus.calls == ["reset-failed"]


async def test_processes_that_survive_sigkill_are_told() -> None:
    bus = FakeBus(FakeClock(), UP, (1.0, [], STOPPING))
    outcome = await tried(bus, kill_s=120.0)
    assert (outcome.result, outcome.killed, bus.clock.now()) == ("timeout", True, 180.0)
    assert "stuck in the kernel" in outcome.message


async def test_a_kill_that_is_refused_is_told() -> None:
    bus = FakeBus(FakeClock(), UP, (1.0, [], STOPPING))
    bus.kill_error = from_reply("KillUnit a.service", "org.freedesktop.DBus.Error.AccessDenied", "Access denied")
    outcome = await tried(bus)
    assert (outcome.result, outcome.killed) == ("timeout", False)
    assert "polkit" in outcome.message


async def test_a_job_that_waits_is_no_stop_to_be_killed() -> None:
    bus = FakeBus(FakeClock(), UP, (1.0, [], with_(UP, job=JOB)))
    outcome = await tried(bus)
    assert (outcome.result, bus.calls) == ("timeout", [("restart", "fail")])
    assert "waits for others" in outcome.message


async def test_a_slow_start_is_not_killed() -> None:
    starting = with_(ANEW, active_state="activating", sub_state="start", job=JOB)
    bus = FakeBus(FakeClock(), UP, (5.0, [], starting), *[(30.0, [], starting)] * 20, (1.0, [removed("done")], ANEW))
    assert (await tried(bus)).result == "done"
    assert bus.calls == [("restart", "fail")]
    bus = FakeBus(FakeClock(), UP, (5.0, [], starting), *[(30.0, [], starting)] * 5)
    outcome = await tried(bus, start_s=100.0)
    assert (outcome.result, bus.calls) == ("timeout", [("restart", "fail")])
    assert "the start is not done 1 min 45 s" in outcome.message


@pytest.mark.parametrize(
    ("after", "result"),
    [(ANEW, "done"), (with_(UP, active_state="failed"), "unknown"), (with_(ANEW, active_state="failed"), "unknown")],
)
async def test_an_end_that_was_missed_is_read_from_the_state(after: UnitState, result: str) -> None:
    bus = FakeBus(FakeClock(), UP, (1.0, [], STOPPING), (90.0, [], None), (10.0, [], None), (20.0, [RESYNC], after))
    outcome = await tried(bus)
    assert outcome.result == result
    assert "not seen" in outcome.message
    assert bus.calls == [("restart", "fail")]


@pytest.mark.parametrize(
    ("error", "result", "stand_down"),
    [
        (NoAnswerError("RestartUnit a.service", 10.0), "unknown", False),
        (BusUnavailableError("gone"), "refused", False),
        (from_reply("RestartUnit", "org.freedesktop.systemd1.TransactionIsDestructive", "x"), "refused", True),
        (from_reply("RestartUnit", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", "x"), "refused", False),
    ],
)
async def test_errors_are_outcomes(error: SystemdError, result: str, stand_down: bool) -> None:
    bus = FakeBus(FakeClock(), UP)
    bus.job = error
    outcome = await tried(bus)
    assert (outcome.result, outcome.stand_down) == (result, stand_down)


DOWN = with_(UP, active_state="inactive", sub_state="dead")


@pytest.mark.parametrize(
    ("job", "state", "result", "killed"),
    [
        (JOB, with_(STOPPING, active_exit_at=-60.0), "done", True),
        (JOB, with_(STOPPING, active_exit_at=-5.0), "done", False),
        (None, with_(STOPPING, active_exit_at=-60.0), "done", True),
        (JOB, with_(ANEW, job=JOB, active_state="activating"), "done", False),
        (JOB, with_(STOPPING, job="/job/stop", active_exit_at=-60.0), "unknown", False),
        (JOB, ANEW, "done", False),
        (None, ANEW, "done", False),
        (JOB, DOWN, "unknown", False),
        (None, UP, None, False),
        (None, with_(UP, job="/job/stop"), None, False),
    ],
)
async def test_a_restart_that_an_earlier_daemon_began_is_seen_through(
    job: str | None, state: UnitState, result: str | None, killed: bool
) -> None:
    bus = FakeBus(FakeClock(), state, (0.5, [], state), (3.0, [removed("done")], with_(ANEW, job=None)))
    bus.jobs[JOB] = "restart"
    outcome = await see_through(bus, "a.service", bus.clock, Terms(stop_s=30.0), job, inv="a1")  # type: ignore[arg-type]
    assert (outcome.result if outcome else None) == result
    assert bus.calls == ([("kill", "all", signal.SIGKILL)] if killed else [])


def refused_as(name: str, text: str) -> Callable[[], SystemdError]:
    return lambda: from_reply("x", name, text)


INVALID = refused_as("org.freedesktop.DBus.Error.InvalidArgs", "--job-mode=triggering is only valid for stop.")
OLD = refused_as("org.freedesktop.DBus.Error.InvalidArgs", "Job mode triggering invalid")
DENIED = refused_as("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", "Interactive authentication required.")
NOTHING = refused_as("org.freedesktop.systemd1.NoSuchProcess", "No control process to kill")
NO_UNIT = refused_as("org.freedesktop.systemd1.NoSuchUnit", "Unit a.service not loaded.")


@pytest.mark.parametrize(
    ("job", "kill", "want"),
    [
        (INVALID, NOTHING, Rights(restart=True, kill=True)),
        (DENIED, DENIED, Rights(restart=False, kill=False)),
        (OLD, NO_UNIT, Rights(restart=None, kill=None)),
        (lambda: BusUnavailableError("x"), lambda: None, Rights(restart=None, kill=True)),
    ],
)
async def test_rights(job: Callable[[], SystemdError], kill: Callable[[], SystemdError | None], want: Rights) -> None:
    bus = FakeBus(FakeClock(), UP)
    bus.job, bus.kill_error = job(), kill()
    assert await rights(bus, "a.service") == want  # type: ignore[arg-type]
    assert bus.calls == [("restart", "triggering"), ("kill", "control", signal.SIGCONT)]


async def test_the_stop_is_ended_sooner_once_its_engine_is_seen_to_be_gone() -> None:
    """And what is taken from the drain is left for the processes to go: memory is unpinned by the same moment as ever."""
    bus = FakeBus(FakeClock(), UP, *[(5.0, [], STOPPING)] * 17, (5.0, [removed("done")], ANEW))
    told: list[tuple[float | None, float | None, float]] = []
    outcome = await tried(
        bus,
        stop_s=180.0,
        gone=lambda: bus.clock.now() >= 12.0,
        told=lambda stop: told.append((stop.gone_at, stop.killed_at, stop.end_at)),
    )
    assert told == [(None, None, 180.0), (15.0, None, 45.0), (15.0, 45.0, 45.0)]
    assert (outcome.result, outcome.killed) == ("done", True)

    stuck = FakeBus(FakeClock(), UP, *[(30.0, [], STOPPING)] * 50)
    outcome = await tried(stuck, stop_s=180.0, kill_s=120.0, gone=lambda: True)
    assert outcome.result == "timeout"
    assert stuck.clock.now() == pytest.approx(300.0, abs=5.0)


@pytest.mark.parametrize(("closing_at", "told_at", "killed_at"), [(0.0, [15.0], 20.0), (22.0, [15.0, 25.0], 30.0)])
async def test_a_gone_engine_whose_server_waits_for_connections_has_nothing_more_to_do(
    closing_at: float, told_at: list[float], killed_at: float
) -> None:
    bus = FakeBus(FakeClock(), UP, *[(5.0, [], STOPPING)] * 12, (5.0, [removed("done")], ANEW))
    told: list[float] = []
    outcome = await tried(
        bus,
        stop_s=180.0,
        gone=lambda: bus.clock.now() >= 12.0,
        closing=lambda: bus.clock.now() >= closing_at,
        told=lambda _: told.append(bus.clock.now()),
    )
    assert (told, outcome.killed) == ([0.0, *told_at, killed_at], True)


@pytest.mark.parametrize(
    ("reason", "limit", "want"),
    [("SchedulerHung", 180.0, (180.0, 120.0)), ("ProcessGone", 180.0, (30.0, 270.0)), ("ProcessGone", 30.0, (30.0, 120.0))],
)
def test_a_drain_that_is_in_vain_is_not_waited_for(reason: str, limit: float, want: tuple[float, float]) -> None:
    """A scheduler that has exited with 0, seen with 0.5.23: the main process waits for its requests until SIGKILL."""
    assert patience(reason, limit) == want
