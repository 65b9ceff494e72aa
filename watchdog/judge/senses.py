"""Are we blind? What the daemon says of itself, and what journald says it lost."""

from msgspec import structs

from watchdog.judge.facts.senses import Senses
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import span

DOWN_S = 45.0
"""What cannot be read is told after so long: it reports each 30 s, so two reports in a row say so."""


def judge(s: Senses, now: float) -> Verdict:
    """The condition Sighted."""
    if s.last is None:
        return Verdict(
            type="Sighted", status=Status.UNKNOWN, reason="NoReport", message="The daemon has not reported on itself yet."
        )
    if s.blind(now):
        said = s.said(now)
        return Verdict(type="Sighted", status=Status.FALSE, reason="Blind", message=f"{said[:1].upper()}{said[1:]}.")
    if s.bus_down_since is not None:
        message = "systemd does not answer over D-Bus: the unit's state is unknown and it could not be restarted."
        call = Call(want=Want.ALERT, reason="BusDown", message=message, severity=Severity.WARNING, advice="Look at dbus.service.")
        veto = structs.replace(call, want=Want.VETO, severity=Severity.CRITICAL)
        calls = (call, veto) if now - s.bus_down_since >= DOWN_S else (veto,)
        return Verdict(type="Sighted", status=Status.FALSE, reason="BusDown", message=message, calls=calls)
    if s.journal_down_since is not None and now - s.journal_down_since >= DOWN_S:
        message = "The journal cannot be read: batch lines and fatal lines are not seen."
        call = Call(
            want=Want.ALERT,
            reason="JournalUnreadable",
            message=message,
            advice="Add the daemon's user to group systemd-journal, and look at systemd-journald.service.",
        )
        return Verdict(type="Sighted", status=Status.FALSE, reason="JournalUnreadable", message=message, calls=(call,))
    if s.last.fallen:
        message = f"A source fails again and again, and what it should see is not known: {'; '.join(s.last.fallen)}."
        call = Call(
            want=Want.ALERT,
            reason="SourceFails",
            message=message,
            advice="The watchdog or its installation is at fault: look at its own journal, and report it.",
        )
        return Verdict(type="Sighted", status=Status.FALSE, reason="SourceFails", message=message, calls=(call,))
    unheard = s.unheard_s(now)
    if unheard:
        message = f"No line of the server has come for {span(unheard)}, though it works: its log is not read."
        advice = "Look at systemd-journald.service and at the unit's StandardError=, then restart the watchdog."
        call = Call(want=Want.ALERT, reason="LogSilent", message=message, advice=advice)
        return Verdict(type="Sighted", status=Status.FALSE, reason="LogSilent", message=message, calls=(call,))
    if s.deaf(now):
        message = f"Log lines of the unit were lost{f' ({s.lost})' if s.lost else ''}: the silence of the log proves nothing."
        return Verdict(type="Sighted", status=Status.FALSE, reason="LogLinesLost", message=message)
    return Verdict(type="Sighted", status=Status.TRUE, reason="AllSources", message="All sources report.")
