"""When did the trouble begin that a finding names? It is found after a patience; what it costs counts from its beginning."""

from watchdog.judge.engine import Engine
from watchdog.judge.facts import Facts
from watchdog.judge.motion import last_motion, shut_since, unanswered
from watchdog.judge.verdict import Action, Intent, Want


def onset(engine: Engine, intent: Intent) -> float | None:
    """Since when that lasts which was just decided on, on the engine's clock; None where the finding names no moment."""
    reasons = [intent.reason]
    if intent.action is Action.WITHHOLD:  # its reason is why nothing is done; what calls for something stands beside it
        reasons += [c.reason for v in engine.verdicts for c in v.calls if c.want is Want.RESTART]
    known = [t for reason in reasons if (t := _since(engine.facts, reason)) is not None]
    return min(known, default=None)


def _since(f: Facts, reason: str) -> float | None:
    match reason:
        case "SchedulerHung" | "SchedulerSilent":
            return last_motion(f)
        case "NothingReachesUsers":
            return _unreached_since(f)
        case "NotAdmitting":
            return shut_since(f)
        case "CanaryErrors" | "ErrorsFromTheStart" | "HalfFails":
            return f.answers.errors[0].t if f.answers.errors else None
        case "GarbageAnswers" | "GarbageFromTheStart":
            return f.answers.run.since if f.answers.run is not None else None
        case "FatalLine" | "DyingNeverEnded":
            return f.life.dying_at
        case "ProcessGone":
            return min((since for since, _ in f.ranks.missing.values()), default=None)
        case "ServerDied" | "DiedUnasked" | "SameEarlyDeath":
            return next((d.t for d in reversed(f.life.deaths) if not d.asked), None)
        case "StartStuck":
            return max((t for t in (f.start.progress_at, f.life.since, f.life.first_seen) if t is not None), default=None)
    return None


def _unreached_since(f: Facts) -> float | None:
    """Since when canaries get no answer, as completing.stalled counts it."""
    first = next(iter(unanswered(f)), None)
    if first is None:
        return None
    begun, ended = max(first.began, f.forgiven_at or first.began), f.work.ended_at
    # It is found only where no request has ended for long: one that ended since the first failure was before the trouble.
    return begun if ended is None else max(begun, ended)
