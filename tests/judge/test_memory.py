"""Room for what is still to come, leaks, forecasts."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.reference import GB, INV, Deployment
from watchdog import observation as o
from watchdog.judge.verdict import Status

GIB = 2**30


def leaking(
    gib_an_hour: float, *, room_gib: float, hours: float, ranks: tuple[int, ...] = (3,), scale: float = 1.0
) -> Deployment:
    """A server that leaks for some hours on a host that has so much room at their end."""
    d = Deployment(per_rank=round(44_770_000_000 * scale), own=round(4 * GB * scale), tick_s=60.0).start()
    leaked = gib_an_hour * hours * len(ranks)
    d.others = 0.0
    d.host = round(sum(d.held) + 8 * d.own + (leaked + room_gib) * GIB * scale)
    for _ in range(70):  # until it has settled
        d.look()
    for passed in d.hours(hours):
        for r in ranks:
            d.extra[r] = gib_an_hour * passed / 3600 * GIB * scale
    return d


def test_a_leak_of_one_rank_is_told_and_a_restart_planned() -> None:
    d = leaking(26, room_gib=50, hours=1.0)
    v = d.verdict("MemoryHolds")
    assert (v.status, v.reason) == (Status.FALSE, "Leak")
    assert "scheduler_TP3" in v.message and "26." in v.message and "GiB an hour" in v.message and "used up in" in v.message
    assert "MemoryLeak" in d.reasons() and "MemoryLeak" in d.reasons("plan_restart")
    assert not d.reasons("restart")


def test_what_others_take_is_told_as_theirs_while_there_is_time_and_never_planned_for() -> None:
    d = Deployment(tick_s=60.0).start()
    d.others = 0.0
    d.host = round(sum(d.held) + 8 * d.own + 200 * GIB)
    for _ in range(70):
        d.look()
    assert not d.reasons()

    for passed in d.hours(0.7):
        d.others = 4 * GIB * passed / 60
    v = d.verdict("MemoryHolds")
    assert (v.status, v.reason) == (Status.FALSE, "HostMemoryRunsOut")
    assert "4.0 GiB more a minute" in v.message and "are used up in" in v.message
    assert d.reasons() == {"HostMemoryRunsOut"} and not d.reasons("plan_restart")


def test_a_far_end_is_told_as_slow_growth_only() -> None:
    d = leaking(4, room_gib=2000, hours=1.0)
    assert d.verdict("MemoryHolds").reason == "SlowGrowth"
    assert not d.reasons()


def test_a_forecast_needs_a_line_as_long_as_its_eighth() -> None:
    assert leaking(4, room_gib=40, hours=0.7).verdict("MemoryHolds").reason == "SlowGrowth"
    assert leaking(4, room_gib=40, hours=2.0).verdict("MemoryHolds").reason == "Leak"


def test_what_fills_up_within_the_room_is_no_leak() -> None:
    """Each rank's caches take 14 GiB, half of it in the first quarter of an hour: a straight line would soon fill the room."""
    d = Deployment(tick_s=60.0).start()
    d.others = 0.0
    d.host = round(sum(d.held) + 8 * d.own + 8 * 14 * GIB + 100 * GIB)
    for _ in range(70):
        d.look()
    reasons = set()
    for passed in d.hours(3.0):
        d.extra = [14 * GIB * (1 - math.exp(-passed / 1500))] * 8
        reasons.add(d.verdict("MemoryHolds").reason)
    assert "FillsUp" in reasons and not d.reasons()


MB = 10**6
ALARMS = {"MemoryRunsOut", "MemoryLeak"}


def rushing(mb_a_second: float, *, room_gb: float, rank: int = 0, quiet: int = 10) -> tuple[Deployment, float | None]:
    """A server that was up for some looks and takes memory until none is left: (it, seconds that were left when it was told)."""
    d = Deployment(ranks=2, per_rank=GB, own=2 * GB, host=round(36 * GB + room_gb * GB), tick_s=5.0).start()
    for _ in range(quiet):
        d.look()
    full = room_gb * GB / (mb_a_second * MB)
    begun = d.t
    while d.t - begun < full - 10:
        d.extra[rank] = mb_a_second * MB * (d.t + 10 - begun)
        d.look()
        if "MemoryRunsOut" in d.reasons():
            return d, full - (d.t - begun)
    return d, None


