"""Is the unit up, and if not, who wanted that? An exit that nobody asked for is a crash, whatever its status."""

import math
import re

from msgspec import structs

from watchdog.judge.facts import Facts
from watchdog.judge.facts.deaths import LAST_LINES_S, Death, alike, count, ending
from watchdog.judge.facts.life import LIMIT_S, Life, Phase
from watchdog.judge.facts.orders import Refusal
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.judge.vetoes import oom_advice, start_advice
from watchdog.observation import Unit
from watchdog.wording import ago, quoted, span

GRACE_S = 20.0
"""systemd's own Restart= goes first: so long after the end it may still schedule something."""
SIGNALLED_S = 600.0
"""Who ends the server by hand to start it again does so sooner."""
RECENT_S = 86400.0
UNLOADED = {
    "not-found": "Check the unit's name in the configuration, or put its file back, then `systemctl daemon-reload`.",
    "masked": "If it is to be restarted again, `systemctl unmask` it.",
}
"""What helps where systemd has not loaded the unit, by its LoadState."""
REFUSALS = {
    "failed": ("systemd could not start it", "Look at `systemctl status` and at PID 1's lines about the unit, then start it."),
    "dependency": (
        "a unit that it requires could not be started",
        "Start what it requires (`systemctl list-dependencies` and `systemctl --failed` show which it is), then the server.",
    ),
    "timeout": ("the job ran into its own time limit (JobTimeoutSec=)", "Find what it waited for, then start it."),
}
"""By the result of a job that was to start the unit: what that means, and what helps."""
STOP_TOLD_S = 3600.0
"""A stop that needed SIGKILL is told for so long."""
STOP_ADVICE = (
    "If requests were still in hand, take it out of the traffic before a stop, or raise TimeoutStopSec= in its unit above the "
    "longest answer; if none were, its last lines say what it waited for."
)
SIGKILLED = re.compile(r"\bexit code (-9|137)\b")
"""A child that got SIGKILL, as Python and a shell tell it: what was printed says nothing of the cause."""


def judge(f: Facts, now: float, over_at: float = -math.inf) -> Verdict:
    """The condition UnitActive.

    Args:
        f: what is known.
        now: the moment.
        over_at: ends until this moment are made good by a life that is well.
    """
    verdict = _judge(f, now, over_at)
    return structs.replace(verdict, calls=(*verdict.calls, *_stop_killed(f.life, now)))


def _judge(f: Facts, now: float, over_at: float) -> Verdict:
    u = f.life.unit
    if u is None:
        return _verdict(Status.UNKNOWN, "NotSeen", "systemd has not been asked yet.")
    if u.load_state not in (None, "loaded"):
        return _unloaded(u.load_state)
    return _down(f, u, now, over_at) if f.life.down else _up(f, u, now, over_at)


def _verdict(status: Status, reason: str, message: str, *calls: Call) -> Verdict:
    return Verdict(type="UnitActive", status=status, reason=reason, message=message, calls=calls)


def _unloaded(load_state: str | None) -> Verdict:
    """There is no such unit, or systemd may not start it."""
    message = f"systemd says that the unit is {load_state}: it would refuse to restart it."
    mend = "Mend the unit's file (`systemctl status` says what is wrong), then `systemctl daemon-reload`."
    advice = UNLOADED.get(load_state or "", mend)
    call = Call(want=Want.ALERT, reason="UnitMissing", message=message, severity=Severity.CRITICAL, advice=advice)
    veto = structs.replace(call, want=Want.VETO)  # it withholds the restarts that others call for
    return _verdict(Status.FALSE, "UnitMissing", message, call, veto)


def _up(f: Facts, u: Unit, now: float, over_at: float) -> Verdict:
    """The unit is not down, though it may be about to begin or to end."""
    life = f.life
    calls = _crashes(f, now, over_at)
    phase = life.phase()
    if phase is Phase.UNKNOWN:
        return _verdict(Status.UNKNOWN, "StateUnknown", "systemd does not tell the unit's state.", *calls)
    if life.looping(now):
        times = count(life.deaths.early())
        message = f"It dies soon after each start, {times} times so far; systemd starts it again each time."
        return _verdict(Status.FALSE, "CrashLoop", message, *calls)
    if phase is Phase.OFF:
        of = f" ({_said(life.deaths[-1])})" if life.deaths else ""
        return _verdict(Status.FALSE, "AutoRestart", f"It died{of}; systemd will start it again.", *calls)
    if phase is Phase.STOPPING:
        who = f", {life.asked_by} asked for it" if life.stop_asked_at is not None else ""
        if life.ours and not who:
            who = ": the watchdog restarts it"
        else:
            who += _how_long(life, now)
        return _verdict(Status.UNKNOWN, "Stopping", f"The unit is stopping{who}.", *calls)
    return _verdict(Status.TRUE, "Active", f"The unit is {u.active_state} ({u.sub_state or 'unknown'}).", *calls)


