"""What comes next for a server that is not well: what the watchdog does or will not do, and what helps. Worded like alerts."""

from collections.abc import Sequence

from watchdog.act.alerts.wording import DID, HELD_BACK
from watchdog.judge import deeds
from watchdog.judge.decide import Barrier, Guard, barriers
from watchdog.judge.facts.life import Phase
from watchdog.judge.sentence import worst
from watchdog.judge.verdict import Action, Call, Want
from watchdog.watch import Watch
from watchdog.wording import span


def outlook(watch: Watch) -> dict[str, str | None] | None:
    """`next` and `helps`, a sentence each (`helps` may be None); None while there is nothing to be done."""
    engine, now = watch.engine, watch.clock.now()
    bad = worst(engine)
    order = watch.saved.under_way
    if order is not None and (bad is None or order.stage == "recovery"):
        return {"next": f"The watchdog restarts the unit for {order.reason}; the new life has to prove itself.", "helps": None}
    if bad is None and engine.facts.life.phase() is not Phase.STARTING:
        return None
    verdicts = engine.judge(now)
    calls = [c for v in verdicts for c in v.calls]
    # Only of what is said to be wrong: what helps against something else would mislead.
    of_worst = [c for v in verdicts if bad is not None and v.type == bad.type for c in v.calls]
    vetoes = [c for c in calls if c.want is Want.VETO]
    helps = next((c.advice for c in (*vetoes, *of_worst) if c.advice), None)
    return {"next": f"The watchdog {_next(watch, calls, of_worst, now)}", "helps": helps}


def _next(watch: Watch, calls: Sequence[Call], of_worst: Sequence[Call], now: float) -> str:
    f, ledger, policy = watch.engine.facts, watch.engine.ledger, watch.server.restart
    first = next(barriers(f, calls, ledger, policy, now), None)
    if watch.unread is not None and (first is None or first.guard is not Guard.STAND_DOWN):
        return f"does nothing to the unit: {watch.unread}."
    if first is not None:
        return held(watch, first, now)
    if any(c.want is Want.RESTART for c in calls):
        return DID[Action.RESTART][watch.mode].format(unit=watch.server.unit)
    if f.life.phase() is Phase.STARTING:
        return "restarts a start only when all signs of progress stand still."
    asked = {c.want for c in of_worst}
    told = Action.PLAN_RESTART if Want.PLAN_RESTART in asked else Action.ALERT if Want.ALERT in asked else None
    return DID[told][watch.mode] if told is not None else "waits: nothing calls for a restart so far."


def held(watch: Watch, barrier: Barrier, now: float) -> str:
    """What the watchdog does where this stands in the way; "The watchdog" goes before it."""
    f, ledger, policy = watch.engine.facts, watch.engine.ledger, watch.server.restart
    match barrier.guard:
        case Guard.STAND_DOWN:
            return f"does nothing to the unit: {barrier.why}."
        case Guard.BLIND:
            return f"concludes nothing now: {barrier.why}."
        case Guard.CONDEMNED:
            if ledger.restarts and ledger.restarts[-1].dry:
                return f"would have restarted the unit, but only says so (mode {watch.mode})."
            failed = deeds.failed(f)
            if failed is not None:
                return f"has tried to restart the unit, in vain: {deeds.why(failed)}."
            return "has ordered the restart; the new life has to prove itself."
        case Guard.VETO:
            if barrier.call is not None and barrier.call.reason in HELD_BACK and watch.mode == "act":
                return HELD_BACK[barrier.call.reason]
            return f"does not restart, since {barrier.why}"
        case Guard.TRANSIT:
            return f"waits: {barrier.why}."
        case Guard.NOT_YET:
            deed, when = deeds.refused(f, now), f"orders it again in {span(ledger.again_s(now))}"
            return f"was refused the restart, and {when}: {deeds.why(deed)}." if deed is not None else f"{when}: {barrier.why}."
        case Guard.VAIN:
            return HELD_BACK[barrier.call.reason] if barrier.call is not None else f"does not restart again: {barrier.why}"
        case Guard.BUDGET:
            return f"does not restart again: {barrier.why}."
        case Guard.BACK_OFF:
            when = f"in {span(ledger.wait_s(policy, now))}, when the back-off is over"
            said = {"act": f"restarts the unit {when}.", "observe": f"would restart it {when}, but only looks on (mode observe)."}
            return said.get(watch.mode) or DID[Action.RESTART][watch.mode].format(unit=watch.server.unit)
