"""The one sentence that says how a server is: for STATUS=, the terminal and the page."""

import re

from watchdog.judge import startup
from watchdog.judge.decide import stand_down
from watchdog.judge.engine import Engine
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.probes import GENERATING, said
from watchdog.judge.verdict import DOUBTS, WORST, Condition, Status
from watchdog.units import format_gb
from watchdog.wording import ago, lasting, span

__all__ = ["DOUBTS", "LONGEST", "WORST", "doubts", "sentence", "worst"]

LONGEST = 240
"""Characters of the sentence: it stands in STATUS=, on one line of a terminal and in the title of a page."""
MET_S = 5.0
"""Who was up for so long when it was first looked at was not started beside us."""
FIRST_WORDS_S = 30.0
"""The journal has been read, and /health has been asked, within so long."""
FRESH_S = 120.0
"""A canary that is older than this is told with its age."""
OF_STARTS_BEFORE = ("UnitActive", "Started", "Restartable")
"""Conditions that may tell of starts that are over."""
TIMED = re.compile(r"\b(?:for|since) \d|\d (?:s|min|h|d) ago\b|just now")


def sentence(engine: Engine, now: float, *, fresh: bool = False) -> str:
    """How the server is at `now`, in one sentence without a full stop, of at most `LONGEST` characters.

    It speaks of the newest evidence: a suspicion that outweighs what is known to be wrong comes before it.

    Args:
        engine: what is held.
        now: the moment.
        fresh: whether a start is told as it is now, and not as it was when it was last judged.
    """
    whole = _whole(engine, now, fresh=fresh)
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1].rsplit(' ', 1)[0].rstrip(' ,;:(')}…"


def _whole(engine: Engine, now: float, *, fresh: bool) -> str:
    f = engine.facts
    phase = f.life.phase()
    bad = worst(engine)
    if f.paused(now):
        how = _held(bad, now) if bad is not None else _well(f, engine, now) if phase is Phase.SERVING else phase.value
        return f"{how}; {stand_down(f, now)}"
    doubt = doubts(engine)[:1] if phase is Phase.SERVING else []
    if bad is not None:
        newer = [f"in doubt: {_short(d.message)}" for d in doubt if _outweighs(d, bad)]
        refused = engine.conditions.get("ProbesAccepted")
        if bad.type == "AnswersSane" and refused is not None and refused.status is Status.FALSE and refused.since > bad.since:
            newer.append(_held(refused, now))
        return "; ".join([*newer, _held(bad, now), *_anew(f, bad, now)])
    if phase is Phase.STARTING:
        if unsure(f, now):
            up = "" if f.life.since is None else f"up for {span(now - f.life.since)}; "
            return f"{up}whether it is ready is not known yet"
        started = startup.judge(f, engine.settings.judge, now) if fresh else engine.conditions.get("Started")
        return _short(started.message) if started is not None else "starting"
    if phase is Phase.SERVING:
        if f.pause.since is not None and f.pause.holds(now):
            return f"generation is paused {lasting(now - f.pause.since)}: {f.pause.said}"
        if doubt:
            return f"in doubt: {_short(doubt[0].message)}"
        return _well(f, engine, now)
    active = engine.conditions.get("UnitActive")
    return _short(active.message) if active is not None else "systemd has not told of the unit yet"


def _anew(f: Facts, bad: Condition, now: float) -> list[str]:
    """That the next start is under way, where what is told is how the ones before it ended."""
    if f.life.phase() is not Phase.STARTING or f.life.since is None or bad.type not in OF_STARTS_BEFORE:
        return []
    return [f"the next start has lasted {span(now - f.life.since)}"]


def unsure(f: Facts, now: float) -> bool:
    """Whether the watchdog has just begun beside a server that may have been ready for long: it has neither said nor answered."""
    seen, since = f.life.first_seen, f.life.since
    met = seen is not None and since is not None and seen - since > MET_S and now - seen < FIRST_WORDS_S
    return met and f.life.phase() is Phase.STARTING and f.start.step is None and not f.life.answered


def worst(engine: Engine) -> Condition | None:
    """The condition that matters most among those that do not hold; None if all hold or are unknown."""
    for kind in WORST:
        c = engine.conditions.get(kind)
        if c is not None and c.status is Status.FALSE:
            return c
    return None


def doubts(engine: Engine) -> list[Condition]:
    """What something speaks against, though not enough to be sure; the weightiest first."""
    unknown = {(c.type, c.reason): c for c in engine.conditions.values() if c.status is Status.UNKNOWN}
    return [unknown[doubt] for doubt in DOUBTS if doubt in unknown]


def _outweighs(doubt: Condition, bad: Condition) -> bool:
    # One failed probe is little beside what is known to be wrong with the service, but not beside what memory shows.
    weak = doubt.reason == "ProbeFailed" and WORST.index(bad.type) < WORST.index("MemoryHolds")
    return not weak and WORST.index(doubt.type) < WORST.index(bad.type)


def _well(f: Facts, engine: Engine, now: float) -> str:
    serving = "serving" if f.life.proven else "serving (its readiness was not seen)"
    failed = [a for name in GENERATING if (a := f.probes.last.get(name)) is not None and a.failed]
    failed = [a for a in failed if f.life.ready_at is None or a.ended > f.life.ready_at]  # the start refused the others
    if failed:  # it moves, or requests of users end, all the same
        serving += f" although {', '.join(said(failed))} ({ago(now - max(a.ended for a in failed))})"
    parts = [serving, f.doing(now).lower()]
    canary = f.probes.last_ok.get("chat")
    if canary is not None and canary.probe.total_s is not None and canary is f.probes.last.get("chat"):
        old = now - canary.ended
        parts.append(f"canary {canary.probe.total_s:.2f} s" + (f" {ago(old)}" if old > FRESH_S else ""))
    footprint = engine.conditions.get("FootprintAsAnnounced")
    announced = f.memory.pool.announced(f.life.server)
    if footprint is not None and footprint.status is Status.TRUE and announced is not None:
        parts.append(f"host pool {format_gb(announced.total)} as announced")
    return ", ".join(parts)


def _held(c: Condition, now: float) -> str:
    """A condition that does not hold, with since when."""
    short = _short(c.message)
    return short if TIMED.search(short) else f"{short} ({lasting(now - c.since)})"


def _short(message: str) -> str:
    short = message.rstrip(".")
    return short[:1].lower() + short[1:] if short[:2] != short[:2].upper() else short
