"""RequestsCompleting: does what the engine does reach users, and does it take requests in?"""

from itertools import islice, pairwise

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.facts import probes as p
from watchdog.judge.facts.probes import CANARIES
from watchdog.judge.facts.work import Work
from watchdog.judge.motion import (
    ALONE,
    HELD_ADVICE,
    PROMPT_SHARE,
    WAITED_S,
    halted_said,
    has_room,
    kept_waiting,
    shut_since,
    unanswered,
)
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import ago, counted, span

KIND = "RequestsCompleting"
FEW_PACES = 5
"""The best of so many figures is what the engine can do."""
FRONT = ("models", "ready")
"""Probes that the front end answers by itself."""
PART_WINDOW_S = 1800.0
PART_TURNS = 3
PART_SHARE = 0.2
"""So often within that window a canary was lost and the next one was not, and such a part of all of them was lost."""
UNSEEN = 1.5
"""So many times as long is waited where requests are not seen to end."""
WAITED_LEAST, WAITED_LEAST_UNSEEN = 3, 5
"""So many canaries must have waited in vain; where requests are not seen to end, so many."""


def judge(f: Facts, policy: Judging, now: float) -> Verdict:
    """The condition RequestsCompleting of a server that serves: stalled, or only some requests never answered, or well."""
    whole = stalled(f, policy, now)
    return whole if whole.status is Status.FALSE else _in_part(f, now) or whole


def _in_part(f: Facts, now: float) -> Verdict | None:
    """Canaries that never come back between others that come back at once: a part of the front end or of the engine is dead."""
    chats = [a for a in f.probes.attempts if a.probe.probe in CANARIES and now - a.ended < PART_WINDOW_S]
    lost = [a for a in chats if a.failed and a.connected and _looked_at(a, f.work)]
    good = [a for a in chats if a.probe.outcome == "ok"]
    turns = sum(a in lost and b.probe.outcome == "ok" for a, b in pairwise(chats))
    crowded = any((a.probe.total_s or 0.0) > PROMPT_SHARE * (a.probe.limit_s or 60.0) for a in good)
    if turns < PART_TURNS or crowded or len(lost) < PART_SHARE * len(chats):
        return None
    message = (
        f"{len(lost)} of {counted(len(chats), 'canary', 'canaries')} within {span(PART_WINDOW_S)} had no answer, "
        f"the others came at once: some requests are lost ({f.load()})."
    )
    advice = (
        "Look at the workers of the front end (--tokenizer-worker-num) and at the replicas; a restart in a quiet moment may help."
    )
    call = Call(want=Want.ALERT, reason="SomeRequestsLost", message=message, advice=advice, evidence=tuple(p.said(lost)))
    return Verdict(type=KIND, status=Status.FALSE, reason="SomeRequestsLost", message=message, calls=(call,))


def stalled(f: Facts, policy: Judging, now: float) -> Verdict:
    """Whether nothing reaches users any more, or nobody is let in."""
    work, ended = f.work, f.work.ended_at
    chats = unanswered(f)
    if not chats:
        return _unfailed(f, now)
    begun = max(chats[0].began, f.forgiven_at or chats[0].began)
    if ended is not None and work.ends_seen and work.surely_ended_at is not None and work.surely_ended_at > begun:
        if now - ended <= 2 * policy.stall_s:
            message = f"Canaries fail, but a request ended {ago(now - ended)} ({f.load()})."
            return Verdict(type=KIND, status=Status.TRUE, reason="SlowButCompleting", message=message)
        # Long ago: what failed since then is the present trouble.
        begun, chats = ended, [a for a in chats if a.ended > ended]
    if f.life.disaggregated():
        return _unknown("Disaggregated", "In a disaggregated server requests end elsewhere.")
    shut = _not_admitting(f, policy, now)
    if shut is not None:
        return shut
    if not f.ranks.halted(now) and not _canary_could_end(f):
        return _unknown("TooSlowToTell", "At this pace the canary cannot end within its limit.")
    lasting = now - begun
    waited = sum(a.connected and kept_waiting(a, a.began) and _looked_at(a, work) for a in chats)
    evidence = [*p.said(chats), f.load(), *halted_said(f, now)]
    if _in_vain(f, policy, now, begun, waited):
        return _stalled(f, now, lasting, evidence)
    failed = f"have failed for {span(lasting)}" if lasting >= 1 else "fail"
    message = f"Canaries {failed}: {'; '.join(evidence)}."
    calls: tuple[Call, ...] = ()
    if waited >= ALONE and work.stepped_at is None and not work.counters_seen:
        advice = "Ask it by hand; --enable-metrics or its batch lines (--log-level info) would tell a hang from a long queue."
        calls = (Call(want=Want.ALERT, reason="CanariesUnanswered", message=message, advice=advice, evidence=tuple(evidence)),)
    return _unknown("CanariesFail", message, calls)


def _unknown(reason: str, message: str, calls: tuple[Call, ...] = ()) -> Verdict:
    return Verdict(type=KIND, status=Status.UNKNOWN, reason=reason, message=message, calls=calls)


