import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.observe.pace import Budget, Pace


def pace(interval_s: float = 60.0) -> Pace:
    return Pace(interval_s, random.Random(1), first=1.0)


def due(of: Pace, *, closer: bool = False, hold: str | None = None) -> float:
    return of.due(closer=closer, hold=hold)


def fail(of: Pace, times: int, begun: float = 0.0) -> None:
    for _ in range(times):
        of.asked(begun, begun, failed=True)


def test_the_first_turn_and_the_next() -> None:
    one = pace()
    assert due(one) == 1.0
    one.asked(1.0, 1.1, failed=False)
    assert 61.0 <= due(one) <= 67.0


def test_closer_is_four_times_as_often_and_takes_effect_at_once() -> None:
    one = pace()
    one.asked(0.0, 0.1, failed=False)
    assert 15.0 <= due(one, closer=True) <= 16.5


def test_a_failure_is_confirmed_soon_and_believed_after_three() -> None:
    one = pace()
    fail(one, 1)
    assert due(one) <= 16.5
    fail(one, 1)
    assert due(one) <= 16.5
    fail(one, 1)
    assert due(one) >= 60.0
    assert due(one, closer=True) >= 60.0, "a server that is believed to be ill is not pestered"


@pytest.mark.parametrize(("failures", "pause_s"), [(2, 0), (3, 120), (4, 240), (5, 480), (6, 480), (60, 480)])
def test_backoff_grows_to_a_limit(failures: int, pause_s: float) -> None:
    one = pace()
    fail(one, failures, begun=100.0)
    assert one.backing_off(100.0 + pause_s - 0.1, closer=False) == (pause_s > 0)
    assert not one.backing_off(100.0 + pause_s, closer=False)
    assert not one.backing_off(100.0, closer=True), "a closer look is no time to back off"


def test_a_success_ends_the_backoff() -> None:
    one = pace()
    fail(one, 5)
    one.asked(0.0, 0.0, failed=False)
    assert not one.backing_off(0.0, closer=False)


@pytest.mark.parametrize(("held", "at_once"), [("starting", True), ("paused", True), ("traffic", False), ("backoff", False)])
def test_after_a_start_or_a_pause_it_asks_at_once(held: str, at_once: bool) -> None:
    one = pace()
    one.skipped(100.0, held)
    assert due(one, hold=held) >= 160.0
    assert (due(one) <= 100.0) == at_once


def test_a_patient_pace_makes_up_for_a_turn_that_traffic_took() -> None:
    one = Pace(3600.0, random.Random(1), first=1.0, patient=True)
    one.skipped(100.0, "traffic")
    assert due(one, hold="traffic") >= 3700.0 and due(one) <= 100.0
    one.asked(200.0, 201.0, failed=False)
    assert due(one) >= 3800.0


def test_a_long_probe_is_followed_by_a_gap() -> None:
    one = pace(27.0)
    one.asked(0.0, 40.0, failed=False)
    assert due(one) == 42.0
    quick = pace(0.1)
    quick.asked(0.0, 0.2, failed=False)
    assert 0.3 <= due(quick) <= 0.31


@given(st.floats(0.1, 1000), st.booleans(), st.integers(0, 5), st.integers())
def test_never_at_the_servers_own_time_out(interval_s: float, closer: bool, failures: int, seed: int) -> None:
    one = Pace(interval_s, random.Random(seed), first=0.0)
    one.asked(0.0, 0.0, failed=False)
    fail(one, failures)
    period = one.due(closer=closer, hold=None)
    assert period > 0 and not 18.0 < period < 22.0


def test_the_budget_is_that_of_any_hour() -> None:
    budget = Budget(2)
    assert budget.left(0.0)
    budget.spend(0.0)
    budget.spend(1800.0)
    assert not budget.left(3599.0)
    assert budget.left(3600.0)
    budget.spend(3600.0)
    assert not budget.left(5399.0) and budget.left(5400.0)


def test_a_closer_look_leaves_an_hour_of_ordinary_ones() -> None:
    """What looks ill for days, a GPU that is held back, must not end in 40 blind minutes of each hour."""
    budget, pace = Budget(90), Pace(60.0, random.Random(1), 0.0)
    now, blind = 0.0, 0
    while now < 3 * 3600.0:
        now = max(now, pace.due(closer=budget.ample(now), hold=None))
        blind += not budget.left(now)
        budget.spend(now)
        pace.asked(now, now + 0.3, failed=False)
    assert blind == 0


@given(st.lists(st.floats(0, 20_000), max_size=200), st.integers(1, 10))
def test_no_hour_has_more_than_the_budget(moments: list[float], limit: int) -> None:
    budget = Budget(limit)
    spent = []
    for now in sorted(moments):
        if budget.left(now):
            budget.spend(now)
            spent.append(now)
    assert all(sum(t <= s < t + 3600.0 for s in spent) <= limit for t in spent)


@pytest.mark.parametrize(("interval_s", "rarely_s"), [(60.0, 300.0), (3600.0, 3600.0)])
def test_traffic_holds_a_probe_back_for_minutes_and_not_for_ever(interval_s: float, rarely_s: float) -> None:
    one = pace(interval_s)
    one.asked(100.0, 100.2, failed=False)
    for turn in range(160, 400, 60):
        one.skipped(turn, "traffic")
    assert not one.long_ago(99.0 + rarely_s) and one.long_ago(100.0 + rarely_s)
