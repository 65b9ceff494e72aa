"""An end that systemd repairs is told with its cause, which the journal shows a moment after systemd tells of the end."""

from collections.abc import Iterable
from typing import Any

import pytest

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.verdict import Action, Event
from watchdog.observation import Job, Log, Observation, Unit

OLD = "a" * 32
CUDA = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


class Case:
    """A server that was killed at 100 s and is started anew by systemd."""

    def __init__(self) -> None:
        self.engine = Engine(Settings())
        self.told: list[tuple[float, str]] = []
        self.see(Unit(t=0.0, inv=OLD, load_state="loaded", active_state="active", sub_state="running", since=0.0, main_pid=1))
        self.see(Log(t=1.0, inv=OLD, message=READY))
        self.see(
            Unit(
                t=100.0,
                inv=OLD,
                load_state="loaded",
                active_state="activating",
                sub_state="auto-restart",
                result="signal",
                exec_main_code="killed",
                exec_main_status=9,
                n_restarts=1,
                restart="always",
                since=0.0,
            )
        )

    def see(self, x: Log | Unit) -> None:
        self._take(x.t, self.engine.observe(x))

    def tick(self, t: float) -> None:
        self._take(t, self.engine.tick(t))

    def _take(self, t: float, events: Iterable[Event]) -> None:
        for event in events:
            if event.intent is not None and event.intent.action is Action.ALERT and event.intent.reason == "ServerDied":
                self.told.append((t, event.intent.message))


def test_the_last_lines_are_waited_for_and_name_the_cause() -> None:
    case = Case()
    case.see(
        Log(t=100.6, inv=OLD, message="[2026-01-14 02:01:40] Scheduler hit an exception: Traceback (most recent call last):")
    )
    case.tick(101.0)
    case.see(Log(t=101.1, inv=OLD, message=CUDA))
    case.tick(102.0)
    assert case.told == []
    case.tick(103.5)
    case.tick(110.0)
    assert [("killed" in said, "CUDA error: an illegal memory access" in said) for _, said in case.told] == [(True, True)]


def test_an_end_without_a_word_is_told_soon() -> None:
    case = Case()
    for t in (101.0, 102.0, 103.5, 110.0):
        case.tick(t)
    assert [t for t, _ in case.told] == [103.5]


@pytest.mark.parametrize("late", [True, False])
def test_a_second_early_death_is_compared_by_its_last_lines(late: bool) -> None:
    """Both end with status 9; what the second died of comes out of the journal after systemd told of its end, or never."""
    engine = Engine(Settings())
    said: list[str] = []

    def take(events: Iterable[Event]) -> None:
        said.extend(c.message for e in events if (c := e.condition) is not None and c.reason == "SameEarlyDeath")

    for n, inv in enumerate(("a" * 32, "b" * 32)):
        t = 10.0 * n
        up: dict[str, Any] = {"load_state": "loaded", "restart": "always", "since": t, "inv": inv}
        take(engine.observe(Unit(t=t, active_state="active", sub_state="running", main_pid=n + 1, **up)))
        take(
            engine.observe(
                Unit(
                    t=t + 5.0,
                    active_state="activating",
                    sub_state="auto-restart",
                    result="signal",
                    exec_main_code="killed",
                    exec_main_status=9,
                    n_restarts=n + 1,
                    **up,
                )
            )
        )
        take(engine.tick(t + 5.2))
        if n == 1 and late:
            take(engine.observe(Log(t=t + 5.5, inv=inv, message=CUDA)))
        take(engine.tick(t + 6.0))
    assert said == []
    take(engine.tick(18.5))
    assert ["2 times in a row of the same cause: killed" in each for each in said] == ([] if late else [True])


@pytest.mark.parametrize(
    ("sub", "limit_s", "told"),
    [
        ("stop-sigterm", 90.0, ", for 12 s; systemd sends SIGKILL in 1 min 18 s if it has not ended by then."),
        ("stop-sigterm", None, ", for 12 s."),
        ("stop-sigkill", 5.0, ", for 12 s; systemd has sent SIGKILL."),
    ],
)
def test_a_stop_tells_how_long_it_lasts(sub: str, limit_s: float | None, told: str) -> None:
    engine = Engine(Settings())
    for t, state, now in ((0.0, "active", "running"), (100.0, "deactivating", "stop-sigterm"), (111.0, "deactivating", sub)):
        unit = Unit(t=t, inv=OLD, load_state="loaded", active_state=state, sub_state=now, main_pid=1, timeout_stop_s=limit_s)
        list(engine.observe(unit))
    list(engine.tick(112.0))
    assert engine.conditions["UnitActive"].message.endswith(told)


def test_old_deaths_are_no_news_when_a_life_that_served_was_ended_by_somebody() -> None:
    engine = Engine(Settings())
    told: list[float] = []

    def see(x: Observation) -> None:
        for event in (*engine.observe(x), *engine.tick(x.t)):
            if event.intent is not None and event.intent.action is Action.ALERT and event.intent.reason == "ServerDied":
                told.append(x.t)

    def unit(t: float, n: int, active: str, sub: str, **more: Any) -> None:
        see(Unit(t=t, inv=f"{n:032x}", load_state="loaded", active_state=active, sub_state=sub, restart="always", **more))

    for n in range(3):
        t = 60.0 * n
        unit(t, n, "active", "running", main_pid=n + 1, since=t)
        see(Log(t=t + 19.0, inv=f"{n:032x}", message="ValueError: Loaded weights leave no GPU memory for the KV cache"))
        unit(t + 20.0, n, "activating", "auto-restart", result="exit-code", exec_main_code="exited", exec_main_status=1)
    unit(200.0, 3, "active", "running", main_pid=4, since=200.0)
    see(Log(t=260.0, inv=f"{3:032x}", message=READY))
    see(Job(t=900.0, inv=f"{3:032x}", phase="new", job="restart"))
    unit(901.0, 3, "deactivating", "stop-sigterm", main_pid=4, since=200.0)
    before = list(told)
    unit(910.0, 4, "active", "running", main_pid=5, since=910.0)
    see(Log(t=960.0, inv=f"{4:032x}", message=READY))
    unit(1000.0, 4, "active", "running", main_pid=5, since=910.0)
    assert before and told == before


def test_a_start_that_dies_of_something_known_says_at_once_what_helps() -> None:
    engine = Engine(Settings())
    advice: list[str | None] = []

    def see(x: Observation) -> None:
        for event in (*engine.observe(x), *engine.tick(x.t)):
            if event.intent is not None and event.intent.action is Action.ALERT and event.intent.reason == "ServerDied":
                advice.append(event.intent.advice)

    up: dict[str, Any] = {"inv": OLD, "load_state": "loaded", "restart": "always", "since": 0.0}
    see(Unit(t=0.0, active_state="active", sub_state="running", main_pid=1, **up))
    see(Log(t=19.0, inv=OLD, message="ValueError: Loaded weights leave no GPU memory for the KV cache"))
    end: dict[str, Any] = {"result": "exit-code", "exec_main_code": "exited", "exec_main_status": 1, **up}
    see(Unit(t=20.0, active_state="activating", sub_state="auto-restart", **end))
    list(engine.tick(21.0))
    assert "no GPU memory for the KV cache" in engine.conditions["UnitActive"].message
    see(Unit(t=30.0, active_state="activating", sub_state="auto-restart", **end))
    assert [said is not None and said.startswith("Lower --mem-fraction-static") for said in advice] == [True]