def _down(f: Facts, u: Unit, now: float, over_at: float) -> Verdict:
    """The unit is down: because we restart it, because somebody wants it so, or because it died."""
    life, death = f.life, f.life.deaths.told(f.life.inv)
    if life.ours and life.stop_asked_at is None:
        how = "the watchdog restarts it" if life.our_job else "the watchdog's restart has brought no new life yet"
        return _verdict(Status.UNKNOWN, "Restarting", f"The unit is down: {how}.")
    going_down = f.senses.last is not None and f.senses.last.shutting_down
    refusal = life.orders.refused(life.inv)
    if refusal is not None and life.job is None and not going_down and now - refusal.t >= LIMIT_S:
        by_request = death is None or death.asked
        # What died unasked, and was then started in vain, is restarted as ever: that lifts the start limit.
        if by_request or refusal.result != "failed":
            return _refused(life, refusal, now)
    if life.stop_asked_at is None and life.job is None and death is not None and death.signalled and not going_down:
        return _signalled(death, now)
    if life.stop_asked_at is not None or life.deaths.asked(life.inv):
        return _verdict(Status.UNKNOWN, "StoppedByRequest", f"Stopped: {life.asked_by or 'a person'} asked for it.")
    if death is not None:
        return _died(f, u, death, now, over_at)
    if u.active_state != "failed":
        return _verdict(Status.UNKNOWN, "NotStarted", "The unit is not running, and was not when we first looked.")
    message = f"The unit had failed before we looked (result {u.result or 'unknown'}); who wanted what is unknown."
    call = Call(
        want=Want.ALERT,
        reason="UnitFailed",
        message=message,
        severity=Severity.CRITICAL,
        advice="Look at its journal and start it.",
    )
    return _verdict(Status.FALSE, "UnitFailed", message, *_crashes(f, now, over_at), call)


def _died(f: Facts, u: Unit, death: Death, now: float, over_at: float) -> Verdict:
    """Nobody asked for its end; whether systemd brings it back is seen first."""
    life = f.life
    since = max(death.t, f.forgiven_at or death.t)
    said = _said(death)
    unsure = life.down_since is not None and f.ranks.unsure(life.down_since, now)
    if now - since < GRACE_S or life.job is not None or unsure:
        return _verdict(Status.FALSE, "JustDied", f"It ended {ago(now - death.t)}: {said}.")
    why = (
        "systemd has given up, its start limit is hit" if life.limited else f"Restart={u.restart or 'no'} does not bring it back"
    )
    message = f"Down for {span(now - death.t)} although nobody asked for it: {said}; {why}."
    call = Call(
        want=Want.RESTART,
        reason="DiedUnasked",
        message=message,
        severity=Severity.CRITICAL,
        advice="Set Restart=always in the server's unit, so that systemd brings it back at once."
        if u.restart != "always"
        else None,
        evidence=(said, f"unit {u.active_state}, result {u.result or 'unknown'}", "no stop job was seen"),
    )
    return _verdict(Status.FALSE, "DiedUnasked", message, *_crashes(f, now, over_at), call)


def _how_long(life: Life, now: float) -> str:
    """For how long a stop that is not ours has lasted, and when systemd ends it by force (TimeoutStopSec=)."""
    u, since = life.unit, life.stopping_since
    if u is None or since is None or now - since < 1:
        return ""
    lasts = f", for {span(now - since)}"
    if "sigkill" in (u.sub_state or ""):
        return f"{lasts}; systemd has sent SIGKILL"
    if u.timeout_stop_s is None or now - since >= u.timeout_stop_s:
        return lasts
    return f"{lasts}; systemd sends SIGKILL in {span(since + u.timeout_stop_s - now)} if it has not ended by then"


