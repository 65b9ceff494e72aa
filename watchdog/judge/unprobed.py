"""An engine that stands still where no probe of ours can tell: refused on the way, not made, or not failed yet.

Silence alone proves nothing: the last batch line before a rest often tells of a request that ended a moment later. So something
else must speak: health checks of others that failed, by the server's own word; or counters of each step that stand still in
fresh scrapes, with GPUs that spin as they do in a collective that never ends.
"""

from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import counted, span

KIND = "SchedulerProgressing"
TIMES = 3.0
"""Without a failed probe of ours, silence must last so many times as long as with one."""
TOLD_LEAST = 3
"""So many failed health checks of others are as good as ours."""
FULL = 0.95
"""GPUs above such a utilisation spin or work; their power tells which."""


def judge(f: Facts, now: float, moved: float, limit: float, *, answered: bool, due: str | None) -> Verdict:
    """SchedulerProgressing of an engine that has been silent for too long for what it has in hand, and no probe has failed.

    Args:
        f: what is known.
        now: the moment.
        moved: when the engine last moved.
        limit: how long it may be silent, in seconds.
        answered: whether a /health that really asks the engine was answered meanwhile.
        due: that the engine's own watchdog is due and goes first; None if it is not.
    """
    silence, busy = now - moved, f.work.in_hand(now)
    nothing = f"No batch and no counter has moved for {span(silence)}{' with requests in hand' if busy else ''}"
    told = others(f, moved)
    spinning, frozen = busy and _spin(f, now), f.work.counters_frozen(now) and f.work.counts_steps
    signs = _signs(f, told, spinning=spinning, frozen=frozen)
    if answered or not signs or silence < TIMES * limit:
        message = f"{nothing}; no probe has failed yet."
        return Verdict(type=KIND, status=Status.UNKNOWN, reason="Silent", message=message)
    message = f"{nothing}: {'; '.join(signs)}."
    if due:
        return Verdict(type=KIND, status=Status.FALSE, reason="HungEngineWatchdogDue", message=f"{message[:-1]}; {due}.")
    if told >= TOLD_LEAST or (frozen and spinning):
        call = Call(
            want=Want.RESTART,
            reason="SchedulerHung",
            message=f"Hung for {span(silence)}: {'; '.join(signs)}; no probe of ours could tell.",
            severity=Severity.CRITICAL,
            advice="Let the watchdog's own probes reach the server: they tell sooner.",
            evidence=tuple(signs),
        )
        return Verdict(type=KIND, status=Status.FALSE, reason="Hung", message=call.message, calls=(call,))
    call = Call(
        want=Want.ALERT,
        reason="EngineSilent",
        message=message,
        advice="Ask it by hand, and let the watchdog's own probes reach it: what it has seen does not suffice for a restart.",
        evidence=tuple(signs),
    )
    return Verdict(type=KIND, status=Status.UNKNOWN, reason="Silent", message=message, calls=(call,))


def others(f: Facts, moved: float) -> int:
    """How many health checks have failed since the engine moved, whoever made them."""
    return sum(t > moved for t in f.work.health_failed)


def _signs(f: Facts, told: int, *, spinning: bool, frozen: bool) -> list[str]:
    out = [f"{counted(told, 'health check', 'health checks')} failed by its own word"] if told else []
    if frozen and f.work.scrape is not None:
        out.append(f"counters of its steps frozen with {f.work.scrape.values.get('num_running_reqs', 0):.0f} running")
    if spinning:
        out.append("GPUs at full use, but not at the power of work")
    return out


def _spin(f: Facts, now: float) -> bool:
    """Whether the GPUs are at full use without work; of several nodes they are so at rest, too."""
    o = f.devices.fresh(now)
    utils = [g.util for g in o.gpus if g.util is not None] if o is not None else []
    return bool(utils) and min(utils) > FULL and f.devices.at_rest(now) and (f.life.number("nnodes") or 1) <= 1
