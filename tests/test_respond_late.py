"""While what is remembered cannot be read, nothing is restarted; once it is read, it counts."""

from pathlib import Path

import pytest

from tests.test_respond import Made, left
from watchdog.clock import FakeClock
from watchdog.recall import recall, unread
from watchdog.server import Server


async def test_while_the_memory_of_restarts_cannot_be_read_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path, monkeypatch, known=unread())
    made.during_evidence = lambda: setattr(made.watch, "unread", None)  # read meanwhile: the budget was not judged by it
    made.order()
    await made.responder.idle()
    assert made.restarts == []
    assert made.watch.engine.ledger.restarts == [], "it does not count"
    assert "restart refused: not restarted: a pause or a spent budget may stand in" in made.said[-1]
    made.during_evidence = lambda: None
    made.order()
    await made.over()
    assert len(made.restarts) == 2, "now it is known"


async def test_what_is_read_late_is_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = recall(left(tmp_path, monkeypatch, stage="job", job="/job/7").home, FakeClock())
    made = Made(tmp_path, monkeypatch, known=unread())
    made.order()
    server = Server(made.watch, made.responder, unread())
    await server.remember(known)
    assert made.bus.owned[-1] == "/job/7"
    await made.over()
    order = made.on_disk().under_way
    assert order is not None
    assert order.stage == "recovery"
    assert len(made.watch.engine.ledger.restarts) == 1
