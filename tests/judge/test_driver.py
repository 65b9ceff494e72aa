"""A driver that does not answer: slow while the engine goes on, stuck where it lasts or the engine stands still."""

from typing import Any

from tests.incidents.sim import Setup, Sim
from watchdog.judge.engine import Engine
from watchdog.observation import Header
from watchdog.replay import settings_of


def told(sim: Sim, until: float) -> list[tuple[str, str, str]]:
    """The alerts and what was withheld for the driver: (action, reason, severity)."""
    engine = Engine(settings_of(Header(server="kimi")), mid_life=True)
    intents = [e.intent for x in sim.run(until) for e in engine.observe(x) if e.intent is not None]
    return [(str(i.action), i.reason, str(i.severity)) for i in intents if i.reason.startswith("Driver")]


def silent(**more: Any) -> Sim:
    """A server whose driver is silent from 300 s on."""
    s = Sim(Setup(**more), 7)
    s.at(300, lambda: setattr(s.looks, "gpu_error", "driver_timeout"))
    return s


def test_a_slow_driver_under_a_server_that_works_is_a_warning() -> None:
    for rate in (0.0, 0.4):
        s = silent(rate=rate)
        s.at(340, lambda s=s: setattr(s.looks, "gpu_error", None))  # type: ignore[misc]
        assert told(s, 700) == [("alert", "DriverSlow", "warning"), ("clear", "DriverSlow", "info")]


def test_a_driver_that_stays_silent_is_stuck() -> None:
    assert told(silent(), 900)[:2] == [("alert", "DriverSlow", "warning"), ("alert", "DriverWedged", "critical")]


def test_a_silent_driver_under_a_hung_server_holds_the_restart_back() -> None:
    s = silent()
    s.at(300, lambda: setattr(s.engine, "stuck", True))
    found = told(s, 580)
    assert ("alert", "DriverWedged", "critical") in found and ("withhold", "DriverWedged", "critical") in found


GONE = ("alert", "DriverGone", "critical")


def at_work(begun: float, *, started: float | None = None) -> Sim:
    """A person stops the server at 250 s; the driver is away from `begun` on."""
    s = Sim(Setup(), 7)
    s.at(250, lambda: s.stop("stop", drain_s=5.0))
    s.at(begun, lambda: setattr(s.looks, "gpu_error", "no_driver"))
    if started is not None:
        s.at(started, s.boot)
    return s


def test_who_has_stopped_the_server_may_change_its_driver() -> None:
    assert told(at_work(400), 1500) == []


def test_what_is_still_so_when_it_is_started_is_told() -> None:
    assert GONE in told(at_work(400, started=1500.0), 1700)


def test_what_was_told_before_the_stop_is_not_over_by_it() -> None:
    found = told(at_work(150), 1500)
    assert GONE in found and not any(action == "clear" for action, _, _ in found)
