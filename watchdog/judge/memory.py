"""Host memory: does it hold what hicache announced, does a rank leak, is there room for what is still to come?"""

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.memory import MIB
from watchdog.judge.pool import Account, Finding, both
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.units import format_gb as gb
from watchdog.units import format_gib as gib
from watchdog.wording import counted, span

GIB = 1024**3
LEAK_SPAN_S = 900.0
LEAK_LEAST = 1.5 * GIB
"""Growth below this is never called a leak, however small the server (the floor of an otherwise scale-free judgement)."""
PLAN_S = 12 * 3600.0
"""A forecast nearer than this asks for a planned restart in a quiet window."""
CROWDED_S = 1800.0
"""Others' memory is none of ours to forecast for hours: they may stop as they began."""
STILL_LEAST = 64 * MIB
"""Less than this still to be pinned is not worth an alarm."""
ANNOUNCED_S = 30.0
"""No start comes to its host pool so soon: imports alone take as long."""
PRESSED = 20.0
"""Percent of time in which all tasks stalled for memory (PSI full) that mean: it hurts."""

PIN_ADVICE = (
    "Pinning may have failed silently: look for cudaHostRegister in the unit's log, NVRM in the kernel log, and at the unit's "
    "LimitMEMLOCK=. A restart makes a new attempt; the same arguments may fail the same way."
)


def judge(f: Facts, a: Account, policy: Judging) -> list[Verdict]:
    """The conditions FootprintAsAnnounced and MemoryHolds."""
    return [footprint(f, a), holds(f, a, policy)]


def footprint(f: Facts, a: Account) -> Verdict:
    """FootprintAsAnnounced: does the memory show what SGLang said that it allocates, and what it should have said?"""
    kind = "FootprintAsAnnounced"
    phase = f.life.phase()
    if phase is not Phase.SERVING:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=f"The server is {phase.value}.")
    if f.ranks.missing or f.life.end_announced:
        message = "A process of the engine is missing or the server dies: what memory shows says nothing of the pool."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="ProcessesMissing", message=message)
    if a.finding is Finding.NONE:
        off = f.life.server is not None and not f.life.arg("enable_hierarchical_cache", False)
        reason = "NoHostPool" if off else "NotAnnounced"
        return Verdict(type=kind, status=Status.UNKNOWN, reason=reason, message=f"Nothing to compare: {_lower(a.why or '')}")
    if f.memory.pin_failures and a.finding in (Finding.SEEN, Finding.UNTOLD):
        return _unpinned(f, a)
    if a.finding is Finding.UNTOLD and not a.places:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRead", message=a.why or "")
    if a.finding is Finding.UNTOLD:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="CannotTell", message=f"{a.why} {_upper(a.words())}.")
    if a.finding is Finding.SEEN:
        calls = (_otherwise(a),) if a.differs is not None else ()
        reason = "AsExpected" if a.announced is None else "AsAnnounced" if a.differs is None else "NotAsExpected"
        said = "Host pool: " if a.differs is None else f"{a.differs}; it is there: "
        return Verdict(type=kind, status=Status.TRUE, reason=reason, message=f"{said}{a.words()}.", calls=calls)
    reason, message = _finding(f, a)
    call = Call(want=Want.ALERT, reason=reason, message=message, advice=PIN_ADVICE, evidence=(a.words(),))
    return Verdict(type=kind, status=Status.FALSE, reason=reason, message=message, calls=(call,))


def _unpinned(f: Facts, a: Account) -> Verdict:
    """The memory is there, but the driver said that it could not pin all of it: the server may have become ready all the same."""
    times = counted(f.memory.pin_failures, "time")
    message = f"The NVIDIA driver could not pin host memory {times} while the server started (kernel log)."
    call = Call(
        want=Want.ALERT,
        reason="PinningFailed",
        message=message,
        advice=(
            "What is not pinned may come back stale from the host pool, or fail later in an unrelated place. Look for "
            "cudaHostRegister in the unit's log and at the unit's LimitMEMLOCK=, or make the pool smaller (--hicache-ratio, "
            "--hicache-size), and restart it in a quiet hour."
        ),
        evidence=(a.words(),) if a.words() else (),
    )
    return Verdict(type="FootprintAsAnnounced", status=Status.FALSE, reason="PinningFailed", message=message, calls=(call,))


