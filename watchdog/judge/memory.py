"""Host memory: does it hold what hicache announced, does a rank leak, is there room for what is still to come?"""

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.units import format_gb as gb
from watchdog.units import format_gib as gib

GIB = 1024**3
LEAK_SPAN_S = 900.0
LEAK_LEAST = 1.5 * GIB
PLAN_S = 12 * 3600.0
"""A forecast nearer than this asks for a planned restart in a quiet window."""
SEEN_LEAST = 0.85
"""The pool counts as seen if so much of what was announced shows somewhere."""


def judge(f: Facts, policy: Judging, now: float) -> list[Verdict]:
    """The conditions FootprintAsAnnounced and MemoryHolds."""
    return [footprint(f), leak(f, policy, now)]


def footprint(f: Facts) -> Verdict:
    """FootprintAsAnnounced: does the memory show what SGLang said that it allocates?"""
    kind = "FootprintAsAnnounced"
    m = f.memory
    if f.life.phase() is not Phase.SERVING:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=f"The server is {f.life.phase().value}.")
    announced = sum(m.announced.values())
    if announced <= 0:
        said = (
            "no host pool was announced in this life"
            if f.life.arg("enable_hierarchical_cache") is not True
            else "its announcement was not seen"
        )
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotAnnounced", message=f"Nothing to compare: {said}.")
    seen = m.seen()
    if seen is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRead", message="The unit's memory could not be read.")
    size, place = seen
    shown = f"{gb(announced)} announced, {gb(size)} seen as {place}"
    if size >= SEEN_LEAST * announced:
        return Verdict(type=kind, status=Status.TRUE, reason="AsAnnounced", message=f"Host pool as announced: {shown}.")
    message = f"The host pool is not where it should be: {shown}."
    call = Call(
        want=Want.ALERT,
        reason="FootprintTooSmall",
        message=message,
        advice="Pinning may have failed silently: look for cudaHostRegister in the kernel log, and at the unit's LimitMEMLOCK=.",
        evidence=(shown,),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="FootprintTooSmall", message=message, calls=(call,))


def leak(f: Facts, policy: Judging, now: float) -> Verdict:
    """MemoryHolds: is there room, now and by forecast?"""
    kind = "MemoryHolds"
    m = f.memory
    if m.host is None and m.cgroup is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRead", message="Memory has not been read yet.")
    short = _short(f)
    if short is not None:
        return short
    return _fit(f, policy)


def _short(f: Facts) -> Verdict | None:
    m = f.memory
    h = m.host
    if h is None or h.mem_available is None or not h.mem_total:
        return None
    still = sum(m.announced.values()) - m.peak_seen if f.life.phase() is Phase.STARTING else 0
    room = m.room()
    if still > GIB and room is not None and room < still:
        message = (
            f"Host memory will not do: {gib(still)} of the announced pool are still to be pinned, {gib(room)} are available."
        )
        call = Call(
            want=Want.ALERT,
            reason="HostMemoryTooSmall",
            message=message,
            severity=Severity.CRITICAL,
            advice="Lower --hicache-ratio or --hicache-size, or free memory, before the kernel's OOM killer decides.",
        )
        return Verdict(type="MemoryHolds", status=Status.FALSE, reason="HostMemoryTooSmall", message=message, calls=(call,))
    pressed = (h.psi_full_avg10 or 0) > 20.0
    if h.mem_available < max(0.01 * h.mem_total, 512 * 1024**2) and pressed:
        message = f"The host is out of memory: {gib(h.mem_available)} available, stalled {h.psi_full_avg10:.0f} % of the time."
        call = Call(
            want=Want.ALERT,
            reason="HostMemoryPressure",
            message=message,
            severity=Severity.CRITICAL,
            advice="Free memory on the host.",
        )
        return Verdict(type="MemoryHolds", status=Status.FALSE, reason="HostMemoryPressure", message=message, calls=(call,))
    return None


def _fit(f: Facts, policy: Judging) -> Verdict:
    kind = "MemoryHolds"
    m = f.memory
    room = m.room()
    climbs = [(name, t) for name, s in m.ranks.items() if (t := s.climb(LEAK_LEAST, LEAK_SPAN_S)) is not None]
    whole = m.unit.climb(LEAK_LEAST, LEAK_SPAN_S)
    if whole is not None and not climbs:
        climbs.append(("the unit", whole))
    if not climbs or room is None:
        shown = f", {gib(room)} left" if room is not None else ""
        return Verdict(type=kind, status=Status.TRUE, reason="Level", message=f"Memory is level{shown}.")
    name, worst = max(climbs, key=lambda c: c[1].per_s)
    total = max(sum(t.per_s for _, t in climbs), whole.per_s if whole else 0.0)
    left = room / total
    shown = f"{name} grows by {gib(worst.per_s * 3600)} an hour, in a straight line for {worst.span_s / 60:.0f} min"
    message = f"{shown[:1].upper()}{shown[1:]}; at this pace the {gib(room)} left are used up in {_hours(left)}."
    if left > policy.leak_horizon_s:
        return Verdict(type=kind, status=Status.TRUE, reason="SlowGrowth", message=message)
    advice = "Restart the server in a quiet hour, drained, before the kernel's OOM killer does it."
    alert = Call(want=Want.ALERT, reason="MemoryLeak", message=message, advice=advice, evidence=(shown,))
    calls: tuple[Call, ...] = (alert,)
    if left < PLAN_S:
        calls = (alert, Call(want=Want.PLAN_RESTART, reason="MemoryLeak", message=message, advice=advice, evidence=(shown,)))
    return Verdict(type=kind, status=Status.FALSE, reason="Leak", message=message, calls=calls)


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