@pytest.mark.parametrize("mb", [20.0, 60.0, 200.0, 1000.0])
@pytest.mark.parametrize("minutes", [3, 6, 15])
def test_memory_that_runs_out_within_minutes_is_told_before(mb: float, minutes: int) -> None:
    d, left = rushing(mb, room_gb=mb * 60 * minutes / 1000)
    assert left is not None and left > 60, left
    told = next(i for i in d.intents if i.reason == "MemoryRunsOut" and str(i.action) == "alert")
    assert str(told.severity) == "critical"
    assert "scheduler_TP0" in told.message and "GiB a minute" in told.message and "are used up in" in told.message
    assert f"{mb * MB * 60 / GIB:.1f} GiB" in told.message
    assert "MemoryRunsOut" in d.reasons("plan_restart") and not d.reasons("restart")
    assert d.verdict("MemoryHolds").reason == "RunsOut"


def test_what_takes_hours_is_left_to_the_trend_of_hours() -> None:
    d = Deployment(ranks=2, per_rank=GB, own=2 * GB, host=60 * GB).start()
    for passed in d.hours(0.3, 10.0):
        d.extra[0] = passed * 2 * MB
    assert not d.reasons() & ALARMS


SHAPES = st.sampled_from(["level", "noise", "sawtooth", "step", "settling"])


@settings(max_examples=15, deadline=None)
@given(shape=SHAPES, size=st.floats(0.3, 4.0), period=st.integers(2, 40), seed=st.randoms(use_true_random=False))
def test_what_does_not_shoot_up_is_no_alarm(shape: str, size: float, period: int, seed: Any) -> None:
    """Level, noisy and sawtooth memory, a step, and a cache that fills up; at least as much as it ever takes at once is left."""
    d = Deployment(ranks=2, per_rank=GB, own=2 * GB, host=36 * GB + round((size * 5.5 + 0.6) * GB)).start()
    for n in range(90):
        part = {
            "level": 0.0,
            "noise": seed.random(),
            "sawtooth": (n % period) / period,
            "step": float(n > period),
            "settling": 1 - 0.5 ** (n / 3),
        }[shape]
        d.extra[0] = part * size * GB
        d.look()
    assert not d.reasons() & ALARMS and d.verdict("MemoryHolds").status is Status.TRUE


def test_a_swing_that_was_there_before_is_no_rush_however_little_is_left() -> None:
    d = Deployment(ranks=2, per_rank=GB, own=2 * GB, host=60 * GB, tick_s=5.0).start()
    for n in range(300):
        d.extra[0] = (n % 20) / 20 * 6 * GB
        d.others = 30 * GB if n < 60 else 47 * GB
        d.look()
    assert not d.reasons() & ALARMS


def test_a_start_that_takes_nearly_all_there_is_is_no_rush() -> None:
    d = Deployment(host=30 * GB + 358 * GB + 8 * 4 * GB + 12 * GB, tick_s=5.0).start()
    for _ in range(20):
        d.look()
    assert not d.reasons() & ALARMS and d.verdict("MemoryHolds").status is Status.TRUE


def test_leaks_of_all_ranks_add_up() -> None:
    d = leaking(4, room_gib=50, hours=1.0, ranks=tuple(range(8)))
    assert d.verdict("MemoryHolds").reason == "Leak"


def test_level_memory() -> None:
    v = leaking(0, room_gib=50, hours=1.0).verdict("MemoryHolds")
    assert (v.status, v.reason) == (Status.TRUE, "Level") and "50.0 GiB left" in v.message


@settings(max_examples=6)
@given(scale=st.floats(1.0, 6.0), rate=st.sampled_from([0.0, 5.0, 26.0]), room=st.sampled_from([30.0, 60.0]))
def test_scale_makes_no_difference_above_the_floor(scale: float, rate: float, room: float) -> None:
    """1.5 GiB is the least growth that is called a leak; above it only proportions count."""
    one, other = (leaking(rate, room_gib=room, hours=1.0, scale=s).verdict("MemoryHolds") for s in (1.0, scale))
    assert (one.status, one.reason) == (other.status, other.reason)


