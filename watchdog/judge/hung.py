"""SchedulerProgressing: does the engine move? It hangs if it is silent for longer than anything explains, while probes wait."""

from watchdog.config import Judging
from watchdog.judge import unprobed
from watchdog.judge.facts import Facts
from watchdog.judge.facts import probes as p
from watchdog.judge.facts.probes import CANARIES
from watchdog.judge.motion import ALONE, HELD_ADVICE, SHALLOW_S, deep_health_since, halted_said, kept_waiting, last_motion
from watchdog.judge.patience import patience
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import ago, span

KIND = "SchedulerProgressing"
SILENT_S = 30.0
"""An engine that last moved so long ago, with failed probes, is told as silent; before that, only the probes are told."""
QUICK_LEAST = 4
"""So many probes that failed at once count as much as one that was kept waiting."""
HEARD_S = 60.0
"""A log whose last line is so much older than its longest pause is not read any more, or has nothing to tell."""
WATCHDOG_DEFAULT_S = 300.0
"""SGLang's --watchdog-timeout (server_args.py)."""
DEEP_OK = 1.5
"""So many times as long is waited for an engine that a /health says to answer."""
EARLY = 0.6
"""Evidence is gathered when such a part of the patience is over."""

UPSTREAM_ADVICE = (
    "If it comes again, report it upstream with the incident's bundle (`sglang-watchdog setup --stacks` puts the ranks' stacks "
    "into it)."
)


def judge(f: Facts, policy: Judging, now: float) -> Verdict:
    """The condition SchedulerProgressing of a server that serves."""
    moved = last_motion(f)
    silence = now - moved
    limit, why = patience(f, policy, now)
    waited, quick = _failed(f, moved)
    if not waited and not quick:
        return _unfailed(f, now, moved, limit)
    failures = waited or (quick if len(quick) >= QUICK_LEAST else [])
    enough = _enough(f, now, failures, limit)
    if deep_health_since(f, moved):
        limit *= DEEP_OK
    evidence = _evidence(f, now, moved, failures)
    if silence >= limit and enough:
        return _hung(f, now, silence, evidence)
    failing = "; ".join([*halted_said(f, now), *p.said(failures or quick)])
    odd = f"odd after {span(limit)}: {why}"
    quiet = silence >= SILENT_S
    message = (
        f"No step of the engine for {span(silence)} ({odd}); {failing}."
        if quiet
        else f"Probes fail: {failing}; the engine last moved {ago(silence)} ({odd})."
    )
    calls: tuple[Call, ...] = ()
    if silence >= limit * EARLY and failures:
        calls = (Call(want=Want.DIAGNOSE, reason="SchedulerSilent", message=message, evidence=tuple(evidence)),)
    reason = "Silent" if quiet else "ProbeFailed"
    return Verdict(type=KIND, status=Status.UNKNOWN, reason=reason, message=message, calls=calls)


def _failed(f: Facts, moved: float) -> tuple[list[p.Attempt], list[p.Attempt]]:
    """The probes that failed since the engine moved: those that were kept waiting, and those that failed at once."""
    failed = [a for a in f.probes.failures_since(moved) if not _on_the_way(f, a)]
    waited = [a for a in failed if kept_waiting(a, moved)]
    return waited, [a for a in failed if a not in waited]


def _on_the_way(f: Facts, a: p.Attempt) -> bool:
    """Whether something between us and the server may have turned a probe away: that says nothing of the engine."""
    o = a.probe
    if o.outcome == "refused":
        return f.life.listener.held
    return o.outcome == "connect_timeout" or (o.outcome == "reset" and not kept_waiting(a, a.began))


def _unfailed(f: Facts, now: float, moved: float, limit: float) -> Verdict:
    """No probe has failed since it moved."""
    silence = now - moved
    if silence < limit or not (f.work.in_hand(now) or unprobed.others(f, moved)):
        return Verdict(type=KIND, status=Status.TRUE, reason="Moving", message=f"{f.doing(now)}.")
    due = _engine_watchdog_due(f, silence, now)
    return unprobed.judge(f, now, moved, limit, answered=deep_health_since(f, moved), due=due)


