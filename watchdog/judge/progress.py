"""Hung or busy? Whether the engine moves, whether what it does reaches users, and whether it takes new requests in.

Three ways to stand still behind an open port, each with its own evidence:

* hung: no step of the engine for longer than its own pace explains, and probes that go unanswered;
* stalled: the engine steps on, but no request ends and canaries that have been let in are not answered;
* not admitting: a queue, room for it, and nothing is taken in.

CPU time is no evidence: an idle scheduler spins at 100 % (measured with SGLang 0.5.23).
"""

from itertools import pairwise

from watchdog.config import Judging
from watchdog.judge import unprobed
from watchdog.judge.facts import Facts
from watchdog.judge.facts import probes as p
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.work import Work
from watchdog.judge.patience import patience
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import ago, counted, lasting, span

SHALLOW_S = 0.9
"""A /health that generates never answers faster than 1 s (it polls once a second; http_server.py, 0.4.10 and later)."""
WAITED_S = 15.0
"""A probe that failed sooner was not kept waiting."""
SILENT_S = 30.0
"""An engine that last moved so long ago, with failed probes, is told as silent; before that, only the probes are told."""
FEW_PACES = 5
"""The best of so many figures is what the engine can do."""
HEARD_S = 60.0
"""A log whose last line is so much older than its longest pause is not read any more, or has nothing to tell."""
ALONE = 8
"""So many canaries in a row that had no answer are told, or count by themselves, where nothing else is seen of the engine."""
FRONT = ("models", "ready")
"""Probes that the front end answers by itself."""
PART_WINDOW_S = 1800.0
PART_TURNS = 3
PART_SHARE = 0.2
"""So often within that window a canary was lost and the next one was not, and such a part of all of them was lost."""
PROMPT_SHARE = 0.25
"""An answer within such a share of its limit came at once: the server is not crowded."""
WATCHDOG_DEFAULT_S = 300.0
"""SGLang's --watchdog-timeout (server_args.py)."""

UPSTREAM_ADVICE = (
    "If it comes again, report it upstream with the incident's bundle (`sglang-watchdog setup --stacks` puts the ranks' stacks "
    "into it)."
)
HELD_ADVICE = "Find out who holds the process (a debugger, `kill -STOP`): that is no fault of the server, and may come again."


def judge(f: Facts, policy: Judging, now: float) -> list[Verdict]:
    """The conditions SchedulerProgressing and RequestsCompleting."""
    phase = f.life.phase()
    if f.life.headless:
        why = "this node has no API: it is judged by its processes, its log and its GPUs"
        return [_unknown("SchedulerProgressing", why, "NoEndpoint"), _unknown("RequestsCompleting", why, "NoEndpoint")]
    if phase is not Phase.SERVING or f.life.ready_at is None:
        why = f"the server is {phase.value}"
        return [_unknown("SchedulerProgressing", why), _unknown("RequestsCompleting", why)]
    if f.life.dying_at is not None:
        return [_unknown("SchedulerProgressing", "the server is dying"), _unknown("RequestsCompleting", "the server is dying")]
    if f.pause.holds(now):
        return _paused(f, now)
    if f.senses.blind(now):
        return [
            _unknown("SchedulerProgressing", f.senses.said(now), "Blind"),
            _unknown("RequestsCompleting", f.senses.said(now), "Blind"),
        ]
    return [hung(f, policy, now), reaching(f, policy, now)]


def _paused(f: Facts, now: float) -> list[Verdict]:
    """A restart would undo what somebody does on purpose; that it may have been forgotten is told."""
    why = f"generation is paused: {f.pause.said}"
    calls: tuple[Call, ...] = ()
    if f.pause.since is not None and f.pause.forgotten(now):
        message = f"Generation has been paused {lasting(now - f.pause.since)}: {f.pause.said}; nobody is answered."
        advice = (
            "If it was forgotten: POST /continue_generation, or /resume_memory_occupation after a release of memory. What is "
            "paused on purpose is not restarted."
        )
        calls = (Call(want=Want.ALERT, reason="PausedLong", message=message, advice=advice),)
    return [_unknown("SchedulerProgressing", why, "Paused", calls), _unknown("RequestsCompleting", why, "Paused")]


