"""What a real systemd shows rarely; the usual ways are in tests/box/test_box_systemd.py."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from watchdog import config
from watchdog.clock import FakeClock
from watchdog.observation import Job, Observation, Unit
from watchdog.observe import unit as module
from watchdog.observe.source import Target
from watchdog.observe.unit import UnitSource, deed
from watchdog.systemd import RESYNC, BusUnavailableError, Signal, UnitState

JOB = "/org/freedesktop/systemd1/job/7"
UP = UnitState(
    load_state="loaded",
    active_state="active",
    sub_state="running",
    invocation="a1",
    main_pid=9,
    control_group="/system.slice/a.service",
    inactive_exit_at=-5.0,
)


def with_(state: UnitState, **changes: object) -> UnitState:
    return msgspec.structs.replace(state, **changes)


DOWN = with_(UP, active_state="inactive", sub_state="dead", main_pid=None)
WAITS = with_(UP, active_state="activating", sub_state="auto-restart")
ANEW = with_(UP, invocation="b2")


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        (DOWN, ANEW, "start"),
        (UP, ANEW, "restart"),
        (WAITS, ANEW, "restart"),
        (UP, DOWN, "stop"),
        (DOWN, with_(DOWN, invocation="b2", active_state="failed"), "start"),
        (UP, UP, None),
        (DOWN, DOWN, None),
        (DOWN, with_(DOWN, invocation=None), None),
    ],
)
def test_a_job_that_was_too_quick_shows_in_what_it_did(before: UnitState, after: UnitState, want: str | None) -> None:
    assert deed(before, after) == want


class FakeBus:
    """One state at a time, and signals when the test gives them."""

    def __init__(self, state: UnitState | None) -> None:
        self.now = state
        self.signals: asyncio.Queue[list[Signal]] = asyncio.Queue()
        self.meanwhile: list[Signal] = []
        """What comes while the state is read."""
        self.kind: str | None = "stop"

    async def load(self, unit: str) -> str:
        if self.now is None:
            raise BusUnavailableError("gone")
        return "/unit"

    @contextlib.asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator["FakeBus"]:
        yield self

    async def next(self, limit_s: float) -> list[Signal]:
        if limit_s > 0:
            return await self.signals.get()
        came, self.meanwhile = self.meanwhile, []
        return came

    async def look_at_host(self) -> None:
        pass

    async def state(self, path: str) -> UnitState:
        if self.now is None:
            raise BusUnavailableError("gone")
        return self.now

    async def job_type(self, job: str) -> str | None:
        return self.kind

    def is_own(self, job: str) -> bool:
        return False

    async def until_connected(self, limit_s: float) -> bool:
        await asyncio.sleep(0)
        return self.now is not None


class Run:
    def __init__(self, bus: FakeBus) -> None:
        self.bus = bus
        self.clock = FakeClock()
        self.target = Target(config.Server(name="a", unit="a.service"))
        self.told: list[Observation] = []
        self.beats = 0

    def beat(self) -> None:
        self.beats += 1

    async def signal(self, *signals: Signal) -> None:
        await self.bus.signals.put(list(signals))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(bus: FakeBus) -> AsyncIterator[Run]:
    run = Run(bus)
    source = UnitSource(run.target, run.clock, bus)  # type: ignore[arg-type]
    task = asyncio.create_task(source.run(run.told.append, run.beat))
    await run.settle()
    yield run
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0)


async def test_while_systemd_cannot_be_asked_nothing_is_known() -> None:
    async with running(FakeBus(UP)) as run:
        assert (run.target.inv, run.target.main_pid, run.target.active, run.target.since) == ("a1", 9, True, -5.0)
        run.told.clear()
        run.beats = 0
        run.bus.now = None
        await run.signal(RESYNC)
        assert run.told == [Unit(t=0.0, inv="a1")]
        assert run.beats > 2
        assert (run.target.inv, run.target.main_pid) == ("a1", 9)
        waiting = asyncio.create_task(run.target.change(60))
        await run.settle()
        run.bus.now = ANEW
        await run.settle()
        assert run.told[-1].inv == run.target.inv == "b2"
        assert waiting.done()


async def test_a_unit_that_systemd_forgets_keeps_its_last_life() -> None:
    async with running(FakeBus(UP)) as run:
        run.bus.now = with_(DOWN, invocation=None, inactive_exit_at=None, control_group=None)
        await run.signal(Signal("/unit", "p", "PropertiesChanged", ["i", {}, []]))
        last = run.told[-1]
        assert isinstance(last, Unit)
        assert (last.inv, last.since, last.active_state) == ("a1", -5.0, "inactive")
        assert (run.target.cgroup, run.target.active) == ("", False)


@pytest.mark.parametrize(("before", "since"), [(UP, -5.0), (None, None)])
async def test_a_life_that_waits_for_its_restart_began_before_it_died(before: UnitState | None, since: float | None) -> None:
    """systemd's InactiveExitTimestamp= is then that of its death: a life of no length was told, and judged."""
    waits = with_(UP, active_state="activating", sub_state="auto-restart", main_pid=None, inactive_exit_at=-1.0)
    async with running(FakeBus(before or waits)) as run:
        run.bus.now = waits
        await run.signal(Signal("/unit", "p", "PropertiesChanged", ["i", {}, []]))
        last = run.told[-1]
        assert isinstance(last, Unit)
        assert (last.inv, last.since, last.sub_state) == ("a1", since, "auto-restart")
        run.bus.now = ANEW
        await run.signal(Signal("/unit", "p", "PropertiesChanged", ["i", {}, []]))
        assert run.target.since == ANEW.inactive_exit_at


