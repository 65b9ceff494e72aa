"""Can we do what we decide? Whether we may restart the unit, and what came of the restarts that were ordered."""

from msgspec import structs

from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want

FAILED = ("refused", "failed", "timeout", "unknown", "dependency")


def judge(f: Facts) -> Verdict:
    """The condition AbleToAct."""
    kind = "AbleToAct"
    may = f.senses.last.may_restart if f.senses.last is not None else None
    if may is False:
        message = "polkit does not let this daemon restart the unit: a restart that is called for would be refused."
        advice = "Install the polkit rule for this unit (units/ in the sources), or run `sglang-watchdog setup`."
        call = Call(want=Want.ALERT, reason="MayNotRestart", message=message, severity=Severity.CRITICAL, advice=advice)
        veto = structs.replace(call, want=Want.VETO)  # it withholds the restarts that others call for
        return Verdict(type=kind, status=Status.FALSE, reason="MayNotRestart", message=message, calls=(call, veto))
    deed = f.deed
    if deed is not None and deed.result in FAILED and f.life.inv == deed.inv:
        message = f"The ordered restart came to nothing ({deed.result}): {deed.detail or 'no reason was given'}."
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