def _unknown(kind: str, why: str, reason: str = "NotServing", calls: tuple[Call, ...] = ()) -> Verdict:
    return Verdict(type=kind, status=Status.UNKNOWN, reason=reason, message=why[:1].upper() + why[1:] + ".", calls=calls)


def hung(f: Facts, policy: Judging, now: float) -> Verdict:
    """SchedulerProgressing: does the engine move?"""
    work = f.work
    moved = last_motion(f)
    silence = now - moved
    limit, why = patience(f, policy, now)
    failed = f.probes.failures_since(moved)
    if not work.in_hand(now):
        # What does not even connect to an idle server may be kept from it on the way.
        failed = [a for a in failed if a.probe.outcome != "connect_timeout"]
    failures = [a for a in failed if _kept_waiting(a, moved)]
    quick = [a for a in failed if a not in failures]
    if not failures and not quick:
        if silence < limit or not (work.in_hand(now) or unprobed.others(f, moved)):
            doing = f.doing(now)
            return Verdict(
                type="SchedulerProgressing",
                status=Status.TRUE,
                reason="Moving",
                message=f"{doing}.",
            )
        due = _engine_watchdog_due(f, silence, now)
        return unprobed.judge(f, now, moved, limit, answered=deep_health_since(f, moved), due=due)
    failures = failures or (quick if len(quick) >= 4 else [])
    evidence = _hang_evidence(f, now, moved, failures)
    deep_ok = deep_health_since(f, moved)
    frozen = work.counters_frozen(now)
    heartbeat_old = work.heartbeat_at is not None and now - work.heartbeat_at >= limit
    chats = [a for a in failures if a.probe.probe in ("chat", "prefix")]
    enough = len(failures) >= 2 or (len(failures) == 1 and (heartbeat_old or frozen))
    if deep_ok:
        limit *= 1.5
        # Whoever answers /health also keeps the gauges of an engine at rest right: what they say is in hand is.
        enough = len(chats) >= 2 and (frozen or work.in_hand(now) or not work.counters_seen)
    if f.senses.deaf(now) and not work.counters_seen:
        enough = enough and len(chats) >= 1 and len(failures) >= 3
    if work.stepped_at is None and not work.counters_seen:
        # Batches that were never seen cannot be missed: then two kinds of probe must fail, each a path of its own.
        two = len({a.probe.probe for a in failures}) >= 2 and len(failures) >= 3
        enough = enough and (two or (len(chats) >= ALONE and _only_canaries_tell(f, now, chats)))
    if silence >= limit and enough:
        due = _engine_watchdog_due(f, silence, now)
        message = f"Hung for {span(silence)}: {'; '.join(evidence)}."
        if due:
            return Verdict(
                type="SchedulerProgressing",
                status=Status.FALSE,
                reason="HungEngineWatchdogDue",
                message=f"{message[:-1]}; {due}.",
            )
        call = Call(
            want=Want.RESTART,
            reason="SchedulerHung",
            message=message,
            severity=Severity.CRITICAL,
            advice=HELD_ADVICE if f.ranks.halted(now) else UPSTREAM_ADVICE,
            evidence=tuple(evidence),
        )
        return Verdict(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message=message, calls=(call,))
    failing = "; ".join(p.said(failures or quick))
    odd = f"odd after {span(limit)}: {why}"
    quiet = silence >= SILENT_S
    message = (
        f"No step of the engine for {span(silence)} ({odd}); {failing}."
        if quiet
        else f"Probes fail: {failing}; the engine last moved {ago(silence)} ({odd})."
    )
    calls: tuple[Call, ...] = ()
    if silence >= limit * 0.6 and failures:
        calls = (Call(want=Want.DIAGNOSE, reason="SchedulerSilent", message=message, evidence=tuple(evidence)),)
    return Verdict(
        type="SchedulerProgressing",
        status=Status.UNKNOWN,
        reason="Silent" if quiet else "ProbeFailed",
        message=message,
        calls=calls,
    )


