"""Whether a GPU is held back in a way that matters.

Judged by the reasons that the driver gives and by violation time, over minutes and while the GPU works; never by temperature.
A software power cap at high power is how a GPU under load normally runs, a low clock while idle likewise (NVML API reference,
nvmlClocksEventReasons; nvmlDeviceGetViolationStatus).
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import msgspec

from watchdog.observation import Gpu, GpuDevice
from watchdog.wording import span

WINDOW_S = 300.0
"""So many seconds of rounds are judged."""

WORK_S = 120.0
"""The GPU must have worked for so many seconds in the window."""

HELD = ("hw_thermal", "sw_thermal", "hw_power_brake", "hw_slowdown")
"""Reasons that hold a GPU back; all others ("sw_power_cap", "idle", "app_clocks", "sync_boost", "display") are normal."""

SHARE = 0.8
"""In so much of its working time it must have been held back."""

WORKING = 0.2
"""From this utilisation on a GPU works."""

BEHIND_OTHERS = 0.8
"""Its clock against that of GPUs that run freely; where there are none, `BEHIND_ITSELF` against its own maximum."""

BEHIND_ITSELF = 0.6
VIOLATED = 0.5
"""The share of the window that violation time must have grown by, where the reasons cannot be read."""

LONGEST_GAP_S = 15.0
"""A round counts for the time to the next, but for no more than this."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in one round.

    Attributes:
        t: when.
        gpu: its values.
        others: the clock of the GPUs that work and are not held back, as a part of their maximum (0…1); None: there are none.
    """

    t: float
    gpu: GpuDevice
    others: float | None = None


class Throttled(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that is held back.

    Attributes:
        index, pci: which.
        reasons: why, in the words of the flight record.
        clock: its clock as a part of its maximum (0…1).
        others: that of the GPUs that run freely; None if there are none.
        message: one sentence for people.
        advice: what a person should do.
        evidence: the single facts.
    """

    index: int
    pci: str | None
    reasons: tuple[str, ...]
    clock: float
    others: float | None
    message: str
    advice: str
    evidence: tuple[str, ...]


def throttled(samples: Sequence[Sample]) -> Throttled | None:
    """Whether one GPU is held back, from its samples of the last minutes (oldest first; `WINDOW_S` of them is plenty)."""
    if not samples:
        return None
    recent = [s for s in samples if s.t >= samples[-1].t - WINDOW_S]
    spans = [min(b.t - a.t, LONGEST_GAP_S) for a, b in pairwise(recent)]
    work = [(s, span) for s, span in zip(recent, spans, strict=False) if _works(s.gpu)]
    worked = sum(span for _, span in work)
    if worked < WORK_S:
        return None
    if any(s.gpu.throttle is not None for s, _ in work):
        slow = [s for s, _ in work if held(s.gpu)]
        share = sum(span for s, span in work if held(s.gpu)) / worked
    else:
        slow = [s for s, _ in work]
        share = 1.0 if _violated(recent) else 0.0
    clocks = [c for s in slow if (c := _clock(s.gpu)) is not None]
    if share < SHARE or not clocks:
        return None
    clock = median(clocks)
    free = [s.others for s in slow if s.others is not None]
    others = median(free) if free else None
    if clock >= (BEHIND_OTHERS * others if others is not None else BEHIND_ITSELF):
        return None
    return _told(slow[-1].gpu, clock, others, f"in {share:.0%} of the last {span(worked)} of work", _reasons(slow))


def judge_rounds(rounds: Sequence[Gpu]) -> Throttled | None:
    """The GPU that is held back most, from the rounds of the last minutes; None if none is."""
    samples: dict[int, list[Sample]] = {}
    for o in rounds:
        free = [c for g in o.gpus if _works(g) and not held(g) and (c := _clock(g)) is not None]
        others = median(free) if free else None
        for g in o.gpus:
            samples.setdefault(g.index, []).append(Sample(t=o.t, gpu=g, others=others))
    found = [t for of_one in samples.values() if (t := throttled(of_one)) is not None]
    return min(found, key=lambda t: t.clock, default=None)


def _works(g: GpuDevice) -> bool:
    return g.util is not None and g.util >= WORKING


def held(g: GpuDevice) -> bool:
    """Whether the GPU gives a reason that holds its clock down for good."""
    return g.throttle is not None and any(reason in HELD for reason in g.throttle)


def _clock(g: GpuDevice) -> float | None:
    return g.sm_mhz / g.sm_max_mhz if g.sm_mhz is not None and g.sm_max_mhz else None


def _violated(samples: Sequence[Sample]) -> bool:
    """Whether thermal violation time grew with the clock on the wall; power violation is normal under load."""
    times = [(s.t, s.gpu.throttle_s["thermal"]) for s in samples if s.gpu.throttle_s and "thermal" in s.gpu.throttle_s]
    if len(times) < 2 or times[-1][0] <= times[0][0]:
        return False
    return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0]) >= VIOLATED


def _reasons(samples: Sequence[Sample]) -> tuple[str, ...]:
    """The reasons that hold it back, the commonest first; "hw_slowdown" alone says no more than that."""
    counts = {reason: sum(reason in (s.gpu.throttle or ()) for s in samples) for reason in HELD}
    named = sorted((r for r in HELD if counts[r] > len(samples) / 2), key=lambda r: -counts[r])
    return tuple(named) or ("thermal violation",)


def _told(g: GpuDevice, clock: float, others: float | None, when: str, reasons: tuple[str, ...]) -> Throttled:
    where = f"GPU {g.index}" + (f" ({g.pci})" if g.pci else "")
    beside = f" while the others run at {others:.0%}" if others is not None else ""
    power = any(r == "hw_power_brake" for r in reasons)
    advice = (
        "Check the host's power supplies and cabling: something outside the GPU brakes it. A restart of the server does not help."
        if power
        else "Check the cooling: fans, air flow, dust, the inlet temperature. A restart of the server does not help."
    )
    return Throttled(
        index=g.index,
        pci=g.pci,
        reasons=reasons,
        clock=clock,
        others=others,
        message=f"{where} is held back to {clock:.0%} of its clock{beside}, by {', '.join(reasons)}, {when}.",
        advice=advice,
        evidence=(f"throttle reasons {', '.join(reasons)}", f"clock at {clock:.0%} of its maximum{beside}"),
    )
