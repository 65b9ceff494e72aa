"""Why an engine holds what it holds at a moment, and what would have to change for a restart. Changes nothing."""

from collections.abc import Iterator
from typing import Any

from watchdog.judge import deeds, motion
from watchdog.judge.decide import condemned, in_vain, stand_down
from watchdog.judge.engine import Engine
from watchdog.judge.facts.deaths import Death, ending
from watchdog.judge.facts.life import Life, Phase
from watchdog.judge.outage import GRACE_S
from watchdog.judge.patience import patience
from watchdog.judge.sentence import sentence
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import ago, lasting, span

ORDER = (Status.FALSE, Status.UNKNOWN, Status.TRUE)
MARK = {"True": "holds", "False": "does not hold", "Unknown": "is unknown"}


def explain(engine: Engine, now: float) -> dict[str, Any]:
    """What is held at `now`, as plain data (JSON): times are seconds on the engine's clock.

    Keys: `t`, `sentence`, `phase`, `since`, `ready` (how readiness was told, or null), `conditions` (type, status, reason,
    message, since when they hold for that reason; the worst first), `wanted` and `vetoes` (reason, message, advice, evidence),
    `stand_down`, `blind`, `condemned`, `budget` (spent, limit, forbidden, wait_s), `restart` (sentences: what comes, or what
    would have to change).
    """
    f, policy = engine.facts, engine.settings.restart
    verdicts = engine.judge(now)
    calls = [c for v in verdicts for c in v.calls]
    recent = [r for r in engine.ledger.restarts if now - r.t < policy.budget_s]
    told = {
        "t": round(now, 3),
        "sentence": sentence(engine, now, fresh=True),
        "phase": str(f.life.phase().value),
        "since": f.life.since,
        "ready": f.life.ready_how or None,
        "conditions": [
            {
                "type": v.type,
                "status": str(v.status),
                "reason": v.reason,
                "message": v.message,
                "since": _since(engine, v, now),
            }
            for v in sorted(verdicts, key=lambda v: ORDER.index(v.status))
        ],
        "wanted": [_told(c) for c in calls if c.want is Want.RESTART],
        "vetoes": [_told(c) for c in calls if c.want is Want.VETO],
        "stand_down": stand_down(f, now),
        "blind": f.senses.said(now) if f.senses.blind(now) else None,
        "condemned": condemned(f, engine.ledger, now),
        "budget": {
            "spent": len(recent),
            "limit": policy.budget,
            "forbidden": engine.ledger.spent(policy, now),
            "wait_s": round(engine.ledger.wait_s(policy, now), 1),
        },
    }
    return {**told, "restart": list(_restart(engine, now, told))}


def _since(engine: Engine, v: Verdict, now: float) -> float:
    c = engine.conditions.get(v.type)
    same = c is not None and (c.status, c.reason) == (v.status, v.reason)
    return round(c.reason_since if c is not None and same else now, 3)


def _told(call: Call) -> dict[str, Any]:
    return {"reason": call.reason, "message": call.message, "advice": call.advice, "evidence": list(call.evidence)}


def _restart(engine: Engine, now: float, told: dict[str, Any]) -> Iterator[str]:
    """What stands in a restart's way, guard by guard in the order of decide.py; then what would call for one."""
    if told["stand_down"]:
        yield f"Forbidden now: {told['stand_down']}. That must end first."
    if told["blind"]:
        yield f"Nothing is concluded now: {told['blind']}."
    if told["condemned"]:
        failed = deeds.failed(engine.facts)
        came = "" if failed is None else f" It came to nothing {ago(now - failed.t)} ({deeds.why(failed)})."
        yield f"The restart of this life has been ordered: the next decision is about the life after it.{came}"
    for veto in told["vetoes"]:
        yield f"Withheld ({veto['reason']}): {veto['message']} {veto['advice'] or ''}".rstrip()
    if engine.facts.life.in_transit:
        yield "Not now: systemd is at work on the unit."
    yield from _refused(engine, now)
    called = [c for v in engine.judge(now) for c in v.calls if c.want is Want.RESTART]
    vain = in_vain(engine.facts, called[0], engine.ledger, now) if called and not told["condemned"] else None
    if vain is not None:
        yield f"Withheld ({vain.reason}): {vain.message} {vain.advice}"
    if told["budget"]["forbidden"]:
        yield f"Not in the budget: {told['budget']['forbidden']}."
    elif told["budget"]["wait_s"] > 0:
        yield f"The back-off would let one wait for {span(told['budget']['wait_s'])}."
    if told["wanted"]:
        yield f"Called for: {told['wanted'][0]['message']}"
    else:
        yield from _needed(engine, now)


