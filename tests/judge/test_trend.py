"""What is a leak, and what only looks like one for a while."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.judge.facts.trend import RUSH_SPANS, Rush, Series, Trend

LEAST, SPAN = 1.5, 900.0


def series(values: list[float], step: float = 60.0) -> Series:
    s = Series()
    for i, value in enumerate(values):
        s.add(i * step, value)
    return s


def climb(values: list[float], step: float = 60.0, least: float = LEAST) -> Trend | None:
    return series(values, step).climb(least, SPAN)


def test_a_straight_line() -> None:
    found = climb([100 + 0.1 * i for i in range(120)])
    assert found is not None and found.per_s == pytest.approx(0.1 / 60) and found.span_s >= 100 * 60


def test_a_leak_that_began_an_hour_ago() -> None:
    found = climb([100.0] * 300 + [100 + 0.1 * i for i in range(60)])
    assert found is not None and found.per_s == pytest.approx(0.1 / 60, rel=0.2)


def test_a_slow_leak_shows_over_days() -> None:
    values = [100 + 0.0005 * i for i in range(4 * 1440)]  # 0.18 in six hours, 2.9 in four days
    assert climb(values[:360]) is None
    found = climb(values)
    assert found is not None and found.span_s > 3 * 86400


def test_levels() -> None:
    assert series([]).level() is None
    assert series([5.0] * 10 + [50.0] * 10).level() == 5.0


@pytest.mark.parametrize(
    "values",
    [
        [100.0] * 300,
        [100.0] * 60 + [110.0] * 60,  # a step
        [100.0] * 60 + [100 + i for i in range(10)] + [110.0] * 50,  # a ramp and a plateau
        [100 + (20 if i % 37 == 0 else 0) for i in range(300)],  # bursts
        [100 + 10 * (1 - math.exp(-i / 20)) for i in range(120)],  # a cache that fills
        [100 + 15 * (x - 0.42 * x * x) for x in (i / 120 for i in range(120))],  # what slows down will end
        [100 - 0.1 * i for i in range(120)],
        [100 + 3 * math.sin(i / 20) for i in range(300)],
    ],
)
def test_no_leak(values: list[float]) -> None:
    assert climb(values) is None


@given(tau=st.floats(5, 400), amplitude=st.floats(2, 500))
def test_a_warm_up_is_never_believed_to_take_more_than_it_does(tau: float, amplitude: float) -> None:
    """Whenever it is looked at, a warm-up is either no climb, or bounded: by what it still takes, and not by much more."""
    s = Series()
    for i in range(300):
        value = amplitude * (1 - math.exp(-i / tau))
        s.add(i * 60.0, 100 + value)
        found = s.climb(LEAST, SPAN) if i % 15 == 14 else None
        assert found is None or amplitude - value <= found.ahead < 1.1 * amplitude


@given(noise=st.lists(st.floats(-0.02, 0.02), min_size=120, max_size=120))
def test_a_leak_has_no_end(noise: list[float]) -> None:
    """Noise about a straight line does not make it end before the forecast is due (`reaches`)."""
    found = climb([100 + 0.1 * i + n for i, n in enumerate(noise)])
    assert found is not None and found.ahead > 8 * found.span_s * found.per_s


def test_a_leak_beneath_a_warm_up_comes_out() -> None:
    found = climb([100 + 20 * (1 - math.exp(-i / 25)) + 0.14 * i for i in range(240)])
    assert found is not None and found.ahead > 8 * found.span_s * found.per_s


@given(scale=st.floats(1e-3, 1e12), slope=st.floats(-1, 1), noise=st.lists(st.floats(-0.2, 0.2), min_size=120, max_size=120))
def test_scale_makes_no_difference(scale: float, slope: float, noise: list[float]) -> None:
    values = [100 + slope * i + n for i, n in enumerate(noise)]
    small, large = climb(values), climb([v * scale for v in values], least=LEAST * scale)
    assert (small is None) == (large is None)
    if small is not None and large is not None:
        assert large.per_s == pytest.approx(small.per_s * scale, rel=1e-6)


@given(noise=st.lists(st.floats(-0.5, 0.5), min_size=180, max_size=180))
def test_noise_around_a_level_is_no_leak(noise: list[float]) -> None:
    assert climb([100 + n for n in noise]) is None


def samples(rush: Rush, values: list[float], step_s: float = 5.0) -> Rush:
    for i, value in enumerate(values):
        rush.add(i * step_s, value)
    return rush


@given(st.floats(1.0, 50.0), st.lists(st.floats(-2.0, 2.0), min_size=24, max_size=24))
def test_what_shoots_up_is_told(slope: float, noise: list[float]) -> None:
    """Two minutes of a level, then a minute of a climb that is far above the noise."""
    level = [1000.0 + n for n in noise]
    climb = [1000.0 + 20.0 * slope * i for i in range(1, 14)]
    found = samples(Rush(), level + climb).climb(100.0)
    assert found is not None and found.per_s == pytest.approx(4.0 * slope, rel=0.1)


@given(st.lists(st.floats(0.0, 99.0), min_size=1, max_size=400))
def test_what_never_rises_by_the_least_does_not_shoot_up(values: list[float]) -> None:
    assert samples(Rush(), values).climb(100.0) is None


@given(st.lists(st.sampled_from((0.0, 10.0, 200.0, 500.0)), max_size=300), st.floats(1.0, 10.0))
def test_what_was_long_ago_is_forgotten(values: list[float], step_s: float) -> None:
    """After more than the longest span, a rush says what one says that saw the last samples only, but for the new ground."""
    rush, flat = samples(Rush(), values, step_s), [500.0] * math.ceil(RUSH_SPANS[-1] / step_s + 2)
    for i, value in enumerate(flat):
        rush.add((len(values) + i) * step_s, value)
    assert rush.climb(1.0) is None