def _refused(life: Life, refusal: Refusal, now: float) -> Verdict:
    """Somebody wants it up, and systemd did not start it: that is for people to mend, and a restart would be refused alike."""
    why, advice = REFUSALS.get(refusal.result, REFUSALS["failed"])
    if life.limited and refusal.result == "failed":
        why, advice = "systemd's start limit is hit", "`systemctl reset-failed` the unit, then start it: each start counts."
    job = f"{refusal.job or 'start'} job"
    message = f"Down although somebody ordered a start {ago(now - refusal.t)}: the {job} ended as {refusal.result!r}, {why}."
    told = f"It is down although somebody ordered a start: the {job} ended as {refusal.result!r}, {why}."
    call = Call(want=Want.ALERT, reason="StartRefused", message=told, severity=Severity.CRITICAL, advice=advice, at=refusal.t)
    return _verdict(Status.FALSE, "StartRefused", message, call)


def _stop_killed(life: Life, now: float) -> tuple[Call, ...]:
    """A stop that did not end by itself: each of its kind keeps users waiting for as long."""
    stop = life.orders.stop
    if stop is None or stop.quiet or stop.killed_s is None or stop.over_at is None or now - stop.over_at >= STOP_TOLD_S:
        return ()
    limit_s = stop.first.timeout_stop_s
    limit = f" (TimeoutStopSec= is {span(limit_s)})" if limit_s is not None else ""
    message = f"A stop that was asked for had not ended after {span(stop.killed_s)}{limit}: systemd sent SIGKILL."
    return (Call(want=Want.ALERT, reason="StopKilled", message=message, advice=STOP_ADVICE, at=stop.over_at),)


def _signalled(d: Death, now: float) -> Verdict:
    """A SIGTERM that systemd did not send: it was meant by somebody, a person or a program, and nobody will start it again."""
    message = f"Down for {span(now - d.t)} after a SIGTERM that no job of systemd's explains."
    calls: tuple[Call, ...] = ()
    if now - d.t >= SIGNALLED_S:
        advice = "Start it if nobody meant to stop it, and find out who sent the signal: a script, a batch system, earlyoom."
        calls = (Call(want=Want.ALERT, reason="EndedBySignal", message=message, advice=advice),)
    return _verdict(Status.UNKNOWN, "EndedBySignal", message, *calls)


def _said(d: Death) -> str:
    code = ending(d.code) if d.killed is None else f"{d.killed} ({ending(d.code)})"
    return f"{code}: {quoted(d.text, 140)}" if d.text else code


def _crashes(f: Facts, now: float, over_at: float) -> tuple[Call, ...]:
    """Deaths that systemd repairs are told all the same: a window of minutes never sees two a day."""
    life = f.life
    recent = [d for d in life.deaths if not d.asked and d.t > over_at and now - d.t < RECENT_S]
    deaths = [d for d in recent if now - d.t >= LAST_LINES_S]
    # The last lines are waited for, unless the next death is always there before them.
    if not deaths or len(recent) - len(deaths) == 1:
        return ()
    last = deaths[-1]
    times = life.deaths.in_a_day(now)
    many = f", {times} times in 24 h" if times > 1 else ""
    # That a start dies like the one before it is no news: that is withheld, and told so. Of lives that served, each is.
    same = alike(life.deaths.early(last))
    at = same[0].first if same and same[-1] is last and not last.ready else last.t
    message = f"The server died{many}: {_said(last)}."  # without an age: it is sent, repeated and taken back later
    severity = Severity.WARNING if now - last.t < 3600 else Severity.INFO
    return (
        Call(
            want=Want.ALERT,
            reason="ServerDied",
            message=message,
            severity=severity,
            advice=_where(f, last),
            at=at,
        ),
    )


def _where(f: Facts, d: Death) -> str:
    """Where the cause is to be found, or what helps against it."""
    if d.killed is not None:
        return oom_advice(f)
    if SIGKILLED.search(d.text) if d.text else d.code.startswith("killed with status 9"):
        return (
            "Find out what sent SIGKILL: the kernel's log (`journalctl -k`) would tell of its OOM killer; earlyoom has a log too."
        )
    known = None if d.ready else start_advice(f, d)
    return known or "The cause is in its last lines."