def _enough(f: Facts, now: float, failures: list[p.Attempt], limit: float) -> bool:
    """Whether the probes that failed, with what else is seen, prove that the engine's silence is a hang."""
    work = f.work
    frozen = work.counters_frozen(now)
    heartbeat_old = work.heartbeat_at is not None and now - work.heartbeat_at >= limit
    chats = [a for a in failures if a.probe.probe in CANARIES]
    enough = len(failures) >= 2 or (len(failures) == 1 and (heartbeat_old or frozen))
    if deep_health_since(f, last_motion(f)):
        # Whoever answers /health also keeps the gauges of an engine at rest right: what they say is in hand is.
        enough = len(chats) >= 2 and (frozen or work.in_hand(now) or not work.counters_seen)
    if f.senses.deaf(now) and not work.counters_seen:
        enough = enough and len(chats) >= 1 and len(failures) >= 3
    if work.stepped_at is None and not work.counters_seen:
        # Batches that were never seen cannot be missed: then two kinds of probe must fail, each a path of its own.
        two = len({a.probe.probe for a in failures}) >= 2 and len(failures) >= 3
        enough = enough and (two or (len(chats) >= ALONE and _only_canaries_tell(f, now, chats)))
    return enough


def _hung(f: Facts, now: float, silence: float, evidence: list[str]) -> Verdict:
    message = f"Hung for {span(silence)}: {'; '.join(evidence)}."
    due = _engine_watchdog_due(f, silence, now)
    if due:
        return Verdict(type=KIND, status=Status.FALSE, reason="HungEngineWatchdogDue", message=f"{message[:-1]}; {due}.")
    call = Call(
        want=Want.RESTART,
        reason="SchedulerHung",
        message=message,
        severity=Severity.CRITICAL,
        advice=HELD_ADVICE if f.ranks.halted(now) else UPSTREAM_ADVICE,
        evidence=tuple(evidence),
    )
    return Verdict(type=KIND, status=Status.FALSE, reason="Hung", message=message, calls=(call,))


def _only_canaries_tell(f: Facts, now: float, chats: list[p.Attempt]) -> bool:
    """Whether canaries alone prove it, as /health asks nobody and cannot fail.

    The GPUs do no work for those that wait; and the access log, which is read, tells of nobody who was answered, or the GPUs have
    done none since the first of them.
    """
    good, heard, answered = f.probes.last_ok.get("health"), f.senses.heard_at, f.refusals.answered_at
    shallow = good is not None and (good.probe.total_s or 0.0) < SHALLOW_S
    read = heard is not None and now - heard < f.senses.heard_gap + HEARD_S and (answered is None or answered < chats[0].began)
    worked = f.devices.worked_at
    idle = worked is None or worked < chats[0].began
    return shallow and f.devices.at_rest(now) and (read or idle)


def _evidence(f: Facts, now: float, moved: float, failures: list[p.Attempt]) -> list[str]:
    out = ["no batch" if f.work.stepped_at is not None else "no batch was ever seen in this life"]
    if f.work.counters_frozen(now):
        scrape = f.work.scrape
        assert scrape is not None
        out.append(f"token counters frozen with {scrape.values.get('num_running_reqs', 0):.0f} running")
    elif f.work.figure("num_running_reqs", "running") or f.work.figure("num_queue_reqs", "queue") or f.opened.count:
        out.append(f"in hand: {f.load()}")
    out += p.said(failures)
    if f.work.heartbeat_at is not None and f.work.heartbeat_at <= moved + 1:
        out.append(f"last heartbeat {ago(now - f.work.heartbeat_at)}")
    out += halted_said(f, now)
    odd = f.devices.oddity(now)
    if odd:
        out.append(odd)
    return out


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