def last_motion(f: Facts) -> float:
    """The last moment at which the engine was surely alive: a step, a heartbeat, an answered canary, a kernel, its readiness.

    Silence counts from our own first look at the earliest: what was before it we cannot know.
    """
    return max(
        t
        for t in (
            f.work.stepped_at,
            f.work.heartbeat_at,
            f.probes.last_answer(("chat", "prefix")),
            f.ranks.compile_told_at,
            f.life.ready_at,
            f.life.since,
            f.life.first_seen,
            f.pause.ended_at,
            f.forgiven_at,
        )
        if t is not None
    )


def deep_health_since(f: Facts, t: float) -> bool:
    """Whether a /health that really asks the engine was answered after `t`. It can be fooled, so it only slows us down."""
    good = f.probes.last_ok.get("health")
    return good is not None and good.ended > t + 20.0 and (good.probe.total_s or 0.0) >= SHALLOW_S


def _only_canaries_tell(f: Facts, now: float, chats: list[p.Attempt]) -> bool:
    """Whether canaries alone prove it, as /health asks nobody and cannot fail.

    The GPUs do no work for those that wait, and the access log, which is read, tells of nobody who was answered.
    """
    good, heard, answered = f.probes.last_ok.get("health"), f.senses.heard_at, f.refusals.answered_at
    shallow = good is not None and (good.probe.total_s or 0.0) < SHALLOW_S
    read = heard is not None and now - heard < f.senses.heard_gap + HEARD_S and (answered is None or answered < chats[0].began)
    return shallow and read and f.devices.at_rest(now)


def _hang_evidence(f: Facts, now: float, moved: float, failures: list[p.Attempt]) -> list[str]:
    out = [f"no batch for {span(now - moved)}"] if f.work.stepped_at is not None else ["no batch was ever seen in this life"]
    if f.work.counters_frozen(now):
        scrape = f.work.scrape
        assert scrape is not None
        out.append(f"token counters frozen with {scrape.values.get('num_running_reqs', 0):.0f} running")
    elif f.work.figure("num_running_reqs", "running") or f.work.figure("num_queue_reqs", "queue"):
        out.append(f"in hand: {f.load()}")
    out += p.said(failures)
    if f.work.heartbeat_at is not None and f.work.heartbeat_at <= moved + 1:
        out.append(f"last heartbeat {ago(now - f.work.heartbeat_at)}")
    out += _halted(f, now)
    odd = f.devices.oddity(now)
    if odd:
        out.append(odd)
    return out


def _halted(f: Facts, now: float) -> list[str]:
    return [
        f"{x.name} (pid {x.pid}) is {'held by a debugger' if x.state == 't' else 'stopped by a signal'} (state {x.state})"
        for x in f.ranks.halted(now)
    ]


def _engine_watchdog_due(f: Facts, silence: float, now: float) -> str | None:
    """The engine's own watchdog dumps stacks and ends the server by itself: where it is due soon, it goes first."""
    limit = f.life.number("watchdog_timeout")
    if limit is None:
        limit = WATCHDOG_DEFAULT_S if f.life.server is not None else 0.0
    if limit <= 0 or not f.work.in_hand(now):
        return None
    if limit - 30 <= silence <= 1.5 * limit + 45:
        return f"the engine's own watchdog ({span(limit)}) is due and goes first"
    return None


def reaching(f: Facts, policy: Judging, now: float) -> Verdict:
    """RequestsCompleting: stalled, or only some requests never answered, or well."""
    whole = stalled(f, policy, now)
    return whole if whole.status is Status.FALSE else _in_part(f, now) or whole


