"""From what the judges ask for to what is done: vetoes, stand-downs, budget, back-off, and each thing said once.

The order of the guards is the policy:

1. a person, the host or systemd at work: stand down;
2. blind: nothing;
3. a condemned incarnation: wait for the next;
4. a veto: withhold, and say what helps instead;
5. a unit between two states, and a restart that was just refused, or given up, before it began: wait a little;
6. a restart that did not cure the same fault a short while ago: withhold;
7. the budget: withhold, and alert; the back-off: wait;
8. restart.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from watchdog.config import Restarting
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.ledger import Ledger
from watchdog.judge.verdict import Action, Call, Intent, Severity, Verdict, Want
from watchdog.wording import ago

CLEAR_S = 120.0
"""An alert is over when nothing has called for it for so long."""
FORGET_S = 6 * 3600.0
"""A veto that was said is said again after so long, if it still stands in the way."""
RETRY_S = 900.0
"""A restart that was ordered and brought no new life is thought of as failed after so long."""
AGAIN_S = 3600.0
"""The same fault so soon after its restart: the restart did not cure it."""


class Guard(Enum):
    """What can stand in the way of a restart, in the order of the policy."""

    STAND_DOWN = auto()
    BLIND = auto()
    CONDEMNED = auto()
    VETO = auto()
    TRANSIT = auto()
    NOT_YET = auto()
    VAIN = auto()
    BUDGET = auto()
    BACK_OFF = auto()


QUIET = frozenset({Guard.STAND_DOWN, Guard.BLIND, Guard.CONDEMNED})
"""Behind these nothing at all is decided, not even that evidence is gathered."""
OF_AN_ORDER = frozenset({Guard.CONDEMNED, Guard.NOT_YET, Guard.VAIN, Guard.BUDGET, Guard.BACK_OFF})
"""These look at the orders that were given: they are no reason against carrying out the one that they have let through."""


class Barrier(NamedTuple):
    """A guard that stands in the way now.

    Attributes:
        guard: which.
        why: a phrase.
        call: what is said of it to people, where it is to be said; None where it passes by itself.
    """

    guard: Guard
    why: str
    call: Call | None = None


def decide(
    f: Facts, verdicts: Iterable[Verdict], ledger: Ledger, policy: Restarting, now: float, *, dry: bool = False
) -> list[Intent]:
    """The intents of this moment. Writes what it decided into the ledger; everything else is read only."""
    calls = [c for v in verdicts for c in v.calls]
    out: list[Intent] = []
    if not dry:
        ledger.forget_dry()
    _settle(f, ledger, now)
    out += _alerts(f, calls, ledger, now)
    first = next(barriers(f, calls, ledger, policy, now), None)
    if first is None or first.guard not in QUIET:
        out += _diagnoses(f, calls, ledger)
        wanted = [c for c in calls if c.want is Want.RESTART]
        if first is not None and first.call is not None:
            out += _withhold(first.call, wanted, ledger, now)
        elif first is None and wanted:
            out += _restart(f, wanted[0], ledger, policy, now, dry=dry)
        out += _plans(calls, ledger, now)
    return out


def barriers(f: Facts, calls: Sequence[Call], ledger: Ledger, policy: Restarting, now: float) -> Iterator[Barrier]:
    """All that stands in the way of a restart now, in the order of the policy. Changes nothing."""
    why = stand_down(f, now)
    if why is not None:
        yield Barrier(Guard.STAND_DOWN, why)
    if f.senses.blind(now):
        yield Barrier(Guard.BLIND, f.senses.said(now))
    if condemned(f, ledger, now):
        yield Barrier(Guard.CONDEMNED, "the restart of this life has been ordered")
    wanted = [c for c in calls if c.want is Want.RESTART]
    vetoes = [c for c in calls if c.want is Want.VETO]
    # The veto that itself says why the server cannot come up names the cause best.
    veto = next((v for v in vetoes if v.unmet), vetoes[0] if vetoes and wanted else None)
    if veto is not None:
        yield Barrier(Guard.VETO, f"that would not help. {veto.message}", veto)
    if not wanted:
        return
    if f.life.in_transit:
        yield Barrier(Guard.TRANSIT, "systemd is at work on the unit")
    if ledger.again_s(now) > 0:
        yield Barrier(Guard.NOT_YET, "the last order was not carried out")
    vain = in_vain(f, wanted[0], ledger, now)
    if vain is not None:
        yield Barrier(Guard.VAIN, vain.message, vain)
    spent = ledger.spent(policy, now)
    if spent is not None:
        yield Barrier(Guard.BUDGET, spent, _budget_spent(wanted[0], spent))
    if ledger.wait_s(policy, now) > 0:
        yield Barrier(Guard.BACK_OFF, "the back-off is not over")


def stand_down(f: Facts, now: float) -> str | None:
    """Why nothing may be done to the unit now, whatever it calls for; None if nothing forbids it."""
    life = f.life
    if f.paused(now):
        return "paused by a person" + (f": {f.pause_reason}" if f.pause_reason else "")
    if f.senses.last is not None and f.senses.last.shutting_down:
        return "the host is going down"
    if life.job is not None:
        return f"a {life.job} job of somebody else is running"
    if life.stop_asked_at is not None:
        return f"{life.asked_by} asked for a stop"
    if life.sigterm_at is not None and life.unit is not None and life.unit.active_state == "active":
        return "the server drains after a SIGTERM"
    return None


def condemned(f: Facts, ledger: Ledger, now: float) -> bool:
    """Whether the restart of this life was ordered and may still come about: nothing more is decided about it."""
    if ledger.condemned_at is None or f.life.inv != ledger.condemned:
        return False
    said_only = bool(ledger.restarts) and ledger.restarts[-1].dry
    return said_only or now - ledger.condemned_at < RETRY_S or f.life.our_job


def _settle(f: Facts, ledger: Ledger, now: float) -> None:
    """A new life lifts what belonged to the old one; a proven one proves the restart that brought it."""
    if ledger.condemned_at is not None and f.life.inv != ledger.condemned:
        ledger.condemned, ledger.condemned_at = None, None
    if ledger.refused is not None and f.life.inv != ledger.refused.inv:
        ledger.refused = None
    if f.life.proven and f.answers.good and ledger.restarts and ledger.restarts[-1].inv != f.life.inv:
        ledger.restarts[-1].proven = True
    if f.life.proven and f.life.surely_ready(now) and f.life.dying_at is None:
        # What stood in the way of a life before it is news if it comes again.
        since = f.life.ready_at or now
        ledger.withheld = {reason: t for reason, t in ledger.withheld.items() if t >= since}
    ledger.withheld = {reason: t for reason, t in ledger.withheld.items() if now - t <= FORGET_S}


def _alerts(f: Facts, calls: list[Call], ledger: Ledger, now: float) -> Iterator[Intent]:
    """Each alert once, on its edge, and each event once; cleared when nothing calls for it any more.

    A start or a stop shows nothing of what ailed the life before it, and may come to it again: until the server serves, or is
    left down, nothing is over; nor is it before the unit was looked at.
    """
    phase = f.life.phase()
    unseen = (
        phase in (Phase.UNKNOWN, Phase.STARTING, Phase.STOPPING) or f.life.looping(now) or (phase is Phase.OFF and f.life.ours)
    )
    for call in calls:
        if call.want is not Want.ALERT:
            continue
        called = ledger.alerts.get(call.reason)
        if called is None and call.quiet:
            continue
        if called is None or (call.at is not None and call.at > ledger.events.get(call.reason, called)):
            yield _intent(Action.ALERT, call)
            if call.at is not None:
                ledger.events[call.reason] = call.at
        ledger.alerts[call.reason] = now
    for reason, last in list(ledger.alerts.items()):
        if now - last > CLEAR_S and not unseen:
            del ledger.alerts[reason]
            ledger.events.pop(reason, None)
            yield Intent(action=Action.CLEAR, reason=reason, severity=Severity.INFO, message=f"{reason} is over.")


def _diagnoses(f: Facts, calls: list[Call], ledger: Ledger) -> Iterator[Intent]:
    """Evidence is gathered once for each suspicion in a life."""
    for call in calls:
        if call.want is Want.DIAGNOSE and ledger.diagnosed.get(call.reason, "") != f.life.inv:
            ledger.diagnosed[call.reason] = f.life.inv
            yield _intent(Action.DIAGNOSE, call)


def _plans(calls: list[Call], ledger: Ledger, now: float) -> Iterator[Intent]:
    for call in calls:
        if call.want is Want.PLAN_RESTART and now - ledger.planned.get(call.reason, -1e18) > FORGET_S:
            ledger.planned[call.reason] = now
            yield _intent(Action.PLAN_RESTART, call)


def _restart(f: Facts, call: Call, ledger: Ledger, policy: Restarting, now: float, *, dry: bool) -> Iterator[Intent]:
    if ledger.diagnosed.get(call.reason, "") != f.life.inv:
        ledger.diagnosed[call.reason] = f.life.inv
        yield _intent(Action.DIAGNOSE, call)
    ledger.order(now, call.reason, f.life.inv, policy, dry=dry)
    yield _intent(Action.RESTART, call)


def _budget_spent(call: Call, spent: str) -> Call:
    return Call(
        want=Want.VETO,
        reason="BudgetSpent",
        message=f"{call.message} But {spent}.",
        severity=Severity.CRITICAL,
        advice="Find the cause with the incidents' bundles, and restart it by hand: the budget has room again only with time.",
    )


def in_vain(f: Facts, call: Call, ledger: Ledger, now: float) -> Call | None:
    """The same fault soon after its restart, in a life that never served: the cause outlives restarts."""
    mended = ledger.repaired_at if ledger.repaired_at is not None else -math.inf
    same = [r for r in ledger.restarts if r.reason == call.reason and now - r.t < AGAIN_S and r.t > mended]
    if not same or same[-1].proven:
        return None
    when = ago(now - same[-1].t)
    if same[-1].inv == f.life.inv:
        reason = "RestartFailed"
        message = f"{call.message} The restart ordered {when} has brought no new life."
        advice = "Restart the unit by hand, and look at why systemd did not: `systemctl status` and the journal of PID 1."
    else:
        reason = "NotCured"
        message = f"{call.message} The restart {when}, for the same reason, did not cure it."
        advice = "The cause outlives restarts: look at configuration, devices and the bundle of the first incident."
    return Call(want=Want.VETO, reason=reason, message=message, severity=Severity.CRITICAL, advice=advice, evidence=call.evidence)


def _withhold(veto: Call, wanted: list[Call], ledger: Ledger, now: float) -> Iterator[Intent]:
    if veto.reason in ledger.withheld:
        return
    ledger.withheld[veto.reason] = now
    evidence = (*veto.evidence, *(w.message for w in wanted[:1]))
    yield Intent(
        action=Action.WITHHOLD,
        reason=veto.reason,
        severity=Severity.CRITICAL,
        message=veto.message,
        advice=veto.advice,
        evidence=evidence,
    )


def _intent(action: Action, call: Call) -> Intent:
    return Intent(
        action=action,
        reason=call.reason,
        severity=call.severity,
        message=call.message,
        advice=call.advice,
        evidence=call.evidence,
    )
