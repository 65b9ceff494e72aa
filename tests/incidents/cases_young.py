"""Servers that became ready a moment ago: whatever is first to use a kernel waits for it to be loaded, or for ever."""

from tests.incidents.case import case, must
from tests.incidents.sim import Sim


def stands_still(s: Sim) -> None:
    """A request comes, and everything waits as soon as it is let in."""
    s.user(900, 100)
    s.after(0.01, lambda: setattr(s.engine, "stuck", True))


def loads_a_module(s: Sim, after: float, seconds: float) -> None:
    """A request, so long after readiness, is the first to use a kernel: everything waits until it is loaded."""

    def first() -> None:
        stands_still(s)
        s.after(seconds, on)

    def on() -> None:
        s.engine.stuck = s.engine._busy = False
        s.engine._current = None
        s.engine.wake()

    s.at(20, s.boot)
    s.after_start = lambda: s.after(after, first)


@case("sgl-cumoduleload-first-verify", until=1400, variants=("plain", "no-metrics", "one-gpu"), mid_life=False, rate=0.0)
def first_request_loads_a_module(s: Sim) -> None:
    loads_a_module(s, 2, 110)


@case("sgl-cumoduleload-first-verify", until=1400, variants=("plain", "no-metrics", "one-gpu"), mid_life=False, rate=0.2)
def a_later_request_loads_a_module(s: Sim) -> None:
    loads_a_module(s, 60, 150)


@case(
    "sgl-cumoduleload-first-verify",
    until=1700,
    variants=("plain", "no-metrics", "one-gpu"),
    mid_life=False,
    restart=must(300, 1200),
    rate=0.0,
)
def first_request_hangs(s: Sim) -> None:
    s.at(20, s.boot)
    s.after_start = lambda: s.after(2, lambda: stands_still(s))


@case(
    "sgl-cumoduleload-first-verify",
    until=1400,
    variants=("plain", "no-metrics", "one-gpu"),
    mid_life=False,
    restart=must(440, 900),
    watchdog_s=20000.0,
    rate=0.2,
)
def a_later_request_hangs(s: Sim) -> None:
    """Some have been answered since the start; this one is the first of its shape."""
    s.at(20, s.boot)
    s.after_start = lambda: s.after(40, lambda: setattr(s.engine, "stuck", True))
