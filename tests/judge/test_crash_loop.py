"""A server that dies right after each start, told, counted and withheld whatever the pace."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.facts.deaths import KEPT
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Action, Event, Intent
from watchdog.observation import Job, Log, Observation, Unit

IMPORT = "ImportError: no module named sglang"
SYSTEMD: dict[str, Any] = {"pid": 1, "ident": "systemd", "origin": "systemd"}


class Loop:
    """A unit whose starts die; systemd starts it again every `cycle_s`."""

    def __init__(self) -> None:
        self.engine = Engine(Settings())
        self.intents: list[tuple[float, Intent]] = []
        self.lines: list[str] = []
        self.n = 0

    def see(self, x: Observation) -> None:
        self._take(self.engine.observe(x))

    def tick(self, t: float) -> None:
        self._take(self.engine.tick(t))

    def unit(self, t: float, active: str, sub: str, **changes: Any) -> None:
        fields: dict[str, Any] = {"load_state": "loaded", "restart": "always", "n_restarts": self.n, "result": "success"}
        self.see(Unit(t=t, inv=self.inv, active_state=active, sub_state=sub, **{**fields, **changes}))

    def line(self, t: float, message: str = IMPORT) -> None:
        self.see(Log(t=t, inv=self.inv, message=message, pid=100 + self.n))

    @property
    def inv(self) -> str:
        return f"{self.n:032x}"

    def die(self, t: float, *, up_s: float = 0.2, line: str | None = "after", seen: bool = True) -> None:
        """One life: it starts at `t` and dies at `t + up_s`; its last line comes before systemd's word of it, or after."""
        began: dict[str, Any] = {"since": t}
        if line == "before":
            self.line(t)
        if seen:
            self.unit(t, "active", "running", main_pid=100 + self.n, **began)
        end: dict[str, Any] = {"result": "exit-code", "exec_main_code": "exited", "exec_main_status": 1}
        self.unit(t + up_s, "activating", "auto-restart", **end, **began)
        if line == "after":
            self.line(t + up_s + 0.05)

    def turn(self, start: float, turns: int, cycle_s: float) -> float:
        """So many lives, from `start` on; the end."""
        for k in range(turns):
            self.die(start + k * cycle_s, up_s=min(0.2, cycle_s / 4))
            self.n += 1
        self.n -= 1
        return start + turns * cycle_s

    def give_up(self, t: float, *, job_first: bool) -> None:
        """systemd gives up, and its own stop job is seen before or after its words."""
        words = Log(t=t, inv=self.inv, message="sglang.service: Start request repeated too quickly.", **SYSTEMD)
        job = Job(t=t, inv=self.inv, phase="new", job="stop")
        for x in (job, words) if job_first else (words, job):
            self.see(x)
        self.see(Job(t=t, inv=self.inv, phase="removed", job="stop", result="failed"))
        self.unit(t + 0.01, "failed", "failed", result="exit-code", exec_main_code="exited", exec_main_status=1)

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.intent is not None:
                self.intents.append((event.t, event.intent))
            if event.condition is not None:
                self.lines.append(event.condition.type)

    def told(self, action: Action, reason: str) -> list[float]:
        return [t for t, x in self.intents if x.action is action and x.reason == reason]


@pytest.mark.parametrize("cycle_s", [0.15, 1.2, 2.2, 5.0, 25.0])
def test_a_loop_of_any_pace_is_told_once_and_withheld(cycle_s: float) -> None:
    loop = Loop()
    end = loop.turn(0.0, max(3, int(60.0 / cycle_s)), cycle_s)
    loop.tick(end + 5.0)

    assert [t < 10.0 for t in loop.told(Action.ALERT, "ServerDied")] == [True]
    assert [t < 60.0 for t in loop.told(Action.WITHHOLD, "SameEarlyDeath")] == [True]
    assert not loop.told(Action.RESTART, "DiedUnasked")


def test_a_fast_loop_does_not_fill_the_journal() -> None:
    loop = Loop()
    end = loop.turn(0.0, 4, 1.2)
    before = len(loop.lines)
    loop.turn(end, 200, 1.2)
    assert len(loop.lines) - before <= 3


def test_its_deaths_are_counted_also_those_that_are_not_kept_or_seen() -> None:
    loop = Loop()
    end = loop.turn(0.0, KEPT + 50, 1.2)
    loop.n += 11  # systemd says that it has started eleven more lives, ten of which we have not seen
    loop.die(end, line=None)
    loop.tick(end + 5.0)

    n = KEPT + 50 + 10 + 1
    said = {v.type: v for v in loop.engine.verdicts}
    assert f"{n} times in a row of the same cause" in said["Restartable"].message
    assert f"{n} times so far" in said["UnitActive"].message
    alert = next(c for c in said["UnitActive"].calls if c.reason == "ServerDied")
    assert f"{n} times in 24 h" in alert.message


