"""More requests than the server can serve: it works as fast as it can, people wait, a restart would make all of it worse."""

from msgspec import structs

from watchdog.config import Judging
from watchdog.judge import motion
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.opened import OLD
from watchdog.judge.facts.probes import CANARIES, queue_full
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import lasting, span

LONG_S = 480.0
"""A queue that never empties for so long is more than a burst."""
TURNED_AWAY = 10
TURNED_AWAY_RATE = 0.05
"""So many users turned away, and such a part of all, are more than the edge of a burst."""
LONG_QUEUE = 2
"""A queue so many times as long as what runs is long."""
WAIT_S = 30.0
"""A first token that takes longer is something that users notice."""


TURNED_AWAY_AT_REST = 3
"""So many canaries, of an engine at rest, that were turned away are no accident."""


def judge(f: Facts, policy: Judging, now: float) -> Verdict:
    """The condition QueueFlowing."""
    kind = "QueueFlowing"
    if f.life.phase() is not Phase.SERVING:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=f"The server is {f.life.phase().value}.")
    queue = f.work.figure("num_queue_reqs", "queue")
    chats = f.probes.failures_since(-1e18, CANARIES)
    full = f.probes.queue_full_at is not None and now - f.probes.queue_full_at < 120
    away, answered = f.work.turned_away.of_late(now)
    if full or (away >= TURNED_AWAY and away >= TURNED_AWAY_RATE * answered):
        what = "The request queue is full (503"
        if away >= 1:
            what = f"{away:.0f} of {answered:.0f} requests within two minutes were turned away (503"
        if f.work.at_rest(now) and not f.pause.holds(now):
            return _at_rest(f, policy, now, f"{what}; {f.load()})")
        message = f"{what}; {f.load()}): the server works at its limit."
        call = Call(
            want=Want.ALERT,
            reason="QueueFull",
            message=message,
            advice="Send less, or raise --max-queued-requests; a restart loses all of it.",
        )
        return Verdict(type=kind, status=Status.FALSE, reason="QueueFull", message=message, calls=(call,))
    if f.pause.holds(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="Paused", message=f"Generation is paused: {f.pause.said}.")
    since = f.work.queue.since
    if queue is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotSeen", message="How many requests wait is not known yet.")
    if queue <= 0 or since is None:
        said = "No request waited" if OLD in f.load() else "No request waits"
        message = f"{said}: {f.load()}." if queue <= 0 else "No request waits any more."
        return Verdict(type=kind, status=Status.TRUE, reason="NoQueue", message=message)
    waited = now - max(since, f.forgiven_at or since, f.pause.ended_at or since)
    stepping = f.work.stepped_at is not None and now - f.work.stepped_at < 120
    shown = f"{f.load()} {lasting(waited)}"
    running = f.work.figure("num_running_reqs", "running") or 0.0
    # Whoever comes last waits until all that runs has ended, more than once.
    waits = len(chats) >= 2 or f.first_tokens.wait_s(now) > WAIT_S or queue >= LONG_QUEUE * max(running, 8.0)
    if waited >= LONG_S and waits and stepping:
        shut = motion.shut_since(f)
        if f.work.admitted_at is not None and shut is not None and now - shut >= LONG_S and motion.has_room(f, running):
            return _shut(f"Nobody was let in for {span(now - shut)}, though there is room: {f.load()}.")
        message = f"Saturated: {shown}; first tokens take minutes, but the engine works as fast as it can."
        call = Call(
            want=Want.ALERT,
            reason="Saturated",
            message=message,
            advice="Send less or add a server; a restart would lose the queue and the cache.",
        )
        return Verdict(type=kind, status=Status.FALSE, reason="Saturated", message=message, calls=(call,))
    return Verdict(type=kind, status=Status.TRUE, reason="ShortQueue", message=f"{shown}.")


def _shut(message: str) -> Verdict:
    """Some wait while there is room: no load explains that."""
    call = Call(
        want=Want.ALERT,
        reason="NobodyLetIn",
        message=message,
        advice="Where canaries fail, too, it is restarted; else ask it by hand, and look at what runs and does not end.",
    )
    return Verdict(type="QueueFlowing", status=Status.FALSE, reason="NobodyLetIn", message=message, calls=(call,))


def _at_rest(f: Facts, policy: Judging, now: float, what: str) -> Verdict:
    """Nothing runs and nothing waits: a queue that is full then contradicts itself, and does not empty by serving."""
    since = _turning_all_away_since(f, now)
    turning = now - since
    message = f"{what}: the engine is at rest, and nobody was let in for {span(turning)}."
    if turning < policy.stall_s:
        message = f"{what}, though the engine is at rest."
        return Verdict(type="QueueFlowing", status=Status.FALSE, reason="TurnedAwayAtRest", message=message)
    served = f.work.ended_at is not None or f.answers.good > 0
    alert = Call(
        want=Want.ALERT,
        reason="TurnedAwayAtRest",
        message=message,
        severity=Severity.CRITICAL,
        advice="Check --max-queued-requests: with 0 nobody is let in."
        if not served
        else "This is a fault of the server, no load: keep the incident's bundle and report it upstream.",
        evidence=(what, f"no request ran, waited or ended for {span(turning)}"),
    )
    calls: tuple[Call, ...] = (alert,)
    asked = [a for a in f.probes.attempts if a.ended >= since and queue_full(a.probe)]
    # Nothing runs that a restart could lose, and what served well in this life may serve well again.
    sure = served and len(asked) >= TURNED_AWAY_AT_REST and not f.senses.deaf(now) and not f.life.disaggregated()
    if sure and turning >= 2 * policy.stall_s:
        calls = (alert, structs.replace(alert, want=Want.RESTART))
    return Verdict(type="QueueFlowing", status=Status.FALSE, reason="TurnedAwayAtRest", message=message, calls=calls)


def _turning_all_away_since(f: Facts, now: float) -> float:
    """Since when somebody was turned away again and again and nobody was served."""
    starts = [t for t in (f.work.turned_away.since, f.probes.queue_full_since) if t is not None]
    served = (
        f.work.loaded_at,
        f.work.ended_at,
        f.probes.last_answer(CANARIES),
        f.life.ready_at,
        f.forgiven_at,
        f.pause.ended_at,
    )
    return max(min(starts, default=now), max((t for t in served if t is not None), default=-1e18))
