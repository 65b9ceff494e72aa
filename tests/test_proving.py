"""A life that has proved itself, whoever began it, and what is over with it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.test_respond import CALL, LIFE, NEXT, Made
from watchdog import proving
from watchdog.incidents import SETTLE_S
from watchdog.judge.verdict import Action, Condition, Intent, Severity, Status
from watchdog.state import UnderWay

WITHHELD = Intent(action=Action.WITHHOLD, reason="SameEarlyDeath", severity=Severity.CRITICAL, message="died 2 times")


class Told:
    """What people, and the journal, were told."""

    def __init__(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recovered: list[str] = []
        self.journal: list[dict[str, Any]] = []
        self.well = True
        people = SimpleNamespace(recovered=lambda _, said: self.recovered.append(said), acted=lambda *_: None)
        monkeypatch.setattr(made.responder._proving, "_people", people)
        monkeypatch.setattr(proving, "verified", lambda _: self.well)
        monkeypatch.setattr(made.watch.log, "info", lambda event, **f: self.journal.append({"event": event, **f}), raising=False)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [e for e in self.journal if e["event"] == name]


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(tmp_path, monkeypatch)


@pytest.fixture
def told(made: Made, monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(made, monkeypatch)


def look(made: Made, told: Told, *, well: bool, seconds: float = 5.0) -> None:
    told.well = well
    made.clock.advance(seconds)
    made.responder.look_at_recovery()


async def test_done_means_verified(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    proven = False
    monkeypatch.setattr(proving, "verified", lambda _: proven)
    made.order()
    await made.over()
    made.responder.look_at_recovery()
    proven = True
    made.responder.look_at_recovery()
    assert not [s for s in made.said if s.startswith("verified")], "the old life proves nothing"
    made.unit(NEXT)
    made.clock.advance(42)
    made.responder.look_at_recovery()
    made.responder.look_at_recovery()
    assert len([s for s in made.said if s.startswith("verified: a new life")]) == 1
    assert "42 s after the restart was ordered" in made.said[-1]


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("serving, 3 running", "verified: a new life, serving, 3 running; 42 s after the restart was ordered"),
        ("blind: we did not run ourselves for 7 s", "verified: a new life; 42 s after the restart was ordered"),
        ("in doubt: the canary timed out", "verified: a new life; 42 s after the restart was ordered"),
    ],
)
async def test_verified_is_not_said_with_what_speaks_against_it(
    made: Made, monkeypatch: pytest.MonkeyPatch, sentence: str, told: str
) -> None:
    monkeypatch.setattr(proving, "verified", lambda _: True)
    monkeypatch.setattr(made.watch, "sentence", lambda: sentence)
    made.order()
    await made.over()
    made.unit(NEXT)
    made.clock.advance(42)
    made.responder.look_at_recovery()
    assert made.said[-1] == told


async def test_a_life_that_never_proves_itself_is_told(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "verified", lambda _: False)
    made.order()
    await made.over()
    made.clock.advance(made.watch.server.restart.recover_limit_s + 1)
    heard: list[tuple[str, str, str]] = []
    people = SimpleNamespace(acted=lambda _watch, *told: heard.append(told))
    monkeypatch.setattr(made.responder._proving, "_people", people)
    made.responder.look_at_recovery()
    assert "not verified within" in made.said[-1]
    assert [told[:2] for told in heard] == [("SchedulerHung", "not-verified")]
    assert made.watch.saved.under_way is None


async def test_a_life_that_others_began_ends_what_was_withheld_and_is_told_once(made: Made, told: Told) -> None:
    made.wanted = False
    look(made, told, well=False)
    made.responder.handle(made.clock.now(), WITHHELD)
    made.unit(NEXT)
    look(made, told, well=False)
    assert told.recovered == told.events("verified") == []
    for _ in range(3):
        look(made, told, well=True)
    (entry,) = told.events("verified")
    assert entry["reason"] == "SameEarlyDeath" and set(entry) == {"event", "message", "reason", "invocation"}
    assert told.recovered == [entry["message"]]
    assert entry["message"].startswith("verified: a new life") and "order" not in entry["message"]
    assert [d.text for d in made.watch.incidents.all[-1].deeds][-1] == entry["message"]


async def test_a_life_without_an_incident_is_verified_in_the_journal_too(made: Made, told: Told) -> None:
    look(made, told, well=True)
    look(made, told, well=True)
    assert [e["reason"] for e in told.events("verified")] == [None]


async def test_what_served_before_the_watchdog_looked_was_told_by_the_one_before_it(made: Made, told: Told) -> None:
    made.watch.engine.facts.life.ready_at = -100.0
    look(made, told, well=True)
    assert told.events("verified") == []
    (said,) = told.recovered
    assert said.startswith("verified: the life that was met, serving"), "what stands from then is over all the same"


async def test_a_life_that_our_order_waits_for_is_told_with_it_and_not_twice(made: Made, told: Told) -> None:
    made.watch.saved.under_way = UnderWay(t=0.0, reason="SchedulerHung", inv=LIFE, stage="job", job="/job/7")
    made.unit(NEXT)
    look(made, told, well=True)
    assert told.events("verified") == [], "its job is not over"
    made.watch.saved.under_way.stage = "recovery"
    look(made, told, well=True)
    look(made, told, well=True)
    assert [("after the restart was ordered" in e["message"]) for e in told.events("verified")] == [True]
    assert len(told.recovered) == 1


async def test_a_server_that_recovers_in_the_same_life_ends_what_stood_once_it_has_settled(made: Made, told: Told) -> None:
    look(made, told, well=True)
    told.recovered.clear()
    made.responder.handle(made.clock.now(), WITHHELD)
    look(made, told, well=False)
    look(made, told, well=True, seconds=SETTLE_S + 1)
    assert told.recovered == [], "a restart is called for all the same"
    made.wanted = False
    look(made, told, well=True)
    look(made, told, well=True, seconds=SETTLE_S + 1)
    assert told.recovered == ["well again without a restart by the watchdog"]
    (over,) = told.events("over")
    assert (
        over["message"].startswith("over: well again without a restart by the watchdog, ") and over["reason"] == "SameEarlyDeath"
    )


async def test_a_unit_that_is_stopped_by_request_ends_what_stood(made: Made, told: Told) -> None:
    made.responder.handle(made.clock.now(), WITHHELD)
    stopped = Condition(
        type="UnitActive", status=Status.FALSE, reason="StoppedByRequest", message="", since=0.0, reason_since=0.0
    )
    made.watch.engine.conditions["UnitActive"] = stopped
    look(made, told, well=False)
    assert told.recovered == ["the unit was stopped by request"]


async def test_a_judge_that_falls_does_not_take_the_daemon_along(made: Made, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(_: float) -> None:
        raise ValueError

    made.responder.handle(made.clock.now(), msgspec.structs.replace(WITHHELD, message=CALL.message))
    monkeypatch.setattr(made.watch.engine, "judge", falls)
    look(made, told, well=True, seconds=SETTLE_S + 1)
    look(made, told, well=True, seconds=SETTLE_S + 1)
    assert made.watch.incidents.open is None
