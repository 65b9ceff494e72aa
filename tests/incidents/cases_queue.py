"""Servers that turn requests away because their queue is full, or say so."""

from tests.incidents.case import NOT, case, must
from tests.incidents.sim import Sim

T = 600.0


def full() -> dict[str, object]:
    body = '{"message":"The request queue is full.","type":"503","code":503}'
    return {"outcome": "status", "status": 503, "total_s": 0.02, "body": body}


@case(
    "sgl-router-breaker-2048",
    until=2400,
    variants=("no-metrics", "one-gpu-no-metrics", "plain"),
    rate=0.0,
    max_running=6,
    answers=(5000, 7000),
    step_s=0.03,
)
def queue_that_empties_at_last(s: Sim) -> None:
    """Canaries stood behind it for half an hour: that none was answered says nothing when nobody waits any more."""
    s.at(300, lambda: setattr(s, "rate", 0.09))
    s.at(1150, lambda: setattr(s, "rate", 0.0))


@case("queue full", until=1800, variants=("plain", "no-metrics"), rate=2.5, max_running=16)
def queue_full(s: Sim) -> None:
    s.at(T, lambda: setattr(s.looks, "chat_as", full))


@case(
    "queue full",
    until=T + 900,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu", "quick-probes"),
    alert=must(T + 200, T + 400, "at rest"),
    restart=must(T + 480, T + 700),
)
def queue_full_at_rest(s: Sim) -> None:
    """All are turned away for a queue that is empty, and nothing runs: no load, and nothing that a restart could lose."""

    def act() -> None:
        s.rate = 0.0
        s.looks.chat_as = full

    s.at(T - 60, lambda: setattr(s, "rate", 0.0))
    s.at(T, act)


@case(
    "queue full",
    until=1800,
    variants=("plain", "no-metrics"),
    mid_life=False,
    rate=0.0,
    alert=must(300, 1000, "--max-queued-requests"),
)
def nobody_is_ever_let_in(s: Sim) -> None:
    """--max-queued-requests 0: a restart repeats it."""
    s.at(20, s.boot)
    s.looks.chat_as = full


@case(
    "sgl-batch-is-full-latch",
    until=2900,
    variants=("plain", "no-metrics", "0.5.9", "quick-probes"),
    rate=0.02,
    alert=NOT,
)
def now_and_then_nobody_is_let_in(s: Sim) -> None:
    """For less than two minutes each: canaries stand in the queue that the log tells of, and are not lost."""

    def shut() -> None:
        s.engine.admits = False
        s.user(500, 300)

    def open_again() -> None:
        s.engine.admits = True
        s.engine.wake()

    for t in (500, 1100, 1700, 2300):
        s.at(t - 1.0, lambda: s.user(800, 15_000) and None)
        s.at(float(t), shut)
        s.at(t + 112.0, open_again)