def _finding(f: Facts, a: Account) -> tuple[str, str]:
    """(reason, message) of a pool that is not where it should be."""
    place = a.place
    if a.finding is Finding.SHRUNK and place is not None:
        message = f"The host pool has shrunk: {place.title} fell by {both(place.lost)} since the server was ready ({a.words()})."
        swap, before = (f.memory.host.swap_used if f.memory.host is not None else None), f.memory.swap_before
        if swap is not None and before is not None and swap - before > place.lost / 2:
            message = f"{message[:-1]}; {gb(swap - before)} more are swapped out, and what is pinned cannot be."
        return "PoolShrank", message
    if a.short:
        ranks = ", ".join(f"{name} holds {gb(size)}" for name, size in a.short[:4])
        return "FootprintTooSmall", f"Not every rank has its part of the host pool: {ranks} ({a.words()})."
    return "FootprintTooSmall", f"The host pool is not where it should be: {a.words()}."


def _otherwise(a: Account) -> Call:
    return Call(
        want=Want.ALERT,
        reason="PoolNotAsExpected",
        message=f"{a.differs}.",
        severity=Severity.INFO,
        advice="Compare --hicache-ratio, --hicache-size and the KV cache with what was meant.",
        evidence=(a.words(),),
    )


def holds(f: Facts, a: Account, policy: Judging) -> Verdict:
    """MemoryHolds: is there room, now and by forecast?"""
    kind = "MemoryHolds"
    m = f.memory
    if m.host is None and m.cgroup is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRead", message="Memory has not been read yet.")
    pressing = _short(f, a) or _rush(f)
    if pressing is not None:
        return pressing
    own = _leak(f, policy)
    return own if own.status is Status.FALSE else _crowded(f) or own


def _short(f: Facts, a: Account) -> Verdict | None:
    """Whether there is too little for what is still to come, or too little already."""
    m = f.memory
    room, room_for = m.room(), m.room_for(a.kinds)
    if f.life.phase() is Phase.STARTING and a.wanted and room_for is not None:
        # Where huge pages do not suffice, small ones are taken.
        kinds = (*a.kinds, "unit", "ranks") if a.kinds == ("hugetlb",) else a.kinds
        done = m.grown(kinds) if a.announced is not None else None if _came_late(f) else 0.0
        still = a.wanted - done if done is not None else 0.0
        if still > max(STILL_LEAST, 0.02 * a.wanted) and room_for < still:
            message = (
                f"Host memory will not do: {both(still)} of the host pool's {both(a.wanted)} are still to be pinned, "
                f"and only {both(room_for)} are available."
            )
            advice = "Lower --hicache-ratio or --hicache-size, or free memory, before the kernel's OOM killer decides."
            return _bad("HostMemoryTooSmall", message, advice)
    h, c = m.host, m.cgroup
    if h is not None and h.mem_available is not None and h.mem_total and _pressed(h.psi_full_avg10):
        message = f"The host is out of memory: {gib(h.mem_available)} available, stalled {h.psi_full_avg10:.0f} % of the time."
        if h.mem_available < max(0.01 * h.mem_total, 512 * MIB):
            return _bad("HostMemoryPressure", message, "Free memory on the host.")
    if c is not None and c.memory_max and room is not None and _pressed(c.psi_full_avg10):
        left = f"{gib(room)} of {gib(c.memory_max)} left"
        message = f"The unit is at its memory limit: {left}, stalled {c.psi_full_avg10:.0f} % of the time."
        if room < 0.01 * c.memory_max:
            return _bad("UnitMemoryPressure", message, "Raise MemoryMax= of the unit, or lower --hicache-ratio.")
    return None