def _in_part(f: Facts, now: float) -> Verdict | None:
    """Canaries that never come back between others that come back at once: a part of the front end or of the engine is dead."""
    chats = [a for a in f.probes.attempts if a.probe.probe in ("chat", "prefix") and now - a.ended < PART_WINDOW_S]
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
    return Verdict(type="RequestsCompleting", status=Status.FALSE, reason="SomeRequestsLost", message=message, calls=(call,))


def stalled(f: Facts, policy: Judging, now: float) -> Verdict:
    """Does what the engine does reach users, and does it take requests in?"""
    kind = "RequestsCompleting"
    work = f.work
    paused_until = f.pause.ended_at or -1e18
    chats = [a for a in f.probes.failures_since(-1e18, ("chat", "prefix")) if a.began >= paused_until]
    good = f.probes.last_answer(("chat", "prefix"))
    ended = work.ended_at
    if not chats:
        reached = max((t for t in (good, ended) if t is not None), default=None)
        unwell = f.probes.failures_since(reached if reached is not None else -1e18, ("health",))
        if unwell and _kept_waiting(unwell[-1], unwell[-1].began):
            message = f"Since a request was last seen to end, {'; '.join(p.said(unwell))}."
            return Verdict(type=kind, status=Status.UNKNOWN, reason="HealthFails", message=message)
        if reached is None:
            return Verdict(
                type=kind,
                status=Status.UNKNOWN,
                reason="NothingSeen",
                message="No request was seen to end yet, and no canary has failed.",
            )
        return Verdict(
            type=kind, status=Status.TRUE, reason="Completing", message=f"A request was seen to end {ago(now - reached)}."
        )
    begun = max(chats[0].began, f.forgiven_at or chats[0].began)
    completing = work.ends_seen and work.surely_ended_at is not None and work.surely_ended_at > begun
    if ended is not None and completing and now - ended > 2 * policy.stall_s:
        # Long ago: what failed since then is the present trouble.
        completing, begun = False, ended
        chats = [a for a in chats if a.ended > ended]
    lasting = now - begun
    queue = work.figure("num_queue_reqs", "queue") or 0.0
    running = work.figure("num_running_reqs", "running") or 0.0
    room = has_room(f, running)
    held = _halted(f, now)
    evidence = [*p.said(chats), f.load(), *held]
    if ended is not None and completing:
        return Verdict(
            type=kind,
            status=Status.TRUE,
            reason="SlowButCompleting",
            message=f"Canaries fail, but a request ended {ago(now - ended)} ({f.load()}).",
        )
    if f.life.disaggregated():
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="Disaggregated", message="In a disaggregated server requests end elsewhere."
        )
    stuck = _not_admitting(f, policy, now, queue, running, room=room)
    if stuck is not None:
        return stuck
    if not _canary_could_end(f):
        return Verdict(
            type=kind,
            status=Status.UNKNOWN,
            reason="TooSlowToTell",
            message="At this pace the canary cannot end within its limit.",
        )
    blind_front = (f.metrics_fail(now) and work.ends_seen) or _front_is_slow(f, begun)
    slower = 1.0 if work.ends_seen else 1.5
    # What fails at once was turned away at the door, what stood in the queue was not let in, and what came in the middle of a
    # long step was not looked at: none tells what becomes of requests that are.
    waited = sum(a.connected and _kept_waiting(a, a.began) and _looked_at(a, work) for a in chats)
    enough = waited >= (3 if work.ends_seen else 5)
    if len(f.probes.failures_since(begun, ("health",))) >= 3 and (work.worked_at is None or work.worked_at < begun):
        # The engine has nothing but our own small requests, takes them in, and none comes back by either way.
        slower, enough = 1.0, waited >= 2
    moving = work.stepped_at is not None and work.stepped_at > begun
    if lasting >= policy.stall_s * slower and enough and moving and queue <= 0 and not blind_front and not f.senses.deaf(now):
        out = "no request has ended" if work.ends_seen else "nothing was seen to end"
        message = f"Stalled for {span(lasting)}: batches go on, but {out}; {'; '.join(evidence)}."
        call = Call(
            want=Want.RESTART,
            reason="NothingReachesUsers",
            message=message,
            severity=Severity.CRITICAL,
            advice=HELD_ADVICE
            if held
            else "If it comes again, look at what the detokenizer does (`sglang-watchdog setup --stacks` puts its stack into the "
            "incident's bundle).",
            evidence=tuple(evidence),
        )
        return Verdict(type=kind, status=Status.FALSE, reason="Stalled", message=message, calls=(call,))
    failed = f"have failed for {span(lasting)}" if lasting >= 1 else "fail"
    message = f"Canaries {failed}: {'; '.join(evidence)}."
    calls: tuple[Call, ...] = ()
    if waited >= ALONE and work.stepped_at is None and not work.counters_seen:
        advice = "Ask it by hand; --enable-metrics or its batch lines (--log-level info) would tell a hang from a long queue."
        calls = (Call(want=Want.ALERT, reason="CanariesUnanswered", message=message, advice=advice, evidence=tuple(evidence)),)
    return Verdict(type=kind, status=Status.UNKNOWN, reason="CanariesFail", message=message, calls=calls)


