"""The alert of a death ends with the next life that is well; where it dies again and again, it does not come and go."""

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.recovery import STEADY_S
from watchdog.judge.verdict import Action
from watchdog.observation import Answer, Log, Probe, Unit

READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"
GOOD = Answer(text="The capital of France is Paris.", finish_reason="stop")


class Case:
    """A server that systemd starts anew each time that it dies."""

    def __init__(self) -> None:
        self.engine = Engine(Settings())
        self.t = 0.0
        self.n = 0
        self.told: list[tuple[float, Action]] = []
        self.start()

    def see(self, x: Log | Probe | Unit) -> None:
        for event in self.engine.observe(x):
            if event.intent is not None and event.intent.reason == "ServerDied":
                self.told.append((event.t, event.intent.action))

    @property
    def inv(self) -> str:
        return f"{self.n:032x}"

    def unit(self, active: str, sub: str, **more: object) -> None:
        up = {"t": self.t, "inv": self.inv, "load_state": "loaded", "restart": "always", "n_restarts": self.n}
        self.see(Unit(active_state=active, sub_state=sub, **up, **more))  # type: ignore[arg-type]

    def start(self) -> None:
        self.unit("active", "running", since=self.t, main_pid=self.n + 1)

    def die(self) -> None:
        self.unit("activating", "auto-restart", result="signal", exec_main_code="killed", exec_main_status=9)
        self.t += 10.0
        self.n += 1
        self.start()

    def serve(self, seconds: float, *, answer: bool = True) -> None:
        self.t += 30.0
        self.see(Log(t=self.t, inv=self.inv, message=READY))
        until = self.t + seconds
        while self.t < until:
            self.t += 20.0
            outcome = {"outcome": "ok", "status": 200, "answer": GOOD} if answer else {"outcome": "timeout", "limit_s": 15.0}
            self.see(Probe(t=self.t, inv=self.inv, probe="chat", total_s=0.3 if answer else 15.0, **outcome))  # type: ignore[arg-type]


def test_it_is_over_when_the_next_life_is_verified() -> None:
    case = Case()
    case.serve(600.0)
    case.die()
    died = case.t
    case.serve(3000.0)
    assert [a for _, a in case.told] == [Action.ALERT, Action.CLEAR]
    assert case.told[1][0] - died < 240.0


def test_it_is_not_over_in_a_life_that_answers_nobody() -> None:
    case = Case()
    case.serve(600.0)
    case.die()
    case.serve(3000.0, answer=False)
    assert [a for _, a in case.told] == [Action.ALERT]


def test_where_it_dies_again_and_again_the_alert_does_not_come_and_go() -> None:
    case = Case()
    for _ in range(6):
        case.serve(900.0)
        case.die()
    told = [a for _, a in case.told]
    assert told == [Action.ALERT, Action.CLEAR, *[Action.ALERT] * 5]
    case.serve(STEADY_S + 300.0)
    assert [a for _, a in case.told][len(told) :] == [Action.CLEAR]


def test_what_is_over_is_not_told_again_by_a_life_that_was_asked_for() -> None:
    case = Case()
    case.serve(600.0)
    case.die()
    case.serve(600.0)
    case.unit("deactivating", "stop-sigterm", main_pid=case.n + 1, result="success")
    case.t += 5.0
    case.unit("inactive", "dead", result="success")
    case.t += 60.0
    case.n += 1
    case.start()
    case.serve(600.0, answer=False)
    assert [a for _, a in case.told] == [Action.ALERT, Action.CLEAR]
