"""The daemon is replaced by another version while its server hangs: what is remembered, and what is made of damage."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.incidents import cases_hang  # noqa: F401  # fills CASES
from tests.incidents.case import CASES
from watchdog import config
from watchdog.clock import FakeClock
from watchdog.judge.verdict import Action, Intent
from watchdog.observation import Observation
from watchdog.watch import Watch

BEGIN = 560.0
"""The case hangs at 600 s: the new daemon begins shortly before."""
BACKOFF_S = 900.0


@pytest.fixture(scope="module")
def hang() -> list[Observation]:
    return CASES["detokenizer-stands-still"].sim("plain", 7).out


class Daemon:
    """One daemon's part for one server, over a recorded hang."""

    def __init__(self, home: Path, began: float = 0.0) -> None:
        self.clock = FakeClock()
        self.clock.advance(began)
        server = config.Server(name="kimi", unit="sglang-kimi.service", restart=config.Restarting(backoff_s=BACKOFF_S))
        self.intents: list[tuple[float, Intent]] = []
        self.watch = Watch(server, config.Config(servers=[server]), home, self.clock, lambda _, t, i: self.intents.append((t, i)))

    def sees(self, observations: list[Observation], begin: float = 0.0, end: float = 1e9) -> None:
        for x in observations:
            if begin <= x.t < end:
                self.clock.advance(max(0.0, x.t - self.clock.now()))
                self.watch.take(x)

    def ends(self) -> None:
        self.watch.file.write(self.watch.file.encode(self.watch.snapshot_state()))

    def told(self, action: Action) -> list[tuple[float, Intent]]:
        return [(t, i) for t, i in self.intents if i.action is action]


def rewritten(home: Path, change: dict[str, Any]) -> None:
    path = home / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


@pytest.mark.parametrize("change", [{}, {"what_a_later_version_adds": [1, {"a": None}]}])
def test_the_next_daemon_finds_the_hang_and_restarts_once(
    tmp_path: Path, hang: list[Observation], change: dict[str, Any]
) -> None:
    first = Daemon(tmp_path)
    first.sees(hang, end=BEGIN)
    first.ends()
    rewritten(tmp_path, change)
    assert first.told(Action.RESTART) == []

    second = Daemon(tmp_path, BEGIN)
    second.sees(hang, begin=BEGIN)

    assert len(second.told(Action.RESTART)) == 1


def test_a_restart_that_the_last_daemon_ordered_is_not_ordered_again(tmp_path: Path, hang: list[Observation]) -> None:
    first = Daemon(tmp_path)
    first.sees(hang)
    [(t, ordered)] = first.told(Action.RESTART)
    first.ends()

    second = Daemon(tmp_path, first.clock.now())
    second.sees([later(x, first.clock.now()) for x in hang if x.t > t - 60.0])

    assert [r.reason for r in second.watch.engine.ledger.restarts] == [ordered.reason]
    assert second.told(Action.RESTART) == []


def later(x: Observation, now: float) -> Observation:
    """The same observation as if it were made from `now` on."""
    return msgspec.structs.replace(x, t=x.t + now)


@pytest.mark.parametrize("damage", ["future", "half", "empty"])
def test_a_state_that_cannot_be_read_costs_a_wait_and_is_kept(tmp_path: Path, hang: list[Observation], damage: str) -> None:
    first = Daemon(tmp_path)
    first.sees(hang, end=BEGIN)
    first.ends()
    path = tmp_path / "state.json"
    if damage == "future":
        rewritten(tmp_path, {"version": 99})
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage == "half" else b"")

    sound = Daemon(tmp_path / "sound", BEGIN)
    sound.sees(hang, begin=BEGIN)
    second = Daemon(tmp_path, BEGIN)
    second.sees(hang, begin=BEGIN)

    [(t, _)] = second.told(Action.RESTART)
    assert t >= BEGIN + BACKOFF_S
    assert sound.told(Action.RESTART)[0][0] < BEGIN + BACKOFF_S
    assert list(tmp_path.glob("state.json.*.bad"))
