"""Sources under supervision: one that falls, ends, hangs or floods harms no other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from watchdog import sources
from watchdog.background import Background
from watchdog.clock import BootClock, FakeClock
from watchdog.observation import Observation, Operator
from watchdog.observe.journal_reader import JournalError
from watchdog.observe.source import Beat, Emit
from watchdog.sources import Run, ended, running

Work = Callable[[Emit, Beat], Coroutine[Any, Any, None]]


class Made:
    """A source that does what the test says, anew at each start."""

    mandatory = True
    period_s = 1.0

    def __init__(self, work: Work, name: str = "made") -> None:
        self.name = name
        self._work = work

    async def run(self, emit: Emit, beat: Beat) -> None:
        await self._work(emit, beat)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(sources, "LONGEST_PAUSE_S", 0.04)


@contextlib.asynccontextmanager
async def at_work(*runs: Run) -> AsyncIterator[None]:
    task = asyncio.create_task(running(list(runs)))
    try:
        yield
    finally:
        await ended(task)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def seen(t: float = 0.0) -> Operator:
    return Operator(t=t, action="resume")


async def falls(emit: Emit, beat: Beat) -> None:
    raise OSError("gone")


async def ends(emit: Emit, beat: Beat) -> None:
    return


async def cancels_itself(emit: Emit, beat: Beat) -> None:
    raise asyncio.CancelledError


async def observes(emit: Emit, beat: Beat) -> None:
    while True:
        emit(seen())
        await asyncio.sleep(0.005)


async def is_refused(emit: Emit, beat: Beat) -> None:
    raise JournalError("no permission to read it: mend that")


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (falls, "OSError: gone"),
        (is_refused, "no permission to read it: mend that"),
        (ends, "ended by itself"),
        (cancels_itself, "cancelled"),
    ],
)
async def test_what_falls_is_started_anew_and_the_others_go_on(work: Work, error: str) -> None:
    got: list[Observation] = []
    bad = Run(Made(work, "bad"), BootClock(), got.append)
    good = Run(Made(observes), BootClock(), got.append)
    async with at_work(bad, good):
        await until(lambda: bad.falls >= 3)
        before = len(got)
        await until(lambda: len(got) > before + 3)
        assert error in str(bad.error)
        assert ".py:" not in str(bad.error), "the place is told of what nobody expected"
        assert good.error is None
        assert bad.alive(BootClock().now() + 1000) or bad.falls > 3, "what is known and told is not silence"


async def test_the_innermost_error_is_named_and_falling_often_is_known_until_it_is_long_ago() -> None:
    async def deep(emit: Emit, beat: Beat) -> None:
        emit(seen())
        async with asyncio.TaskGroup() as group:
            group.create_task(mistaken())

    async def mistaken() -> None:
        raise KeyError("profile")

    clock = FakeClock()
    run = Run(Made(deep), clock, lambda _: None)
    async with at_work(run):
        await until(lambda: run.falls >= 2)
        assert not run.falls_often(clock.now()) or run.falls > 2
        await until(lambda: run.falls >= 3)
        assert run.falls_often(clock.now())
        assert not run.falls_often(clock.now() + 601)
        assert run.why.startswith("KeyError: 'profile' (at test_sources.py:")


async def test_silence_is_noticed() -> None:
    clock = FakeClock()

    async def hangs(emit: Emit, beat: Beat) -> None:
        beat()
        await asyncio.Event().wait()

    run = Run(Made(hangs), clock, lambda _: None)
    async with at_work(run):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert run.alive(clock.now())
        clock.advance(13)
        assert not run.alive(clock.now())


async def test_a_receiver_that_raises_is_a_fall_of_the_source_only() -> None:
    def refuses(_: Observation) -> None:
        raise ValueError("no")

    run = Run(Made(observes), BootClock(), refuses)
    async with at_work(run):
        await until(lambda: run.falls >= 2)


async def test_a_silenced_source_is_heard_no_more() -> None:
    got: list[Observation] = []
    run = Run(Made(observes), BootClock(), got.append)
    async with at_work(run):
        await until(lambda: got)
        run.silence()
        count = len(got)
        await asyncio.sleep(0.03)
        assert len(got) == count


async def stubborn() -> None:
    for _ in range(150):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.02)


async def test_ending_does_not_wait_for_what_does_not_end() -> None:
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(2.5):
        await ended(task, 0.05)
    assert not task.done()
    await task


async def test_ending_is_given_up_by_who_is_cancelled_himself() -> None:
    task = asyncio.create_task(stubborn())
    caller = asyncio.create_task(ended(task))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await task


async def test_background_ends_in_time_and_names_what_is_stuck() -> None:
    tasks = Background()
    stuck = tasks.create_task(stubborn(), name="stubborn")
    tasks.create_task(asyncio.sleep(60), name="quick")
    await asyncio.sleep(0)
    async with asyncio.timeout(2.5):
        assert await tasks.end(0.05) == ["stubborn"]
    await stuck


async def test_background_tells_who_fell() -> None:
    tasks = Background()
    tasks.create_task(falls(lambda _: None, lambda: None), name="falls")
    with pytest.raises(OSError, match="gone"):
        async with asyncio.timeout(30):
            await tasks.fallen
    await tasks.end(1)
