"""A daemon that begins anew: how the server's lives ended before it is known to it, and no alert ends with the daemon."""

import json
from pathlib import Path

import pytest

from tests.test_watch import Made
from watchdog.judge.recovery import STEADY_S
from watchdog.judge.verdict import Action
from watchdog.observation import Answer, Log, Probe, Unit

READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"
CAUSE = "[2026-01-14 02:00:00] Subprocess scheduler_0 (pid=4993) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
EARLY = "[2026-01-14 02:00:00] Scheduler hit an exception: Traceback (most recent call last):"
GOOD = Answer(text="The capital of France is Paris.", finish_reason="stop")


class Case:
    """A server that systemd starts anew each time that it dies, and daemons that watch it one after another."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.n = 0
        self.told: list[tuple[Action, str]] = []
        self.made = Made(home)

    def daemon(self, *, away_s: float = 0.0) -> None:
        """The daemon ends, however it does, and another one begins."""
        self.collect()
        watch = self.made.watch
        watch.file.write(watch.file.encode(watch.snapshot_state()))
        path = watch.file.path
        saved = json.loads(path.read_bytes())
        path.write_text(json.dumps(saved | {"boottime": saved["boottime"] - away_s}))
        self.made = Made(self.home)

    def collect(self) -> list[tuple[Action, str]]:
        self.told += [(i.action, i.message) for i in self.made.decided if i.reason in ("ServerDied", "SameEarlyDeath")]
        self.made.decided.clear()
        return self.told

    @property
    def inv(self) -> str:
        return f"{self.n:032x}"

    @property
    def t(self) -> float:
        return self.made.clock.now()

    def wait(self, seconds: float) -> None:
        until = self.t + seconds
        while self.t < until:
            self.made.clock.advance(min(5.0, until - self.t))
            self.made.watch.tick()

    def unit(self, active: str, sub: str, **more: object) -> None:
        up = {"t": self.t, "inv": self.inv, "load_state": "loaded", "restart": "always", "n_restarts": self.n}
        self.made.take(Unit(active_state=active, sub_state=sub, **up, **more))  # type: ignore[arg-type]

    def start(self) -> None:
        self.n += 1
        self.unit("active", "running", since=self.t, main_pid=self.n + 1)

    def die(self, line: str = CAUSE) -> None:
        self.made.take(Log(t=self.t, inv=self.inv, message=line))
        self.unit("activating", "auto-restart", result="signal", exec_main_code="killed", exec_main_status=9)
        self.wait(10.0)
        self.start()

    def serve(self, seconds: float) -> None:
        self.wait(30.0)
        self.made.take(Log(t=self.t, inv=self.inv, message=READY))
        until = self.t + seconds
        while self.t < until:
            self.wait(20.0)
            self.made.take(Probe(t=self.t, inv=self.inv, probe="chat", outcome="ok", status=200, total_s=0.3, answer=GOOD))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    case = Case(tmp_path)
    case.start()
    return case


def test_deaths_before_the_daemon_count_and_their_alert_stands_until_all_is_steady(case: Case) -> None:
    for _ in range(3):
        case.serve(300.0)
        case.die()
    case.serve(100.0)
    case.unit("deactivating", "stop-sigterm", main_pid=1, result="success")
    case.collect().clear()
    case.daemon(away_s=200.0)
    case.wait(300.0)
    case.unit("deactivating", "stop-sigterm", main_pid=1, result="success")
    case.wait(300.0)
    case.start()
    case.serve(1200.0)
    assert case.collect() == [], "it is not over while it stops, nor as soon as it serves"
    case.die()
    case.serve(600.0)
    assert [(action, said[:33]) for action, said in case.collect()] == [(Action.ALERT, "The server died, 4 times in 24 h:")]
    case.serve(STEADY_S)
    assert [action for action, _ in case.collect()] == [Action.ALERT, Action.CLEAR]


def test_two_starts_that_die_alike_are_so_though_the_daemon_began_anew_between_them(case: Case) -> None:
    case.die(EARLY)
    case.daemon()
    case.unit("active", "running", since=case.t - 1.0, main_pid=2)
    case.die(EARLY)
    case.wait(5.0)
    assert Action.WITHHOLD in [action for action, _ in case.collect()]


def test_an_end_that_the_daemon_before_saw_is_counted_once(case: Case) -> None:
    case.serve(300.0)
    case.unit("activating", "auto-restart", result="signal", exec_main_code="killed", exec_main_status=9)
    case.wait(5.0)
    case.daemon()
    for _ in range(2):
        case.unit("activating", "auto-restart", result="signal", exec_main_code="killed", exec_main_status=9)
        case.wait(2.0)
    case.start()
    assert case.made.watch.engine.facts.life.deaths.in_a_day(case.t) == 1


def test_what_was_made_good_is_not_told_again(case: Case) -> None:
    case.serve(300.0)
    case.die()
    case.serve(900.0)
    assert [action for action, _ in case.collect()] == [Action.ALERT, Action.CLEAR]
    case.daemon()
    case.unit("active", "running", since=case.t - 900.0, main_pid=2)
    case.serve(900.0)
    assert len(case.collect()) == 2


def test_what_has_come_of_the_unit_since_is_not_known_by_an_end_before_us(case: Case) -> None:
    """It died, systemd was about to start it, and a person stopped it while we were away."""
    case.serve(300.0)
    case.unit("activating", "auto-restart", result="signal", exec_main_code="killed", exec_main_status=9)
    case.wait(5.0)
    case.daemon()
    case.unit("inactive", "dead", result="signal")
    case.wait(120.0)
    assert case.made.watch.engine.conditions["UnitActive"].reason == "NotStarted"
    assert Action.RESTART not in [i.action for i in case.made.decided]


def test_a_stop_that_was_asked_for_stays_one(case: Case) -> None:
    case.serve(300.0)
    case.unit("deactivating", "stop-sigterm", main_pid=2, result="success")
    case.unit("failed", "failed", result="timeout", exec_main_code="killed", exec_main_status=9)
    case.daemon()
    case.unit("failed", "failed", result="timeout", exec_main_code="killed", exec_main_status=9)
    case.wait(120.0)
    assert case.made.watch.engine.conditions["UnitActive"].reason == "StoppedByRequest"
    assert case.made.decided == []


def test_an_end_is_written_down_when_it_is_seen_and_again_when_its_cause_is_known(case: Case) -> None:
    case.serve(300.0)
    watch = case.made.watch
    watch.dirty = False
    case.unit("activating", "auto-restart", result="signal", exec_main_code="killed", exec_main_status=9)
    assert watch.dirty
    watch.dirty = False
    case.made.take(Log(t=case.t, inv=case.inv, message=CAUSE))
    watch.tick()
    assert watch.dirty


def test_what_is_read_late_comes_before_what_was_seen_since(case: Case) -> None:
    case.serve(300.0)
    case.die()
    case.daemon()
    late = case.made.watch.saved.ends
    case.made.watch.engine.facts.life.deaths.clear()
    case.unit("active", "running", since=case.t - 1.0, main_pid=2)
    case.die()
    deaths = case.made.watch.engine.facts.life.deaths
    case.made.watch.engine.recall(late, case.t)
    assert [d.recalled for d in deaths] == [True, False]
    assert deaths.in_a_day(case.t) == 2
