"""Hung or busy? Whether the engine moves, whether what it does reaches users, and whether it takes new requests in.

Three ways to stand still behind an open port, each with its own evidence:

* hung: no step of the engine for longer than its own pace explains, and probes that go unanswered;
* stalled: the engine steps on, but no request ends and canaries that have been let in are not answered;
* not admitting: a queue, room for it, and nothing is taken in.

CPU time is no evidence: an idle scheduler spins at 100 % (measured with SGLang 0.5.23).
"""

from watchdog.config import Judging
from watchdog.judge import completing, hung
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import lasting


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
    return [hung.judge(f, policy, now), completing.judge(f, policy, now)]


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