def _unfailed(f: Facts, now: float) -> Verdict:
    """No canary has failed since the last good one."""
    reached = max((t for t in (f.probes.last_answer(CANARIES), f.work.ended_at) if t is not None), default=None)
    unwell = f.probes.failures_since(reached if reached is not None else -1e18, ("health",))
    if unwell and kept_waiting(unwell[-1], unwell[-1].began):
        return _unknown("HealthFails", f"Since a request was last seen to end, {'; '.join(p.said(unwell))}.")
    if reached is None:
        return _unknown("NothingSeen", "No request was seen to end yet, and no canary has failed.")
    message = f"A request was seen to end {ago(now - reached)}."
    return Verdict(type=KIND, status=Status.TRUE, reason="Completing", message=message)


def _in_vain(f: Facts, policy: Judging, now: float, begun: float, waited: int) -> bool:
    """Whether the engine goes on since `begun`, and what it does reaches nobody.

    What fails at once was turned away at the door, what stood in the queue was not let in, and what came in the middle of a long
    step was not looked at: none tells what becomes of requests that are, and none is counted in `waited`.
    """
    work = f.work
    blind_front = (f.metrics_fail(now) and work.ends_seen) or _front_is_slow(f, begun)
    moving = work.stepped_at is not None and work.stepped_at > begun
    queue = work.figure("num_queue_reqs", "queue") or 0.0
    if blind_front or not moving or queue > 0 or f.senses.deaf(now):
        return False
    limit, enough = policy.stall_s, waited >= WAITED_LEAST
    if len(f.probes.failures_since(begun, ("health",))) >= 3 and (work.worked_at is None or work.worked_at < begun):
        # The engine has nothing but our own small requests, takes them in, and none comes back by either way.
        enough = waited >= 2
    elif not work.ends_seen:
        limit, enough = limit * UNSEEN, waited >= WAITED_LEAST_UNSEEN
    return now - begun >= limit and enough


def _stalled(f: Facts, now: float, lasting: float, evidence: list[str]) -> Verdict:
    out = "no request has ended" if f.work.ends_seen else "nothing was seen to end"
    message = f"Stalled for {span(lasting)}: batches go on, but {out}; {'; '.join(evidence)}."
    detokenizer = (
        "If it comes again, look at what the detokenizer does (`sglang-watchdog setup --stacks` puts its stack into the "
        "incident's bundle)."
    )
    call = Call(
        want=Want.RESTART,
        reason="NothingReachesUsers",
        message=message,
        severity=Severity.CRITICAL,
        advice=HELD_ADVICE if f.ranks.halted(now) else detokenizer,
        evidence=tuple(evidence),
    )
    return Verdict(type=KIND, status=Status.FALSE, reason="Stalled", message=message, calls=(call,))


def _looked_at(a: p.Attempt, work: Work) -> bool:
    """Whether a canary surely came to the engine: it did not stand in the queue, nor behind one step, until near its end."""
    until = a.ended - min(WAITED_S, (a.ended - a.began) / 2)
    return not work.queue.kept_out(a.began, until) and not work.still(a.began, until)


def _front_is_slow(f: Facts, since: float) -> bool:
    """Whether the front end alone is slow: it lets requests in, and keeps those waiting that the engine has no part in."""
    late = [a for a in f.probes.attempts if a.ended > since and a.probe.probe in FRONT and a.probe.outcome == "timeout"]
    return len(late) >= 2 and f.work.admitted_at is not None and f.work.admitted_at > since


def _not_admitting(f: Facts, policy: Judging, now: float) -> Verdict | None:
    """A queue, room for it, and nobody is let in; None if it is not so."""
    work, since = f.work, shut_since(f)
    queue = work.figure("num_queue_reqs", "queue") or 0.0
    running = work.figure("num_running_reqs", "running") or 0.0
    if queue <= 0 or since is None or not has_room(f, running):
        return None
    lasting = now - since
    if work.stepped_at is None or work.stepped_at <= since:
        return None  # nothing moves at all: one long prefill, or a hang
    failing = [a for a in f.probes.failures_since(since, CANARIES) if a.connected]
    if lasting < policy.stall_s * 2 or len(failing) < 2 or (queue < 3 and lasting < policy.stall_s * 4):
        return None
    evidence = (
        f"no prefill for {span(lasting)}",
        f.load(),
        "room for more",
        *p.said(failing),
    )
    message = (
        f"Nothing was let in for {span(lasting)} with {queue:.0f} queued, {running:.0f} running and room for "
        f"more; {'; '.join(p.said(failing))}."
    )
    call = Call(want=Want.RESTART, reason="NotAdmitting", message=message, severity=Severity.CRITICAL, evidence=evidence)
    return Verdict(type=KIND, status=Status.FALSE, reason="NotAdmitting", message=message, calls=(call,))


def _canary_could_end(f: Facts) -> bool:
    """Whether a canary of some 16 tokens could end within its limit at the pace that the engine shows in lines or counters."""
    step, pace = f.work.step_s(), f.speed.per_request.recent.figures
    slow = f.work.longest_sure_gap()
    if step is None and pace:
        step = 1.0 / max(figure.value for figure in islice(reversed(pace), FEW_PACES))
    return (step is None or step * 16 < 20.0) and slow < 20.0