def _refused(engine: Engine, now: float) -> Iterator[str]:
    """That a restart was not carried out, and when it is ordered again."""
    refused = engine.ledger.refused
    if refused is None:
        return
    deed = deeds.refused(engine.facts, now)
    who = f" ({deeds.why(deed)})" if deed is not None else ""
    wait_s = engine.ledger.again_s(now)
    again = f"in {span(wait_s)}" if wait_s > 0 else "as soon as nothing else stands in its way"
    yield (
        f"The last attempt came to nothing before it was begun, {ago(now - refused.t)}{who}, and does not count: "
        f"if it is still called for, it is made again {again}."
    )


def _needed(engine: Engine, now: float) -> Iterator[str]:
    """What is missing from the evidence for a restart."""
    f, policy = engine.facts, engine.settings.judge
    phase = f.life.phase()
    if phase is Phase.STARTING:
        yield "Not called for: a start is restarted when all signs of progress (lines, memory, reading, compilers) stand still."
        return
    ended = f.life.deaths.told(f.life.inv)
    if phase is Phase.OFF and ended is not None and not ended.asked:
        yield from _left_to_systemd(f.life, ended, now)
        return
    if phase is not Phase.SERVING or f.life.headless:
        yield "Not called for: an end that nobody asked for, or an engine process that vanishes, would."
        return
    limit, why = patience(f, policy, now)
    silence = now - motion.last_motion(f)
    failed = len(f.probes.failures_since(motion.last_motion(f)))
    yield (
        f"Not called for as hung: the engine last moved {ago(silence)} (odd after {span(limit)}: {why}), "
        f"failed probes since then: {failed}; it takes such a silence and two failed probes."
    )
    yield (
        f"Not called for as stalled: canaries would have to fail for {span(policy.stall_s)} with no request ending, "
        f"or nothing be let in for {span(2 * policy.stall_s)} with a queue and room."
    )
    yield (
        "It would also be if an engine process vanished, the unit ended unasked, "
        f"or {policy.garbage_count} and more answers were garbage."
    )


def _left_to_systemd(life: Life, ended: Death, now: float) -> Iterator[str]:
    """It has just ended although nobody asked for it, and systemd comes first."""
    restart = f"Restart={(life.unit.restart if life.unit is not None else None) or 'no'}"
    said = f"it ended {ago(now - ended.t)} although nobody asked for it ({ending(ended.code)})"
    if not life.down:
        yield f"Left to systemd: {said}, and systemd starts it again ({restart}). It is called for if systemd gives up."
        return
    wait_s = GRACE_S - (now - ended.t)
    when = f"in {span(wait_s)}" if wait_s > 0 else "as soon as that is sure"
    yield f"Not called for yet: {said}. systemd goes first ({restart}); if it does not start it, a restart is called for {when}."


def text(told: dict[str, Any]) -> str:
    """The explanation for people."""
    since = "" if told["since"] is None else f", {lasting(told['t'] - told['since'])}"
    ready = f"; ready, told by {told['ready']}" if told["ready"] else ""
    lines = [f"At {_clock(told['t'])}: {told['sentence']}", f"Phase: {told['phase']}{since}{ready}", "", "Conditions:"]
    for c in told["conditions"]:
        head = f"  {c['type']} {MARK[c['status']]} ({c['reason']}, {lasting(told['t'] - c['since'])})"
        lines.append(f"{head}: {c['message']}")
    budget = told["budget"]
    lines += ["", f"A restart ({budget['spent']} of {budget['limit']} are spent):", *(f"  {line}" for line in told["restart"])]
    return "\n".join(lines)


def _clock(t: float) -> str:
    return f"{t:.0f} s of the record"
