"""What the alerter is told of the servers."""

from pathlib import Path

import pytest

from tests.test_respond import Made
from watchdog import config
from watchdog.background import Background
from watchdog.observation import Operator
from watchdog.people import People


async def test_the_alerter_hears_of_a_pause_at_once_and_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path / "kimi", monkeypatch)
    people = People(config.Config(servers=[made.watch.server]), tmp_path, made.clock, Background())
    assert people.alerter._paused("kimi") is None, "not met yet"
    people.look(made.watch)
    assert people.alerter._paused("kimi") is None
    made.watch.take(Operator(t=made.clock.now(), action="pause", reason="looking at it"))
    assert people.alerter._paused("kimi") == "not restarted: paused by a person: looking at it"
    made.watch.take(Operator(t=made.clock.now(), action="resume"))
    assert people.alerter._paused("kimi") is None
