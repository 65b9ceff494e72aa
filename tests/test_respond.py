"""Carrying out what was decided: the order on disk first, evidence, a last look, one restart, and what a next daemon finds."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from watchdog import config, respond
from watchdog.act.alerts.book import MOOT, PAUSED
from watchdog.act.attempt import Outcome
from watchdog.act.evidence import Bundle
from watchdog.act.scene import Scene
from watchdog.background import Background
from watchdog.clock import FakeClock
from watchdog.judge.verdict import Action, Intent, Severity, Status, Verdict, Want
from watchdog.judge.verdict import Call as Asked
from watchdog.observation import Acted, Operator, Unit
from watchdog.recall import Recall
from watchdog.respond import Responder
from watchdog.state import Saved, UnderWay
from watchdog.watch import Watch

LIFE, NEXT = "a" * 32, "b" * 32
INTENT = Intent(action=Action.RESTART, reason="SchedulerHung", severity=Severity.CRITICAL, message="hung")
CALL = Asked(want=Want.RESTART, reason="SchedulerHung", message="hung")
DONE = Outcome(result="done", message="restarted", inv=NEXT)


class FakeBus:
    """What the responder asks of the bus."""

    def __init__(self) -> None:
        self.owned: list[str] = []

    def own(self, job: str, kind: str) -> None:
        self.owned.append(job)

    async def until_connected(self, limit_s: float) -> bool:
        return True


class Made:
    """A responder whose restart, evidence and judges do what the test says."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, mode: str = "act", known: Recall | None = None) -> None:
        self.clock = FakeClock()
        server = config.Server(name="kimi", unit="kimi.service", mode=mode)  # type: ignore[arg-type]
        whole = config.Config(servers=[server])
        self.home = home
        self.bus = FakeBus()
        self.restarts: list[Saved] = []
        self.outcome: Outcome | Exception | None = DONE
        self.before_asking: Exception | None = None
        self.during_evidence: Callable[[], Any] = lambda: None
        self.wanted = True
        self.watch = Watch(server, whole, home, self.clock, lambda *_: None, known=known)
        self.tasks = Background()
        monkeypatch.setattr(respond, "restart", self._restart)
        monkeypatch.setattr(respond, "see_through", self._see_through)
        monkeypatch.setattr(respond.evidence, "collect", self._collect)
        monkeypatch.setattr(self.watch.engine, "judge", self._judge)
        self.responder = Responder(self.watch, self.bus, whole, self.tasks)  # type: ignore[arg-type]
        self.unit(LIFE)
        self.watch.target.inv = LIFE

    def unit(self, inv: str, state: str = "active") -> None:
        self.watch.take(
            Unit(t=self.clock.now(), inv=inv, load_state="loaded", active_state=state, sub_state="running", since=0.0)
        )

    def on_disk(self) -> Saved:
        return msgspec.json.decode((self.home / "state.json").read_bytes(), type=Saved)

    def order(self) -> None:
        self.watch.engine.ledger.order(self.clock.now(), INTENT.reason, LIFE, config.Restarting())
        self.responder.handle(self.clock.now(), INTENT)

    async def over(self) -> None:
        assert self.responder._restart is not None
        async with asyncio.timeout(30):
            await self.responder._restart

    @property
    def said(self) -> list[str]:
        return [r.text for r in self.watch.diary if r.what == "acted"]

    async def _restart(self, *_: Any, forbidden: Callable[[], str | None], begun: Callable[[str], None], **__: Any) -> Outcome:
        if isinstance(self.before_asking, Exception):
            raise self.before_asking
        if (why := forbidden()) is not None:
            return Outcome(result="dropped", message=why)
        self.restarts.append(self.on_disk())
        begun("/job/7")
        for _ in range(400):  # time for the job to be written down
            order = self.on_disk().under_way
            if order is None or order.job is not None:
                break
            await asyncio.sleep(0.005)
        self.restarts.append(self.on_disk())
        if isinstance(self.outcome, Exception):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome

    async def _see_through(self, *_: Any, **__: Any) -> Outcome | None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def _collect(self, *_: Any, **__: Any) -> Bundle:
        got = self.during_evidence()
        if asyncio.iscoroutine(got):
            await got
        return Bundle(name="x", path=self.home / "x")

    def _judge(self, now: float) -> list[Verdict]:
        calls = (CALL,) if self.wanted else ()
        return [Verdict(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message="hung", calls=calls)]


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(tmp_path, monkeypatch)


