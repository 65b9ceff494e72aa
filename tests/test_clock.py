"""The clock: a wall clock that is set while we run changes what people are told, and nothing else."""

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from watchdog import clock
from watchdog.clock import SURE_S, BootClock, FakeClock


def test_a_wall_clock_that_is_set_later_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = timedelta(0)

    monkeypatch.setattr(clock, "datetime", SimpleNamespace(now=lambda tz: datetime.now(tz) + step))
    ours = BootClock()
    before, t = ours.origin, ours.now()

    step = timedelta(milliseconds=400)
    assert ours.origin == before, "slewed, or read a moment later: the same moment keeps the same time"

    step = timedelta(days=365 * 30)
    assert abs(ours.wall(0.0) - before - step) < timedelta(seconds=0.5)
    assert ours.origin == ours.origin
    assert ours.now() - t < 60.0

    step = timedelta(0)
    assert abs(ours.wall(0.0) - before) < timedelta(seconds=0.5)


def test_a_wall_clock_is_sure_when_it_was_not_set_for_a_day() -> None:
    ours = FakeClock()
    assert ours.sure() is None
    ours.advance(SURE_S)
    assert ours.sure() == ours.wall(SURE_S)
    ours.origin += timedelta(minutes=5)
    assert ours.sure() == ours.wall(SURE_S), "a little is nothing"
    ours.origin += timedelta(days=100)
    assert ours.sure() is None
    ours.advance(SURE_S)
    assert ours.sure() == ours.wall(2 * SURE_S)
