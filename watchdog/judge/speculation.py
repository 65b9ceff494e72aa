"""Is the draft model still believed? A collapse costs speed; a rise far above the usual hints at garbage."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import counted

WINDOW_S = 600.0
"""What holds for shorter than this is the mix of requests."""
TOO_GOOD = 1.5
"""Tokens gained a step, against the usual, that no change of traffic explains."""
PLAIN_LEAST = 30
"""So many decode lines without an accept length, and none with one: nothing is speculated."""


def judge(f: Facts, now: float) -> Verdict:
    """The condition SpeculationEffective."""
    kind = "SpeculationEffective"
    if f.life.phase() is not Phase.SERVING:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=f"The server is {f.life.phase().value}.")
    if f.life.server is not None and f.life.server.args.get("speculative_algorithm", "") is None and not f.accepted.first:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoSpeculation", message="The server does not speculate.")
    idle = _inactive(f)
    if idle is not None:
        return idle
    known = f.usual()
    usual = (known.accept_length if known is not None else None) or f.accepted.baseline()
    recent = f.accepted.now(now)
    if usual is None or recent is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoTraffic", message="Too few decode batches to compare.")
    median, count, span = recent
    if span < WINDOW_S * 0.5 or usual < 1.2:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoTraffic", message="Too few decode batches to compare.")
    shown = f"accept length {median:.2f} (usually {usual:.2f}) over {counted(count, 'batch', 'batches')}"
    gained, usual_gain = median - 1.0, usual - 1.0
    if gained < 0.5 * usual_gain:
        message = f"Speculation has collapsed: {shown}; each step now yields {median / usual:.0%} of the usual tokens."
        call = Call(
            want=Want.ALERT,
            reason="SpeculationCollapsed",
            message=message,
            advice="Compare the draft model with the traffic; a restart costs the cache and seldom helps for long.",
            evidence=(shown,),
        )
        return Verdict(type=kind, status=Status.FALSE, reason="SpeculationCollapsed", message=message, calls=(call,))
    bound = f.life.number("speculative_num_steps")
    if gained > TOO_GOOD * usual_gain and (bound is None or median > 0.9 * (bound + 1)):
        message = f"Speculation is too good to be true: {shown}; repeated tokens look like this."
        call = Call(want=Want.ALERT, reason="SpeculationTooGood", message=message, advice="Read some answers.", evidence=(shown,))
        return Verdict(type=kind, status=Status.FALSE, reason="SpeculationTooGood", message=message, calls=(call,))
    return Verdict(type=kind, status=Status.TRUE, reason="AsUsual", message=f"{shown[:1].upper()}{shown[1:]}.")


def _inactive(f: Facts) -> Verdict | None:
    """Speculation is in the arguments, and no decode batch tells of it."""
    algorithm = f.life.arg("speculative_algorithm")
    if not algorithm or f.accepted.first or f.accepted.plain < PLAIN_LEAST:
        return None
    seen = f"no accept length in {counted(f.accepted.plain, 'decode batch', 'decode batches')}"
    message = f"Speculation is configured ({str(algorithm)[:40]}) but not active: {seen}."
    call = Call(
        want=Want.ALERT,
        reason="SpeculationInactive",
        message=message,
        advice="Read the start's log for why it was turned off: the draft model, or arguments that exclude it.",
    )
    return Verdict(type="SpeculationEffective", status=Status.FALSE, reason="SpeculationInactive", message=message, calls=(call,))