async def test_the_order_and_then_the_job_are_on_disk_before_they_count(made: Made) -> None:
    stages: list[str | None] = []

    def look() -> None:
        order = made.on_disk().under_way
        stages.append(order.stage if order else None)

    made.during_evidence = look
    made.order()
    await made.over()
    before, during = made.restarts
    assert stages == ["evidence"]
    assert before.under_way == UnderWay(t=0.0, reason="SchedulerHung", inv=LIFE, stage="job")
    assert [r.reason for r in before.ledger.restarts] == ["SchedulerHung"]
    assert during.under_way is not None
    assert during.under_way.job == "/job/7"
    after = made.on_disk().under_way
    assert after is not None
    assert (after.stage, after.job) == ("recovery", None)


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda m: m.watch.take(Operator(t=0.0, action="pause")), "paused by a person"),
        (lambda m: setattr(m.watch.target, "inv", NEXT), "a new life"),
        (lambda m: setattr(m, "wanted", False), "recovered"),
    ],
)
async def test_what_changes_while_evidence_is_gathered_stops_the_restart(
    made: Made, happens: Callable[[Made], Any], why: str
) -> None:
    made.during_evidence = lambda: happens(made)
    made.order()
    await made.over()
    assert made.restarts == []
    assert why in made.said[-1]
    assert made.watch.engine.ledger.restarts == [], "what was not done does not count"
    assert made.watch.engine.ledger.condemned is None
    assert made.on_disk().under_way is None


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda m: m.watch.take(Operator(t=0.0, action="pause")), PAUSED),
        (lambda m: setattr(m.watch.target, "inv", NEXT), MOOT),
        (lambda m: setattr(m, "wanted", False), MOOT),
        (lambda m: setattr(m.watch, "mode", "alert"), "dropped"),
    ],
)
async def test_people_are_told_whether_the_fault_stands_for_which_nothing_was_done(
    made: Made, happens: Callable[[Made], Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    people = SimpleNamespace(acted=lambda _watch, _reason, result, _detail: heard.append(result))
    monkeypatch.setattr(made.responder, "_people", people)
    made.during_evidence = lambda: happens(made)
    made.order()
    await made.over()
    assert heard == [told]


async def fails() -> None:
    raise OSError("evidence cannot be had")


async def hangs() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("trouble", [fails, hangs])
async def test_evidence_that_fails_or_hangs_does_not_stop_it(
    made: Made, trouble: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.watch.server = msgspec.structs.replace(made.watch.server, restart=config.Restarting(evidence_limit_s=0.1))
    monkeypatch.setattr(respond, "EVIDENCE_OVER_S", 0.1)
    made.during_evidence = trouble
    made.order()
    await made.over()
    assert len(made.restarts) == 2
    await made.tasks.end(1)


@pytest.mark.parametrize(
    ("outcome", "result", "counted"),
    [
        (Outcome(result="canceled", message="x", stand_down=True), "canceled", 0),
        (Outcome(result="refused", message="x", stand_down=True), "dropped", 0),
        (Outcome(result="refused", message="no right"), "refused", 0),
        (Outcome(result="dropped", message="x", stand_down=True), "dropped", 0),
        (Outcome(result="unknown", message="x"), "unknown", 1),
        (Outcome(result="timeout", message="x"), "timeout", 1),
        (RuntimeError("a fault"), "failed", 1),
    ],
)
async def test_each_outcome_is_told_and_counted_once(made: Made, outcome: Any, result: str, counted: int) -> None:
    made.outcome = outcome
    made.order()
    await made.over()
    acted = made.watch.latest[Acted]
    assert isinstance(acted, Acted)
    assert acted.result == result
    assert len(made.watch.engine.ledger.restarts) == counted
    assert made.on_disk().under_way is None


async def test_a_right_that_is_gone_is_known_before_the_refusal_is_judged(made: Made) -> None:
    seen: list[object] = []
    made.outcome = Outcome(result="refused", message="not restarted: no right", denied=True)
    made.responder._denied = lambda: seen.append(made.watch.latest.get(Acted))
    made.order()
    await made.over()
    (before,) = seen
    assert isinstance(before, Acted) and before.result == "begun"
    made.outcome = Outcome(result="refused", message="not restarted: the bus is gone")
    made.order()
    await made.over()
    assert len(seen) == 1


async def test_nothing_is_said_to_be_begun_that_systemd_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(*_: Any, **__: Any) -> Outcome:
        return Outcome(result="refused", message="not restarted: no right")

    monkeypatch.setattr(respond, "restart", refuses)
    made.order()
    await made.over()
    assert made.said[1:] == ["restart refused: not restarted: no right"]
    refused = made.on_disk().ledger.refused
    assert refused is not None and (refused.inv, refused.times) == (LIFE, 1)


async def test_a_restart_that_is_refused_again_gathers_no_evidence_anew(made: Made) -> None:
    asked: list[float] = []
    made.during_evidence = lambda: asked.append(made.clock.now())
    made.outcome = Outcome(result="refused", message="x")
    for _ in range(4):
        made.order()
        await made.over()
        made.clock.advance(300)
    assert asked == [0.0]


async def test_two_orders_at_once_are_one_restart(made: Made) -> None:
    made.order()
    made.responder.handle(0.0, INTENT)
    await made.over()
    assert len(made.restarts) == 2  # before the job and during it


def left(home: Path, monkeypatch: pytest.MonkeyPatch, **order: Any) -> Made:
    """A daemon that finds the order of the one before it."""
    first = Made(home, monkeypatch)
    first.watch.engine.ledger.order(0.0, INTENT.reason, LIFE, config.Restarting())
    first.watch.saved.under_way = UnderWay(t=0.0, reason=INTENT.reason, inv=LIFE, **order)
    first.watch.file.write(first.watch.file.encode(first.watch.snapshot_state()))
    return Made(home, monkeypatch)


async def test_an_order_that_was_not_begun_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = left(tmp_path, monkeypatch, stage="evidence")
    assert made.watch.engine.ledger.restarts == []
    assert made.watch.engine.ledger.condemned is None
    made.responder.resume()
    assert made.responder._restart is None, "there is nothing to be seen through"
    assert made.restarts == []
    assert "judged anew" in made.said[0]


@pytest.mark.parametrize(("outcome", "counted"), [(DONE, 1), (None, 0)])
async def test_a_job_that_was_begun_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None, counted: int
) -> None:
    made = left(tmp_path, monkeypatch, stage="job", job="/job/7")
    made.outcome = outcome
    assert made.bus.owned == ["/job/7"], "known as ours before the unit's source can see it"
    made.responder.resume()
    await made.over()
    assert len(made.watch.engine.ledger.restarts) == counted
    assert made.restarts == [], "no second restart"
    order = made.on_disk().under_way
    assert (order.stage if order else None) == ("recovery" if counted else None)


async def test_a_fault_of_ours_while_seeing_it_through_is_told_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = left(tmp_path, monkeypatch, stage="job", job="/job/7")
    made.outcome = RuntimeError("a fault")
    made.responder.resume()
    await made.over()
    assert "restart failed: a fault of the watchdog itself: RuntimeError: a fault" in made.said[-1]
    assert made.on_disk().under_way is None
    assert not made.tasks.fallen.done()


async def test_what_is_seen_through_is_given_up_with_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = left(tmp_path, monkeypatch, stage="job", job="/job/7")
    monkeypatch.setattr(made.bus, "until_connected", lambda _: asyncio.sleep(3600))
    made.responder.resume()
    await asyncio.sleep(0)
    made.responder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await made.over()
    order = made.on_disk().under_way
    assert order is not None
    assert order.stage == "job", "for whoever watches the server again"


async def test_a_disk_that_does_not_answer_is_told_once_and_waited_for_only_so_long(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respond, "SAVE_LIMIT_S", 0.05)
    stuck = threading.Event()
    told: list[str] = []
    monkeypatch.setattr(made.watch.log, "error", lambda _event, **fields: told.append(fields["message"]), raising=False)
    monkeypatch.setattr(made.watch.file, "write", lambda _: stuck.wait(5))
    async with asyncio.timeout(4):
        await made.responder.save()
        await made.responder.save()
    assert len(told) == 1
    assert "the disk does not answer" in told[0]
    stuck.set()


async def test_what_followed_is_added_to_the_bundle_and_to_the_incident(made: Made) -> None:
    folder = made.home / "x"
    folder.mkdir()
    (folder / "summary.md").write_text("## What followed\n\n")

    made.order()
    await made.over()
    assert made.responder._writing is not None
    async with asyncio.timeout(30):
        await made.responder._writing

    said = [line.partition(" UTC: ")[2] for line in (folder / "summary.md").read_text().splitlines()[2:]]
    assert said == ["restart (SchedulerHung): hung", "restart begun: restarting kimi.service", "restart done: restarted"]
    (incident,) = made.watch.incidents.all
    assert (incident.reason, incident.restarts, incident.bundles, incident.ended) == ("SchedulerHung", 1, ["x"], None)
    assert made.on_disk().incidents == [incident]


async def test_evidence_asked_for_with_the_decision_is_taken_for_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart asks for its evidence in the same breath: the bundle tells of the restart, not of a suspicion."""
    scenes: list[Scene] = []

    async def collect(scene: Scene, *_: Any, **__: Any) -> Bundle:
        scenes.append(scene)
        return Bundle(name="x")

    monkeypatch.setattr(respond.evidence, "collect", collect)
    suspicion = msgspec.structs.replace(INTENT, action=Action.DIAGNOSE)
    made.responder.handle(0.0, suspicion)
    made.order()
    await made.over()

    assert [s.intent for s in scenes] == [INTENT]