async def test_the_same_state_is_told_again_only_after_the_interval() -> None:
    changed = Signal("/unit", "p", "PropertiesChanged", ["i", {}, []])
    async with running(FakeBus(UP)) as run:
        run.clock.advance(29)
        await run.signal(changed)
        assert len(run.told) == 1
        run.clock.advance(1)
        await run.signal(changed)
        assert len(run.told) == 2


async def test_a_job_that_ended_unheard_is_ended_and_one_that_was_there_is_told() -> None:
    async with running(FakeBus(with_(UP, job=JOB))) as run:
        assert [(o.phase, o.job) for o in run.told if isinstance(o, Job)] == [("new", "stop")]
        run.bus.now = DOWN
        await run.signal(RESYNC)
        assert [(o.phase, o.job, o.result) for o in run.told if isinstance(o, Job)][1:] == [("removed", "stop", None)]


BEGUN = Signal("/m", "m", "JobNew", [7, JOB, "a.service"])
ENDED = Signal("/m", "m", "JobRemoved", [7, JOB, "a.service", "done"])
CHANGED = Signal("/unit", "p", "PropertiesChanged", ["i", {}, []])


async def test_a_job_that_ends_while_the_state_is_read_does_not_begin_again() -> None:
    """Seen with systemd 252 and its own Restart=: the state still showed the job whose end had been heard, and it never ended."""
    async with running(FakeBus(UP)) as run:
        run.bus.kind = "restart"
        run.bus.now = with_(WAITS, job=JOB)
        run.bus.meanwhile = [BEGUN, ENDED]
        await run.signal(CHANGED)
        run.bus.now = ANEW
        await run.signal(CHANGED)
        assert [(o.phase, o.result) for o in run.told if isinstance(o, Job)] == [("new", None), ("removed", "done")]


async def test_a_job_that_two_looks_do_not_show_is_over() -> None:
    async with running(FakeBus(UP)) as run:
        await run.signal(BEGUN)
        await run.signal(CHANGED)
        assert [o.phase for o in run.told if isinstance(o, Job)] == ["new", "removed"]


@pytest.mark.parametrize(("waited", "auto"), [(1.0, False), (10.0, True)])
async def test_systemds_own_restart_is_told_by_its_timer(waited: float, auto: bool) -> None:
    async with running(FakeBus(with_(WAITS, state_change_at=0.0, restart_s=10.0))) as run:
        run.bus.kind = "restart"
        run.clock.advance(waited)
        await run.signal(Signal("/m", "m", "JobNew", [7, JOB, "a.service"]))
        assert [o.auto for o in run.told if isinstance(o, Job)] == [auto]


@pytest.mark.parametrize("body", [[], [7], [7, JOB], [7, JOB, "a.service", "done", "more"]])
async def test_signals_of_another_shape_are_no_jobs(body: list[object]) -> None:
    async with running(FakeBus(UP)) as run:
        await run.signal(Signal("/m", "m", "JobNew", body), Signal("/m", "m", "JobRemoved", body[:3]))
        assert not [o for o in run.told if isinstance(o, Job)]
