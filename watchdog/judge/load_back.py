"""Does the host pool change answers? A finding, never a reason to restart: a restart empties the pool, and the fault stays."""

import math

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.prefix import Pair
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import ago

LEAST = 3
"""So many answers that differ after load-backs are looked at: one differs by noise alone."""
CHANCE = 0.01
"""More differences than noise brings with this probability are no noise."""


def judge(f: Facts, now: float) -> Verdict:
    """The condition LoadBackFaithful."""
    kind = "LoadBackFaithful"
    if f.life.phase() is not Phase.SERVING:
        message = f"The server is {f.life.phase().value}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=message)
    loaded, steady = list(f.prefix.loaded), list(f.prefix.steady)
    server = f.life.server
    if not loaded and server is not None and not server.args.get("enable_hierarchical_cache"):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoHostPool", message="The hierarchical cache is off.")
    if not loaded:
        message = "The prefix canary has not been loaded back from the host pool and compared yet."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message=message)
    differing = [pair for pair in loaded if not pair.same]
    noise = [pair for pair in steady if not pair.same]
    said = f"{len(differing)} of {len(loaded)} answers after a load-back from the host pool differ from the computed ones"
    besides = f"{len(noise)} of {len(steady)} without one do"
    if not differing:
        message = f"{said} ({besides})."
        return Verdict(type=kind, status=Status.TRUE, reason="SameAnswers", message=message)
    last = _beside(differing[-1], now)
    chance = by_noise(len(differing), len(loaded), len(noise), len(steady))
    if len(differing) < LEAST or chance > CHANCE:
        message = f"{said}, {besides}: too little to tell from noise ({last})."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="OddLoadBack", message=message)
    message = f"{said}, {besides}: {last}."
    call = Call(
        want=Want.ALERT,
        reason="LoadBackChangesAnswers",
        message=message,
        advice=(
            "Users whose prompts are loaded back get wrong answers, without an error: try another --hicache-io-backend and "
            "--hicache-mem-layout or another SGLang version, and until then start without --enable-hierarchical-cache."
        ),
        evidence=(f"chance by noise {chance:.2%}", *(_beside(pair, now) for pair in differing[-LEAST:])),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="LoadBackChangesAnswers", message=message, calls=(call,))


def by_noise(differing: int, of: int, noise: int, steady: int) -> float:
    """The probability (0…1) that so many answers differ after load-backs if load-backs change nothing.

    The tail of the binomial distribution, with Laplace's rule of succession for how often an answer differs by noise.

    Args:
        differing: answers that differ after load-backs.
        of: all answers after load-backs.
        noise: answers that differ without one.
        steady: all answers without one.
    """
    p = (noise + 1) / (steady + 2)
    return min(1.0, sum(math.comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(differing, of + 1)))


def _beside(pair: Pair, now: float) -> str:
    return f"computed {pair.computed}, loaded back {ago(now - pair.reply.t)} {pair.reply}"
