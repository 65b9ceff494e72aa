"""What keeps a restart that was ordered from being made, or its stop from being ended by force; and what it then counts."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.test_respond import DONE, LIFE, Made, left
from watchdog import config, respond
from watchdog.act.attempt import Outcome, Terms
from watchdog.act.stop import Stop
from watchdog.clock import FakeClock
from watchdog.judge.decide import OF_AN_ORDER, Barrier, Guard
from watchdog.observation import Log


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(tmp_path, monkeypatch)


def set_mode(made: Made, mode: config.Mode) -> None:
    """What a reload does."""
    server = config.Server(name="kimi", unit="kimi.service", mode=mode)
    made.watch.reconfigure(server, config.Config(servers=[server]))


def counts_for_nothing(made: Made) -> bool:
    ledger = made.watch.engine.ledger
    return (made.restarts, ledger.restarts, ledger.condemned, made.on_disk().under_way) == ([], [], None, None)


async def test_in_other_modes_it_says_what_it_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path, monkeypatch, mode="observe")
    made.order()
    assert made.responder._restart is None
    assert made.said == ["restart dry: mode observe: nothing was done"]


@pytest.mark.parametrize("mode", ["observe", "alert"])
async def test_a_mode_that_a_reload_sets_while_evidence_is_gathered_stops_the_restart(made: Made, mode: config.Mode) -> None:
    made.during_evidence = lambda: set_mode(made, mode)
    made.order()
    await made.over()
    assert made.said[-1] == f"restart dropped: not restarted: the mode is {mode} by now"
    assert counts_for_nothing(made)


async def test_what_changes_in_the_last_moment_stops_it_too(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is written down once more before systemd is asked, and a disk may take its time."""
    save = made.responder.save

    async def slow() -> None:
        await save()
        order = made.watch.saved.under_way
        if order is not None and order.stage == "job":
            set_mode(made, "observe")

    monkeypatch.setattr(made.responder, "save", slow)
    made.order()
    await made.over()
    assert "the mode is observe by now" in made.said[-1]
    assert counts_for_nothing(made)


@pytest.mark.parametrize("guard", Guard)
async def test_every_guard_holds_to_the_last_but_those_that_look_at_the_order_itself(
    made: Made, monkeypatch: pytest.MonkeyPatch, guard: Guard
) -> None:
    made.during_evidence = lambda: monkeypatch.setattr(respond, "barriers", lambda *_: iter([Barrier(guard, "a guard")]))
    made.order()
    await made.over()
    if guard in OF_AN_ORDER:
        assert len(made.restarts) == 2
    else:
        assert made.said[-1] == "restart dropped: not restarted: a guard"
        assert counts_for_nothing(made)


async def test_no_evidence_is_gathered_while_it_restarts(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.watch.server = msgspec.structs.replace(made.watch.server, restart=config.Restarting(evidence_limit_s=0.0))
    monkeypatch.setattr(respond, "EVIDENCE_OVER_S", 0.0)
    made.during_evidence = asyncio.Event().wait
    made.order()
    await made.over()
    assert len(made.restarts) == 2
    assert made.responder._evidence is not None and made.responder._evidence.cancelled()


async def test_a_fault_of_ours_before_systemd_was_asked_is_no_restart(made: Made) -> None:
    made.before_asking = RuntimeError("a fault")
    made.order()
    await made.over()
    assert made.said[-1] == "restart dropped: not restarted: a fault of the watchdog itself: RuntimeError: a fault"
    assert counts_for_nothing(made)


async def test_without_a_thread_for_disks_the_server_is_restarted_all_the_same(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made.responder._followed.add(0.0, "a line")
    await made.responder.save()
    monkeypatch.setattr(made, "on_disk", lambda: made.watch.saved)
    monkeypatch.setattr("watchdog.worker.RETRY_S", 0.0, raising=False)
    monkeypatch.setattr(respond, "SAVE_LIMIT_S", 0.01)
    monkeypatch.setattr(threading.Thread, "start", refused)
    made.order()
    await made.over()
    await asyncio.sleep(0)
    assert made.said[-1] == "restart done: restarted"
    assert made.responder.trouble is not None and "no thread is to be had (TasksMax=" in made.responder.trouble
    assert not made.tasks.fallen.done()


async def test_a_stop_tells_how_long_it_has_lasted_and_when_it_is_ended(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences: list[str] = []

    async def stopping(_bus: Any, _unit: str, _clock: FakeClock, terms: Terms, **_: Any) -> Outcome:
        assert terms.told is not None and terms.gone is not None
        stop = Stop(began=made.clock.running(), end_at=made.clock.running() + 180.0, may_kill=terms.may_kill)
        terms.told(stop)
        made.watch.engine.facts.life.our_job = True
        made.unit(LIFE, "deactivating")
        made.clock.advance(12.0)
        sentences.append(made.watch.sentence())
        assert not terms.gone(), "no engine process was ever seen"
        stop.killed_at = made.clock.running()
        terms.told(stop)
        made.clock.advance(3.0)
        sentences.append(made.watch.sentence())
        return DONE

    monkeypatch.setattr(respond, "restart", stopping)
    made.order()
    await made.over()
    assert sentences == [
        "the unit is stopping: the watchdog restarts it, for 12 s; SIGKILL in 2 min 48 s if it has not ended by then",
        "the unit is stopping: the watchdog restarts it, for 15 s; SIGKILL was sent 3 s ago",
    ]
    assert "SIGKILL: the stop had not ended after 12 s" in made.said
    assert made.watch.stop is None


async def test_a_stop_knows_that_its_server_waits_for_connections(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    async def stopping(_bus: Any, _unit: str, _clock: FakeClock, terms: Terms, **_: Any) -> Outcome:
        assert terms.told is not None and terms.closing is not None
        for line in ("Shutting down", "Waiting for connections to close. (CTRL+C to force quit)"):
            made.watch.take(Log(t=made.clock.now(), inv=LIFE, message=f"[2026-11-30 12:35:14] INFO:     {line}"))
            seen.append(terms.closing())
        now = made.clock.running()
        terms.told(Stop(began=now - 60.0, end_at=now + 5.0, gone_at=now - 10.0, closing_at=now))
        return DONE

    monkeypatch.setattr(respond, "restart", stopping)
    made.order()
    await made.over()
    assert seen == [False, True]
    assert "no engine process is left, nothing in flight can end: SIGKILL in 5 s" in made.said


@pytest.mark.parametrize("taken_over", [False, True])
async def test_in_a_mode_that_does_not_act_nothing_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_over: bool
) -> None:
    """Also in a restart that was ordered before: it is followed, and its stop is left to systemd."""
    made = left(tmp_path, monkeypatch, stage="job", job="/job/7") if taken_over else Made(tmp_path, monkeypatch)
    may: list[bool] = []
    said: list[str] = []

    async def stopping(_bus: Any, _unit: str, _clock: FakeClock, terms: Terms, *_: Any, **__: Any) -> Outcome:
        assert terms.told is not None
        stop = Stop(began=0.0, end_at=180.0, gone_at=0.0, may_kill=terms.may_kill)
        for mode in ("act", "observe", "alert"):
            set_mode(made, mode)  # type: ignore[arg-type]
            may.append(terms.may_kill())
            terms.told(stop)
            said.append(made.said[-1])
        return DONE

    monkeypatch.setattr(respond, "see_through" if taken_over else "restart", stopping)
    made.responder.resume() if taken_over else made.order()
    await made.over()
    assert may == [True, False, False]
    assert [text.rpartition(": ")[2] for text in said] == ["SIGKILL in 3 min", *["we send no SIGKILL in this mode"] * 2]
