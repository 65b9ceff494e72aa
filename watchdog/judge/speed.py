"""Is it slow? Decode steps against what is usual at the same batch size, and the time to a first token. Told, never restarted."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.speed import WINDOW_S, Steady
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import counted, span

SLOW = 2.0
"""A step that takes so many times as long as usual, in the best quarter of the last minutes, is slow."""
BEST = 0.25
CRAWL = 1.0
"""Fewer tokens a second than this for one request are useless on any machine."""
FIRST_SLOW = 4.0
FIRST_LEAST_S = 1.0
"""A first token that is late by less than this is nobody's trouble."""

SLOW_ADVICE = (
    "Look at GPU clocks and power, at what else runs on the host (CPU, memory traffic, page faults), and at what changed; "
    "a restart is no cure unless one of these is."
)
PIN_ADVICE = (
    "The log also says that no token may be pinned in the host cache: try without --enable-hierarchical-cache, or another "
    "version; a restart with the same arguments ends the same way."
)


def judge(f: Facts, now: float) -> list[Verdict]:
    """The conditions DecodeSpeed and FirstTokenSpeed."""
    phase = f.life.phase()
    if phase is not Phase.SERVING:
        said = f"The server is {phase.value}."
        return [
            Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=said)
            for kind in ("DecodeSpeed", "FirstTokenSpeed")
        ]
    return [decode(f, now), first_token(f, now)]


def decode(f: Facts, now: float) -> Verdict:
    """DecodeSpeed: how long a decode step takes."""
    kind = "DecodeSpeed"
    crawl = f.speed.per_request.now(now)
    if crawl is not None and crawl < CRAWL:
        message = f"It crawls: one request gets {crawl:.2f} tokens a second, for {span(WINDOW_S)} now."
        return _slow(f, kind, message)
    compared, by = list(_compared(f.speed.steps, _learned(f), now)), ""
    if not compared:
        # No lines tell, and no two scrapes see the same requests, as with short answers and few decode lines.
        compared, by = list(_compared(f.speed.between, {}, now)), ", by the times between tokens"
    if not compared:
        message = (
            "Too few decode steps to compare."
            if crawl is None
            else f"One request gets {crawl:.1f} tokens a second; what is usual is not known yet."
        )
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoTraffic" if crawl is None else "NotLearned", message=message)
    count, size, step, usual = max(compared)
    shown = f"a decode step takes {step * 1000:.0f} ms with {_range(size)} running (usually {usual * 1000:.0f} ms){by}"
    if step > SLOW * usual:
        return _slow(f, kind, f"Decoding is slow: {shown}, for {span(WINDOW_S)} now, whatever was asked.")
    return Verdict(
        type=kind,
        status=Status.TRUE,
        reason="AsUsual",
        message=f"{shown[:1].upper()}{shown[1:]}, over {counted(count, 'figure')}.",
    )


def _learned(f: Facts) -> dict[int, float]:
    """Usual seconds of a step by batch size, as the baseline has them."""
    known = f.usual()
    return {int(size): step for size, step in known.steps.items() if size.isdecimal()} if known is not None else {}


def _compared(found: Mapping[int, Steady], learned: Mapping[int, float], now: float) -> Iterator[tuple[int, int, float, float]]:
    """(figures, batch size, seconds of a step now, seconds that are usual)."""
    for size, steps in found.items():
        step = steps.now(now, BEST)
        usual = learned.get(size) or steps.usual()
        if step is not None and usual is not None:
            yield steps.recent.count, size, step, usual


def _slow(f: Facts, kind: str, message: str) -> Verdict:
    advice, evidence = SLOW_ADVICE, [message]
    if f.speed.pin_budget is not None:
        message = f"{message[:-1]}; the log says: {f.speed.pin_budget}."
        advice = PIN_ADVICE
        evidence.append(f.speed.pin_budget)
    call = Call(want=Want.ALERT, reason="DecodeSlow", message=message, advice=advice, evidence=tuple(evidence))
    return Verdict(type=kind, status=Status.FALSE, reason="DecodeSlow", message=message, calls=(call,))


def first_token(f: Facts, now: float) -> Verdict:
    """FirstTokenSpeed: how long our own requests, and those of users, wait for their first token where no other waits."""
    kind = "FirstTokenSpeed"
    found = [each for each in (_own(f, now), _of_users(f, now)) if each is not None]
    if not found:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotLearned", message="Too few requests to compare.")
    late = [each for each in found if each.ratio > FIRST_SLOW and each.late_s > FIRST_LEAST_S]
    worst = max(late or found, key=lambda each: each.ratio)
    if late:
        message = f"First tokens are late: {worst.shown}, {worst.though}."
        evidence = tuple(each.shown for each in late)
        call = Call(want=Want.ALERT, reason="FirstTokenSlow", message=message, advice=SLOW_ADVICE, evidence=evidence)
        return Verdict(type=kind, status=Status.FALSE, reason="FirstTokenSlow", message=message, calls=(call,))
    return Verdict(type=kind, status=Status.TRUE, reason="AsUsual", message=f"{worst.shown[:1].upper()}{worst.shown[1:]}.")


class _Waits(NamedTuple):
    """Times to the first token: against the usual, beyond it in seconds, and in words."""

    ratio: float
    late_s: float
    shown: str
    though: str


def _own(f: Facts, now: float) -> _Waits | None:
    known = []
    for probe, waits in f.speed.first_token.items():
        wait, usual = waits.now(now), _usual(f, probe, waits)
        if wait is not None and usual is not None:
            known.append((wait - usual, probe, wait, usual))
    if not known:
        return None
    late_s, probe, wait, usual = max(known)
    prompt = "short" if probe == "chat" else "long"
    shown = f"the first token of our {prompt} prompt takes {wait:.2f} s (usually {usual:.2f} s)"
    return _Waits(wait / max(usual, 1e-6), late_s, shown, "though nothing else is in the engine")


def _of_users(f: Facts, now: float) -> _Waits | None:
    """Each request is compared with the usual for its own size; the median of them is not moved by the mix of sizes."""
    known = f.usual()
    learned = {int(size): wait for size, wait in known.prompts.items() if size.isdecimal()} if known is not None else {}
    usual = {size: wait for size, wait in {**f.prompts.usual(), **learned}.items() if wait > 0}
    recent = f.prompts.now(now, usual)
    if not recent:
        return None
    by_ratio = sorted((wait / usual[size], size, wait) for size, wait in recent)
    ratio, size, wait = by_ratio[(len(by_ratio) - 1) // 2]
    shown = (
        f"users' prompts with {_range(size)} new tokens take {wait:.2f} s to the first token (usually {usual[size]:.2f} s), "
        f"the median of {counted(len(recent), 'figure')}"
    )
    return _Waits(ratio, wait - usual[size], shown, "though no request waits for another")


def _usual(f: Facts, probe: str, waits: Steady) -> float | None:
    known = f.usual()
    return (known.first_token.get(probe) if known is not None else None) or waits.usual()


def _range(size: int) -> str:
    return str(size) if size == 1 else f"{size} to {2 * size - 1}"
