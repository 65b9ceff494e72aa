"""What comes next for a server that is not well: what the watchdog does or will not do, and what helps. Worded like alerts."""

from collections.abc import Sequence

from watchdog.act.alerts.wording import DID, HELD_BACK
from watchdog.judge import deeds
from watchdog.judge.decide import condemned, in_vain, stand_down
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
    wanted, vetoes = ([c for c in calls if c.want is want] for want in (Want.RESTART, Want.VETO))
    why = stand_down(f, now) or watch.unread
    if why is not None:
        return f"does nothing to the unit: {why}."
    if f.senses.blind(now):
        return f"concludes nothing now: {f.senses.said(now)}."
    if condemned(f, ledger, now):
        if ledger.restarts and ledger.restarts[-1].dry:
            return f"would have restarted the unit, but only says so (mode {watch.mode})."
        failed = deeds.failed(f)
        if failed is not None:
            return f"has tried to restart the unit, in vain: {deeds.why(failed)}."
        return "has ordered the restart; the new life has to prove itself."
    unmet = next((v for v in vetoes if v.unmet), vetoes[0] if vetoes and wanted else None)
    if unmet is not None:
        if unmet.reason in HELD_BACK and watch.mode == "act":
            return HELD_BACK[unmet.reason]
        return f"does not restart, since that would not help. {unmet.message}"
    if not wanted:
        if f.life.phase() is Phase.STARTING:
            return "restarts a start only when all signs of progress stand still."
        asked = {c.want for c in of_worst}
        told = Action.PLAN_RESTART if Want.PLAN_RESTART in asked else Action.ALERT if Want.ALERT in asked else None
        return DID[told][watch.mode] if told is not None else "waits: nothing calls for a restart so far."
    refused = deeds.refused(f, now)
    if refused is not None:
        return f"was refused the restart, and orders it again: {deeds.why(refused)}."
    vain = in_vain(f, wanted[0], ledger, now)
    if vain is not None:
        return HELD_BACK[vain.reason]
    spent = ledger.spent(policy, now)
    if spent is not None:
        return f"does not restart again: {spent}."
    wait_s = ledger.wait_s(policy, now)
    if wait_s > 0 and watch.mode == "act":
        return f"restarts the unit in {span(wait_s)}, when the back-off is over."
    return DID[Action.RESTART][watch.mode].format(unit=watch.server.unit)
