"""What judges ask of an engine's motion: when it surely moved last, who was kept waiting, whom it could let in."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.probes import CANARIES, Attempt

SHALLOW_S = 0.9
"""A /health that generates never answers faster than 1 s (it polls once a second; http_server.py, 0.4.10 and later)."""
WAITED_S = 15.0
"""A probe that failed sooner was not kept waiting."""
ALONE = 8
"""So many canaries in a row that had no answer are told, or count by themselves, where nothing else is seen of the engine."""
PROMPT_SHARE = 0.25
"""An answer within such a share of its limit came at once: the server is not crowded."""
HELD_ADVICE = "Find out who holds the process (a debugger, `kill -STOP`): that is no fault of the server, and may come again."


def last_motion(f: Facts) -> float:
    """The last moment at which the engine was surely alive: a step, a heartbeat, an answered canary, a kernel, its readiness.

    Silence counts from our own first look at the earliest: what was before it we cannot know.
    """
    return max(
        t
        for t in (
            f.work.stepped_at,
            f.work.heartbeat_at,
            f.probes.last_answer(CANARIES),
            f.ranks.compile_told_at,
            f.life.ready_at,
            f.life.since,
            f.life.first_seen,
            f.pause.ended_at,
            f.forgiven_at,
        )
        if t is not None
    )


def unanswered(f: Facts) -> list[Attempt]:
    """The canaries that have failed since the last good one and since the last pause, oldest first."""
    paused_until = f.pause.ended_at if f.pause.ended_at is not None else -1e18
    return [a for a in f.probes.failures_since(-1e18, CANARIES) if a.began >= paused_until]


def deep_health_since(f: Facts, t: float) -> bool:
    """Whether a /health that really asks the engine was answered after `t`. It can be fooled, so it only slows us down."""
    good = f.probes.last_ok.get("health")
    return good is not None and good.ended > t + 20.0 and (good.probe.total_s or 0.0) >= SHALLOW_S


def kept_waiting(a: Attempt, since: float) -> bool:
    """Whether a probe that failed was kept waiting for long enough after `since`."""
    return a.ended - max(a.began, since) >= min(WAITED_S, a.probe.limit_s or WAITED_S)


def halted_said(f: Facts, now: float) -> list[str]:
    """The processes that somebody holds, a phrase each."""
    return [
        f"{x.name} (pid {x.pid}) is {'held by a debugger' if x.state == 't' else 'stopped by a signal'} (state {x.state})"
        for x in f.ranks.halted(now)
    ]


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
