"""Can we do what we decide? Whether we may restart the unit, and what came of the restarts that were ordered."""

from msgspec import structs

from watchdog.judge.facts import Facts
from watchdog.judge.ledger import REFUSED_LONGEST_S
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.observation import Acted
from watchdog.wording import NOT_RESTARTED

FAILED = ("failed", "timeout", "unknown", "dependency", "skipped")
REFUSED_S = 2 * REFUSED_LONGEST_S
"""A refusal is of the present for so long: as long as a restart is called for, the next attempt is made sooner."""


def failed(f: Facts) -> Acted | None:
    """The restart of the present life that was carried out and came to nothing; None without one."""
    return f.deed if f.deed is not None and f.deed.result in FAILED and f.life.inv == f.deed.inv else None


def refused(f: Facts, now: float) -> Acted | None:
    """The restart of the present life that was refused of late before systemd began it; None without one."""
    deed = f.deed
    lately = deed is not None and deed.result == "refused" and f.life.inv == deed.inv and now - deed.t < REFUSED_S
    return deed if lately else None


def why(deed: Acted) -> str:
    """What came of it, as a phrase."""
    return (deed.detail or "no reason was given").removeprefix(NOT_RESTARTED).rstrip(".")


def judge(f: Facts, now: float) -> Verdict:
    """The condition AbleToAct."""
    kind = "AbleToAct"
    may = f.senses.last.may_restart if f.senses.last is not None else None
    if may is False:
        message = "polkit does not let this daemon restart the unit: a restart that is called for would be refused."
        advice = "Install the polkit rule for this unit (units/ in the sources), or run `sglang-watchdog setup`."
        call = Call(want=Want.ALERT, reason="MayNotRestart", message=message, severity=Severity.CRITICAL, advice=advice)
        veto = structs.replace(call, want=Want.VETO)  # it withholds the restarts that others call for
        return Verdict(type=kind, status=Status.FALSE, reason="MayNotRestart", message=message, calls=(call, veto))
    no = refused(f, now)
    if no is not None:
        message = f"The ordered restart was refused, and nothing was done: {why(no)}."
        advice = "Mend what it names; the watchdog orders the restart again by itself, and no refusal counts as a restart."
        call = Call(want=Want.ALERT, reason="RestartRefused", message=message, severity=Severity.CRITICAL, advice=advice)
        return Verdict(type=kind, status=Status.FALSE, reason="RestartRefused", message=message, calls=(call,))
    deed = failed(f)
    if deed is not None:
        message = f"The ordered restart came to nothing ({deed.result}): {why(deed)}."
        call = Call(
            want=Want.ALERT,
            reason="RestartFailed",
            message=message,
            severity=Severity.CRITICAL,
            advice="Restart the unit by hand.",
        )
        return Verdict(type=kind, status=Status.FALSE, reason="RestartFailed", message=message, calls=(call,))
    if may is None:
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="NotTold", message="Whether we may restart the unit is not known."
        )
    return Verdict(type=kind, status=Status.TRUE, reason="Able", message="We may restart the unit.")
