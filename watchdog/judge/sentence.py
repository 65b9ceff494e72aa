"""The one sentence that says how a server is: for STATUS=, the terminal and the page."""

from watchdog.judge.decide import stand_down
from watchdog.judge.engine import Engine
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Condition, Status
from watchdog.units import format_gb

# Conditions that are worth the sentence when they do not hold, the worst first.
WORST = (
    "UnitActive",
    "ProcessesPresent",
    "SchedulerProgressing",
    "RequestsCompleting",
    "AnswersSane",
    "Started",
    "DevicesHealthy",
    "Restartable",
    "MemoryHolds",
    "FootprintAsAnnounced",
    "QueueFlowing",
    "ProbesAccepted",
    "SpeculationEffective",
    "DecodeSpeed",
    "FirstTokenSpeed",
    "LogClean",
    "Sighted",
)


def sentence(engine: Engine, now: float) -> str:
    """How the server is at `now`, in one sentence without a full stop."""
    f = engine.facts
    phase = f.life.phase()
    if f.paused(now):
        return f"{_well(engine, now) if phase is Phase.SERVING else phase.value}; {stand_down(f, now)}"
    bad = worst(engine)
    if bad is not None:
        return _short(bad.message)
    if phase is Phase.STARTING:
        started = engine.conditions.get("Started")
        return _short(started.message) if started is not None else "starting"
    if phase is Phase.SERVING:
        doubt = engine.conditions.get("SchedulerProgressing")
        if doubt is not None and doubt.status is Status.UNKNOWN and doubt.reason in ("Silent", "ProbeFailed"):
            return _short(doubt.message)
        return _well(engine, now)
    active = engine.conditions.get("UnitActive")
    return _short(active.message) if active is not None else f"the server is {phase.value}"


def worst(engine: Engine) -> Condition | None:
    """The condition that matters most among those that do not hold; None if all hold or are unknown."""
    for kind in WORST:
        c = engine.conditions.get(kind)
        if c is not None and c.status is Status.FALSE:
            return c
    return None


def _well(engine: Engine, now: float) -> str:
    f = engine.facts
    parts = ["serving" if f.life.proven else "serving (its readiness was not seen)"]
    parts.append(f.doing(now).lower())
    canary = f.probes.last_ok.get("chat")
    if canary is not None and canary.probe.total_s is not None:
        parts.append(f"canary {canary.probe.total_s:.2f} s")
    footprint = engine.conditions.get("FootprintAsAnnounced")
    announced = f.memory.pool.announced(f.life.server)
    if footprint is not None and footprint.status is Status.TRUE and announced is not None:
        parts.append(f"host pool {format_gb(announced.total)} as announced")
    return ", ".join(parts)


def _short(message: str) -> str:
    text = message.rstrip(".")
    return text[:1].lower() + text[1:] if text[:2] != text[:2].upper() else text
