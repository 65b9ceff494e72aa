"""Is this still the deployment that was accepted, and does it still hold what it held then? A change is no drift."""

from collections.abc import Iterator
from typing import Any

from watchdog.judge.facts import Facts
from watchdog.judge.facts.baseline import Baseline, identity_of
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.memory import RANK_FLOOR
from watchdog.judge.pool import DIFFERENT, Account, Finding, both
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.wording import counted

TOKENS_DRIFT = 0.02
"""The KV cache may differ by so much from start to start: what other programs leave of the GPU's memory varies."""


def judge(f: Facts, a: Account) -> Verdict:
    """The condition AsBaseline."""
    kind = "AsBaseline"
    known, server = f.baseline, f.life.server
    if known is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoBaseline", message="No baseline has been made yet.")
    if f.life.phase() is not Phase.SERVING or server is None:
        off = f"The server is {f.life.phase().value}."
        message = off if f.life.phase() is not Phase.SERVING else "The server's arguments are not known yet."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=message)
    changes = known.identity.differences(identity_of(server.args, server.version, f.host))
    if changes:
        shown = ", ".join(change(*c) for c in changes[:6]) + (f" and {len(changes) - 6} more" if len(changes) > 6 else "")
        message = f"The deployment has changed since its baseline of {known.made_at[:10]}: {shown}."
        call = Call(
            want=Want.ALERT,
            reason="DeploymentChanged",
            message=message,
            severity=Severity.INFO,
            advice="If that was meant: `sglang-watchdog baseline accept`, once it is verified.",
        )
        return Verdict(type=kind, status=Status.FALSE, reason="DeploymentChanged", message=message, calls=(call,))
    drifts = tuple(drift(f, known, a))
    if drifts:
        message = f"It differs from its baseline of {known.made_at[:10]}, with the same arguments: {'; '.join(drifts)}."
        call = Call(
            want=Want.ALERT,
            reason="BaselineDrift",
            message=message,
            advice="Look at `sglang-watchdog baseline diff`; if this is right from now on: `sglang-watchdog baseline accept`.",
            evidence=drifts,
        )
        return Verdict(type=kind, status=Status.FALSE, reason="BaselineDrift", message=message, calls=(call,))
    return Verdict(type=kind, status=Status.TRUE, reason="AsBaseline", message=f"As in its baseline of {known.made_at[:10]}.")


def change(name: str, there: Any, here: Any) -> str:
    """One difference, side by side: "hicache_ratio 4.0 → 2.0"."""
    return f"{name} {there} → {here}"


def drift(f: Facts, known: Baseline, a: Account) -> Iterator[str]:
    """What a life of the same deployment holds otherwise than its baseline, one phrase for each."""
    said, was = a.announced, known.announced
    if said is not None and was is not None and said.complete and abs(said.total - was) > said.within + DIFFERENT * was:
        yield f"host pool announced {both(said.total)}, was {both(was)}"
    target = f.memory.pool.kv(f.life.server)[0]
    if target is not None and known.kv_tokens and abs(target.tokens - known.kv_tokens) > TOKENS_DRIFT * known.kv_tokens:
        yield f"KV cache of {counted(target.tokens, 'token')}, was {known.kv_tokens}"
    if a.finding is not Finding.SEEN or known.seen is None or known.seen_as is None:
        return
    place = f.memory.at_readiness(known.seen_as)
    allowed = known.tolerance * known.seen + RANK_FLOOR * f.rank_count()
    if place is not None and place.grown == known.seen_grown and abs(place.size - known.seen) > allowed:
        yield f"{both(place.size)} seen as {place.title} when it was ready, was {both(known.seen)}"
