"""Throttling: by reasons and violation time over minutes, while the GPU works."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.judge.throttling import Sample, judge_rounds, throttled
from watchdog.observation import Gpu, GpuDevice

FREE: dict[str, object] = {"util": 1.0, "sm_mhz": 2205.0, "sm_max_mhz": 2430.0, "throttle": [], "temp_c": 60.0, "power_w": 320.0}
HOT: dict[str, object] = FREE | {"sm_mhz": 660.0, "throttle": ["hw_slowdown", "hw_thermal", "sw_thermal"], "temp_c": 93.0}


def rounds(one: dict[str, object] | Callable[[float], dict[str, object]], seconds: int = 300, others: int = 7) -> list[Gpu]:
    """Rounds every 5 s; GPU 0 is as told, the others run freely."""
    made = []
    for t in range(0, seconds + 1, 5):
        mine = one(t) if callable(one) else one
        gpus = [GpuDevice(index=0, pci="0000:16:00.0", **mine)]  # type: ignore[arg-type]
        gpus += [GpuDevice(index=i, **FREE) for i in range(1, others + 1)]  # type: ignore[arg-type]
        made.append(Gpu(t=float(t), ok=True, gpus=gpus))
    return made


def test_one_slow_gpu_among_eight() -> None:
    got = judge_rounds(rounds(HOT))
    assert got is not None and got.index == 0 and got.pci == "0000:16:00.0"
    assert got.clock == pytest.approx(660 / 2430) and got.others == pytest.approx(2205 / 2430)
    assert set(got.reasons) == {"hw_thermal", "sw_thermal", "hw_slowdown"}
    assert "GPU 0" in got.message and "27%" in got.message and "91%" in got.message and got.message.endswith(".")
    assert "cooling" in got.advice and got.evidence


def test_an_external_brake_points_at_the_power_supply() -> None:
    got = judge_rounds(rounds(FREE | {"sm_mhz": 600.0, "throttle": ["hw_slowdown", "hw_power_brake"]}))
    assert got is not None and "power supplies" in got.advice


@pytest.mark.parametrize(
    "one",
    [
        FREE,
        FREE | {"sm_mhz": 1300.0, "throttle": ["sw_power_cap"], "power_w": 600.0},
        FREE | {"util": 0.0, "sm_mhz": 210.0, "throttle": ["idle"]},
        FREE | {"sm_mhz": 900.0, "throttle": ["app_clocks"]},
        FREE | {"temp_c": 95.0},
        HOT | {"util": 0.0},
        HOT | {"util": None},
        HOT | {"sm_mhz": 2100.0},
        HOT | {"sm_mhz": None},
        HOT | {"sm_max_mhz": None},
        FREE | {"sm_mhz": 660.0, "throttle": None},
    ],
    ids=[
        "free",
        "power-cap",
        "idle",
        "locked-clock",
        "hot-only",
        "hot-idle",
        "util-unknown",
        "barely",
        "clock?",
        "max?",
        "reasons?",
    ],
)
def test_what_is_normal_or_unknown(one: dict[str, object]) -> None:
    assert judge_rounds(rounds(one)) is None


def test_it_takes_minutes_and_goes_away() -> None:
    assert judge_rounds(rounds(HOT, seconds=100)) is None
    assert judge_rounds(rounds(lambda t: HOT if 100 <= t < 160 else FREE)) is None
    assert judge_rounds(rounds(lambda t: HOT if t < 200 else FREE)) is None
    assert judge_rounds(rounds(lambda t: FREE if t < 300 else HOT, seconds=640)) is not None


def test_pauses_in_the_work_do_not_hide_it() -> None:
    assert judge_rounds(rounds(lambda t: HOT if t % 60 < 35 else HOT | {"util": 0.0, "sm_mhz": 210.0})) is not None


def test_a_single_gpu_is_held_against_itself() -> None:
    assert judge_rounds(rounds(HOT, others=0)) is not None
    assert judge_rounds(rounds(HOT | {"sm_mhz": 1700.0}, others=0)) is None


def test_violation_time_speaks_where_the_reasons_are_unknown() -> None:
    def by(kind: str) -> Callable[[float], dict[str, object]]:
        return lambda t: FREE | {"sm_mhz": 660.0, "throttle": None, "throttle_s": {kind: t * 0.9}}

    got = judge_rounds(rounds(by("thermal")))
    assert got is not None and got.reasons == ("thermal violation",)
    assert judge_rounds(rounds(by("power"))) is None


def test_a_gap_in_the_rounds_is_not_work() -> None:
    assert judge_rounds([o for o in rounds(HOT) if o.t in (0.0, 150.0, 300.0)]) is None
    assert judge_rounds([]) is None


VALUES = st.one_of(st.none(), st.floats(allow_nan=False, min_value=0, max_value=1e6))


@given(
    st.lists(
        st.builds(
            lambda t, util, sm, top, throttle: Sample(
                t=t, gpu=GpuDevice(index=0, util=util, sm_mhz=sm, sm_max_mhz=top, throttle=throttle)
            ),
            st.floats(0, 1000),
            VALUES,
            VALUES,
            VALUES,
            st.one_of(st.none(), st.lists(st.sampled_from(["hw_thermal", "idle", "sw_power_cap", "new_reason"]), max_size=3)),
        ),
        max_size=100,
    ).map(lambda samples: sorted(samples, key=lambda s: s.t))
)
def test_any_samples_are_survived_and_only_held_gpus_are_told(samples: list[Sample]) -> None:
    got = throttled(samples)
    if got is not None:
        assert any(s.gpu.throttle and "hw_thermal" in s.gpu.throttle for s in samples) and got.clock < 0.6