def _came_late(f: Facts) -> bool:
    """Whether the pool may have been announced before we looked."""
    since, seen = f.life.since, f.life.first_seen
    return since is not None and seen is not None and seen - since > ANNOUNCED_S


def _pressed(psi_full: float | None) -> bool:
    return psi_full is not None and psi_full > PRESSED


def _bad(reason: str, message: str, advice: str) -> Verdict:
    call = Call(want=Want.ALERT, reason=reason, message=message, severity=Severity.CRITICAL, advice=advice)
    return Verdict(type="MemoryHolds", status=Status.FALSE, reason=reason, message=message, calls=(call,))


def _rush(f: Facts) -> Verdict | None:
    """Whether somebody takes memory so fast that there are minutes left: that cannot wait until it is a trend of hours."""
    m = f.memory
    found, room = m.rush(), m.room()
    if found is None or room is None or f.life.phase() is not Phase.SERVING:
        return None
    name, trend, left = found
    shown = f"{name} grows by {gib(trend.per_s * 60)} a minute, for {span(trend.span_s)}"
    message = f"{_upper(shown)}; at this pace the {gib(room)} left are used up in {span(left)}."
    advice = "Restart the server now, or free memory, before the kernel's OOM killer ends it."
    alert = Call(
        want=Want.ALERT, reason="MemoryRunsOut", message=message, severity=Severity.CRITICAL, advice=advice, evidence=(shown,)
    )
    plan = Call(want=Want.PLAN_RESTART, reason="MemoryRunsOut", message=message, advice=advice, evidence=(shown,))
    return Verdict(type="MemoryHolds", status=Status.FALSE, reason="RunsOut", message=message, calls=(alert, plan))


def _leak(f: Facts, policy: Judging) -> Verdict:
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
    ahead = max(sum(t.ahead for _, t in climbs), whole.ahead if whole else 0.0)
    left = room / total
    pace = f"{name} grows by {gib(worst.per_s * 3600)} an hour"
    if ahead < room:
        message = f"{_upper(pace)}, ever more slowly: at most {gib(ahead)} are still to come, and {gib(room)} are left."
        return Verdict(type=kind, status=Status.TRUE, reason="FillsUp", message=message)
    shown = f"{pace}, in a straight line for {span(worst.span_s)}"
    message = f"{_upper(shown)}; at this pace the {gib(room)} left are used up in {span(left)}."
    if left > policy.leak_horizon_s or not worst.reaches(left):
        return Verdict(type=kind, status=Status.TRUE, reason="SlowGrowth", message=message)
    advice = "Restart the server in a quiet hour, drained, before the kernel's OOM killer does it."
    alert = Call(want=Want.ALERT, reason="MemoryLeak", message=message, advice=advice, evidence=(shown,))
    calls: tuple[Call, ...] = (alert,)
    if left < PLAN_S:
        calls = (alert, Call(want=Want.PLAN_RESTART, reason="MemoryLeak", message=message, advice=advice, evidence=(shown,)))
    return Verdict(type=kind, status=Status.FALSE, reason="Leak", message=message, calls=calls)


def _crowded(f: Facts) -> Verdict | None:
    """Whether other programs will soon have used up the host's memory: the kernel may then end the server for it."""
    m = f.memory
    trend = m.by_others.climb(LEAK_LEAST, LEAK_SPAN_S)
    if trend is None or m.host is None or m.host.mem_available is None or f.life.phase() is not Phase.SERVING:
        return None
    left = m.host.mem_available / trend.per_s
    if left > CROWDED_S or not trend.reaches(left) or trend.ahead < m.host.mem_available:
        return None
    message = (
        f"Other programs on this host take {gib(trend.per_s * 60)} more a minute, for {span(trend.span_s)}; at this pace the "
        f"{gib(m.host.mem_available)} left are used up in {span(left)}."
    )
    advice = "Find what grows (top -o RES) and stop it: a restart of the server frees its own memory and no other."
    return _bad("HostMemoryRunsOut", message, advice)


def _upper(text: str) -> str:
    return text if text.startswith("sglang::") else text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