def test_the_cgroups_limit_is_room_too() -> None:
    d = Deployment().start()
    d.memory_max = round(sum(d.held) + 8 * d.own + 10 * GIB)
    d.look()
    assert d.engine.facts.memory.room() == pytest.approx(10 * GIB)


def test_too_little_for_what_is_to_come_is_told_before_it_is_pinned() -> None:
    d = Deployment(host=300 * GB)
    d.begin()
    v = d.condition("MemoryHolds")
    assert (v.status, v.reason) == (Status.FALSE, "HostMemoryTooSmall")
    assert "358.0" in v.message and "238.00 GB (221.7 GiB) are available" in v.message
    assert {str(i.severity) for i in d.intents if i.reason == "HostMemoryTooSmall"} == {"critical"}


def test_too_little_for_the_rest_while_it_is_pinned() -> None:
    d = Deployment(host=500 * GB)
    d.begin()
    d.announce()
    d.held = [held + d.per_rank / 2 for held in d.held]
    d.look()
    assert d.verdict("MemoryHolds").status is Status.TRUE
    d.others += 200 * GB
    d.look()
    assert d.verdict("MemoryHolds").reason == "HostMemoryTooSmall"


def test_what_is_still_to_be_pinned_is_unknown_where_the_announcement_may_have_been_missed() -> None:
    d = Deployment(host=500 * GB)
    d.t = 230.0
    d.held = [held + d.per_rank / 2 for held in d.held]
    d.begin()
    assert d.verdict("MemoryHolds").status is Status.TRUE


def test_enough_is_enough() -> None:
    d = Deployment(host=440 * GB).start()
    assert d.verdict("MemoryHolds").status is Status.TRUE and not d.reasons()


@pytest.mark.parametrize(("psi", "reason"), [(1.0, "Level"), (45.0, "UnitMemoryPressure")])
def test_a_unit_at_its_limit_hurts_only_under_pressure(psi: float, reason: str) -> None:
    d = Deployment().start()
    d.memory_max, d.psi = round(sum(d.held) + 8 * d.own + GB), psi
    d.look()
    assert d.verdict("MemoryHolds").reason == reason


def test_a_host_without_memory() -> None:
    d = Deployment().start()
    d.psi, d.others = 45.0, 2000 * GB
    d.look()
    assert d.verdict("MemoryHolds").reason == "HostMemoryPressure"


def test_nothing_read() -> None:
    d = Deployment()
    d.unit()
    assert d.verdict("MemoryHolds").reason == "NotRead"
    assert d.verdict("FootprintAsAnnounced").reason == "NotServing"


def test_gpu_memory_that_grows_is_told_before_it_is_full() -> None:
    d = Deployment().start()
    for passed in d.hours(1.2):
        used = round(70 * GIB + max(0.0, passed - 600) / 3600 * 5 * GIB)
        d.feed(o.Gpu(t=d.t, ok=True, expected=1, gpus=[o.GpuDevice(index=0, util=0.5, mem_used=used, mem_total=80 * GIB)]))
    v = d.verdict("DevicesHealthy")
    assert (v.status, v.reason) == (Status.FALSE, "GpuMemoryLeak")
    assert "GpuMemoryLeak" in d.reasons("plan_restart")


def test_gpu_memory_that_another_program_takes_is_no_leak_of_ours() -> None:
    d = Deployment().start()
    for passed in d.hours(1.2):
        theirs = round(max(0.0, passed - 600) / 3600 * 5 * GIB)
        procs = [o.GpuProc(pid=7, mem=69 * GIB, in_unit=True), o.GpuProc(pid=9, mem=theirs, in_unit=False)]
        gpu = o.GpuDevice(index=0, util=0.5, mem_used=70 * GIB + theirs, mem_total=80 * GIB, procs=procs)
        d.feed(o.Gpu(t=d.t, ok=True, expected=1, gpus=[gpu]))
    assert not d.reasons("plan_restart")


def test_a_gone_life_leaves_nothing_behind() -> None:
    d = Deployment().start()
    d.feed(o.Unit(t=d.t, inv="b" * 32, active_state="activating", sub_state="start", since=d.t))
    m = d.engine.facts.memory
    assert m.pool.announced(None) is None and not m.levels and not m.ranks and d.engine.facts.life.inv != INV