def test_a_start_that_succeeds_ends_the_loop() -> None:
    loop = Loop()
    end = loop.turn(0.0, 5, 1.2)
    loop.n += 1
    loop.unit(end, "active", "running", main_pid=999, since=end)
    loop.line(end + 3.0, "[2026-01-14 02:00:00] The server is fired up and ready to roll!")
    loop.tick(end + 3.1)

    life = loop.engine.facts.life
    assert life.phase() is Phase.SERVING and not life.looping(end + 3.1)
    assert {v.type: v.reason for v in loop.engine.verdicts}["UnitActive"] == "Active"


@pytest.mark.parametrize("job_first", [True, False])
@pytest.mark.parametrize("lines", [("after", "before"), ("before", "after"), ("after", None), (None, "after")])
def test_equal_deaths_are_equal_whenever_the_last_line_comes(lines: tuple[str | None, str | None], job_first: bool) -> None:
    """And systemd's own stop, when it gives up, is nobody's wish; its start limit is known by its words."""
    loop = Loop()
    for k, line in enumerate(lines):
        loop.n = k
        loop.die(20.0 * k, line=line, seen=False)
    loop.give_up(40.0, job_first=job_first)
    for t in range(45, 120, 5):
        loop.tick(float(t))

    assert len(loop.told(Action.WITHHOLD, "SameEarlyDeath")) == 1
    assert not loop.told(Action.RESTART, "DiedUnasked")
    outage = next(v for v in loop.engine.verdicts if v.type == "UnitActive")
    assert outage.reason == "DiedUnasked" and "start limit" in outage.message


def test_a_start_that_dies_of_something_else_is_not_the_same_death() -> None:
    loop = Loop()
    loop.die(0.0)
    loop.n = 1
    loop.die(20.0, line=None)
    loop.line(20.3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    loop.tick(30.0)
    assert not loop.told(Action.WITHHOLD, "SameEarlyDeath")


def test_a_state_that_is_not_known_is_unknown() -> None:
    loop = Loop()
    loop.see(Unit(t=0.0, inv=loop.inv, load_state="loaded"))
    loop.tick(1.0)
    outage = next(v for v in loop.engine.verdicts if v.type == "UnitActive")
    assert (str(outage.status), outage.reason) == ("Unknown", "StateUnknown")


CUDA = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


def lives(*served_s: float, causes: tuple[str, ...] = (CUDA,), asked: int | None = None) -> Loop:
    """Lives that take 100 s to start and serve for so long each, then die; systemd gives up after the last one."""
    loop = Loop()
    t = 0.0
    for k, served in enumerate(served_s):
        loop.n = k
        end = t + 100.0 + served
        loop.unit(t, "active", "running", main_pid=100 + k, since=t)
        loop.line(t + 100.0, READY)
        if k == asked:
            loop.see(Job(t=end, inv=loop.inv, phase="new", job="restart"))
            loop.unit(end, "deactivating", "stop-sigterm", since=t)
            loop.see(Job(t=end + 10.0, inv=loop.inv, phase="removed", job="restart", result="done"))
        else:
            loop.line(end, causes[k % len(causes)])
            last = k == len(served_s) - 1
            state = ("failed", "failed") if last else ("activating", "auto-restart")
            killed: dict[str, Any] = {"result": "signal", "exec_main_code": "killed", "exec_main_status": 9}
            loop.unit(end + 0.1, *state, since=t, **killed)
        t = end + 10.0
    for _ in range(8):
        t += 5.0
        loop.tick(t)
    return loop


def test_a_server_that_dies_of_one_cause_soon_after_each_start_is_not_started_once_more() -> None:
    loop = lives(60.0, 50.0, 40.0)

    assert len(loop.told(Action.WITHHOLD, "SameEarlyDeath")) == 1
    assert not loop.told(Action.RESTART, "DiedUnasked")
    assert len(loop.told(Action.ALERT, "ServerDied")) == 3
    said = next(x for _, x in loop.intents if x.action is Action.WITHHOLD)
    assert "3 times in a row of the same cause, soon after each start" in said.message
    assert "request" in str(said.advice)


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(lambda: lives(60.0, 50.0), id="two may be an accident"),
        pytest.param(lambda: lives(60.0, 50.0, 5000.0), id="the last one served for long"),
        pytest.param(lambda: lives(60.0, 50.0, 5000.0, 60.0, 50.0), id="one between them served for long"),
        pytest.param(
            lambda: lives(60.0, 50.0, 5000.0, 60.0, asked=2), id="one between them was stopped after it served for long"
        ),
        pytest.param(lambda: lives(120.0, 130.0, 110.0, 140.0), id="each served for longer than it took to start"),
        pytest.param(lambda: lives(60.0, 50.0, 40.0, causes=(CUDA, IMPORT)), id="of different causes"),
    ],
)
def test_a_server_that_was_worth_its_start_is_started_again(loop: Callable[[], Loop]) -> None:
    made = loop()
    assert made.told(Action.RESTART, "DiedUnasked")
    assert not made.told(Action.WITHHOLD, "SameEarlyDeath")