def _kept_waiting(a: p.Attempt, since: float) -> bool:
    """Whether a probe that failed was kept waiting for long enough after `since`."""
    return a.ended - max(a.began, since) >= min(WAITED_S, a.probe.limit_s or WAITED_S)


def _looked_at(a: p.Attempt, work: Work) -> bool:
    """Whether a canary surely came to the engine: it did not stand in the queue, nor behind one step, until near its end."""
    until = a.ended - min(WAITED_S, (a.ended - a.began) / 2)
    return not work.queue.kept_out(a.began, until) and not work.still(a.began, until)


def _front_is_slow(f: Facts, since: float) -> bool:
    """Whether the front end alone is slow: it lets requests in, and keeps those waiting that the engine has no part in."""
    late = [a for a in f.probes.attempts if a.ended > since and a.probe.probe in FRONT and a.probe.outcome == "timeout"]
    return len(late) >= 2 and f.work.admitted_at is not None and f.work.admitted_at > since


def has_room(f: Facts, running: float) -> bool:
    """Whether the engine could take in more: running slots and token pool."""
    most = f.life.number("max_running_requests")
    usage = f.work.figure("token_usage", "token_usage")
    return (most is None or running < 0.5 * most) and (usage is None or usage < 0.8)


def shut_since(f: Facts) -> float | None:
    """Since when somebody waits and nobody was let in; None if nobody waits."""
    work = f.work
    if work.queue.since is None:
        return None
    # In a pause nobody could be let in: only an engine that moves and lets nobody in is at fault.
    known = (work.queue.since, work.admitted_at, work.moving_since, f.forgiven_at, f.pause.ended_at)
    return max(t for t in known if t is not None)


def _not_admitting(f: Facts, policy: Judging, now: float, queue: float, running: float, *, room: bool) -> Verdict | None:
    work, since = f.work, shut_since(f)
    if queue <= 0 or since is None or not room:
        return None
    lasting = now - since
    if work.stepped_at is None or work.stepped_at <= since:
        return None  # nothing moves at all: one long prefill, or a hang
    failing = [a for a in f.probes.failures_since(since, ("chat", "prefix")) if a.connected]
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
    return Verdict(type="RequestsCompleting", status=Status.FALSE, reason="NotAdmitting", message=message, calls=(call,))


def _canary_could_end(f: Facts) -> bool:
    """Whether a canary of some 16 tokens could end within its limit at the pace that the engine shows in lines or counters."""
    step, pace = f.work.step_s(), f.speed.per_request.recent
    slow = f.work.longest_sure_gap()
    if step is None and pace:
        step = 1.0 / max(per_request for _, per_request in list(pace)[-FEW_PACES:])
    return (step is None or step * 16 < 20.0) and slow < 20.0
