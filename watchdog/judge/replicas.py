"""Hung only in part? One data-parallel replica can stand still while the others serve: its share of all requests waits for ever.

/health is 200 all the while, since any replica's sign of life counts (http_server.py), and counters that are summed go on.
"""

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.probes import CANARIES
from watchdog.judge.facts.replicas import Replica
from watchdog.judge.facts.work import FRESH_S, IDLE_S
from watchdog.judge.motion import PROMPT_SHARE
from watchdog.judge.patience import patience
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import ago, counted, span

LOST_LEAST = 3
"""So many canaries that time out while others are answered at once: requests go to the replicas in turn."""
LOST_LEAST_ALONE = 6
"""…and so many where no line of the silent replica tells of work in hand."""


def judge(f: Facts, policy: Judging, now: float) -> Verdict:
    """The condition ReplicasProgressing."""
    kind = "ReplicasProgressing"
    seen = f.replicas.seen
    if f.life.phase() is not Phase.SERVING or f.life.ready_at is None or f.life.dying_at is not None or f.pause.holds(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message="It does not serve.")
    if len(seen) < 2 or f.senses.blind(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotSeen", message="No replicas are told apart.")
    usual, why = patience(f, policy, now)
    for name, r in sorted(seen.items()):
        silence = now - r.moved_at
        limit = max(policy.stall_s, usual, 3 * r.gap)
        moving = [n for n, x in seen.items() if x.moved_at > r.moved_at + limit / 2]
        if silence < limit or not moving or f.senses.deaf(now):
            continue
        evidence = _evidence(f, r, now)
        if not evidence:
            continue
        message = (
            f"Replica {name} stands still for {span(silence)} (odd after {span(limit)}: {why}) while "
            f"{', '.join(sorted(moving)[:4])} go on; {'; '.join(evidence)}."
        )
        call = Call(
            want=Want.RESTART,
            reason="ReplicaHung",
            message=message,
            severity=Severity.CRITICAL,
            advice="Replicas cannot be restarted one by one: its share of all requests waits until the server is restarted.",
            evidence=tuple(evidence),
        )
        return Verdict(type=kind, status=Status.FALSE, reason="ReplicaHung", message=message, calls=(call,))
    message = f"{counted(len(seen), 'replica')}, none stands still."
    return Verdict(type=kind, status=Status.TRUE, reason="AllMove", message=message)


def _evidence(f: Facts, r: Replica, now: float) -> list[str]:
    """A second kind of evidence beside the silence, as phrases: a load that does not move, or canaries that fail in turn."""
    out = []
    gauged = r.gauge_at is not None and now - r.gauge_at < FRESH_S and r.gauge_at - r.moved_at > IDLE_S
    if r.busy and gauged and r.load:
        out.append(f"its gauges have shown {r.load:.0f} requests since ({ago(now - r.moved_at)} the last of them moved)")
    chats = [a for a in f.probes.attempts if a.began > r.moved_at and a.probe.probe in CANARIES]
    failed = [a for a in chats if a.failed and a.connected]
    good = [a for a in chats if a.probe.outcome == "ok"]
    prompt = [a for a in good if (a.probe.total_s or 0.0) <= PROMPT_SHARE * (a.probe.limit_s or 60.0)]
    if len(failed) >= (LOST_LEAST if r.busy else LOST_LEAST_ALONE) and good and len(prompt) == len(good):
        out.append(f"{len(failed)} of {counted(len(chats), 'canary', 'canaries')} since were not answered, the others at once")
    return out
