"""What the page says comes next: by mode, by what stands in the way, and with what helps."""

from pathlib import Path

import msgspec
import pytest

from tests.web.site import LIFE, make_watch, serve, source, start
from watchdog.clock import FakeClock
from watchdog.judge.decide import Barrier, Guard
from watchdog.judge.verdict import Call, Condition, Severity, Status, Verdict, Want
from watchdog.observation import Acted, Operator, Unit
from watchdog.state import UnderWay
from watchdog.watch import Watch
from watchdog.web import outlook as outlook_module
from watchdog.web.outlook import outlook
from watchdog.web.page import Page

HANGS = Condition(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message="It hangs.")
HUNG = Call(want=Want.RESTART, reason="SchedulerHung", message="It hangs.", severity=Severity.CRITICAL)
LOST = Call(
    want=Want.VETO, reason="DeviceLost", message="GPU 3 is lost.", severity=Severity.CRITICAL, advice="Reboot.", unmet=False
)
HOT = Call(want=Want.ALERT, reason="GpuThrottled", message="GPU 3 is hot.", severity=Severity.WARNING, advice="Look at the fans.")
LEAK = msgspec.structs.replace(HOT, want=Want.PLAN_RESTART, reason="MemoryLeak", advice="Restart it by night.")


DID_RESTART = "The watchdog restarts the unit now, after it has saved evidence."


def ill(folder: Path, monkeypatch: pytest.MonkeyPatch, *calls: Call, mode: str = "act") -> Watch:
    """A server that serves, of which a judge says that it hangs, with these calls."""
    watch = make_watch(folder, mode=mode, clock=FakeClock())
    serve(watch)
    watch.engine.conditions[HANGS.type] = HANGS
    verdict = Verdict(type=HANGS.type, status=HANGS.status, reason=HANGS.reason, message=HANGS.message, calls=calls)
    monkeypatch.setattr(watch.engine, "judge", lambda _now: [verdict])
    return watch


def told(watch: Watch) -> tuple[str, str | None]:
    found = outlook(watch)
    assert found is not None
    assert found["next"] is not None
    return found["next"], found["helps"]


def test_a_server_that_is_well_needs_none(tmp_path: Path) -> None:
    watch = make_watch(tmp_path)
    serve(watch)
    assert outlook(watch) is None


def test_a_start_is_waited_for(tmp_path: Path) -> None:
    watch = make_watch(tmp_path)
    start(watch)
    assert told(watch)[0] == "The watchdog restarts a start only when all signs of progress stand still."


def test_a_restart_under_way_is_followed_to_its_end(tmp_path: Path) -> None:
    watch = make_watch(tmp_path)
    serve(watch)
    watch.saved.under_way = UnderWay(t=watch.clock.now(), reason="SchedulerHung", inv=LIFE, stage="job")
    assert told(watch)[0] == "The watchdog restarts the unit for SchedulerHung; the new life has to prove itself."


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("act", "The watchdog restarts the unit now, after it has saved evidence."),
        ("alert", "The watchdog does not restart in mode alert; `systemctl restart sglang-kimi.service` would help."),
        ("observe", "The watchdog would restart the unit now, but only looks on (mode observe)."),
    ],
)
def test_what_calls_for_a_restart_gets_what_the_mode_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, said: str
) -> None:
    assert told(ill(tmp_path, monkeypatch, HUNG, mode=mode))[0] == said


@pytest.mark.parametrize(
    ("calls", "said", "helps"),
    [
        ((HUNG, LOST), "does not restart, since that would not help. GPU 3 is lost.", "Reboot."),
        ((LOST,), "waits: nothing calls for a restart so far.", "Reboot."),
        ((HOT,), "only tells of this; it does not restart for it.", "Look at the fans."),
        ((LEAK,), "does not restart now; a restart in a quiet hour, after draining, would help.", "Restart it by night."),
        ((), "waits: nothing calls for a restart so far.", None),
    ],
)
def test_what_helps_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[Call, ...], said: str, helps: str | None
) -> None:
    assert told(ill(tmp_path, monkeypatch, *calls)) == (f"The watchdog {said}", helps)


def test_what_helps_against_something_else_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ill(tmp_path, monkeypatch)
    [hangs] = watch.engine.judge(0.0)
    hot = Verdict(type="DevicesHealthy", status=Status.FALSE, reason="GpuThrottled", message="It is hot.", calls=(HOT,))
    monkeypatch.setattr(watch.engine, "judge", lambda _now: [hot, hangs])
    assert told(watch) == ("The watchdog waits: nothing calls for a restart so far.", None)


def test_what_stands_in_the_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ill(tmp_path, monkeypatch, HUNG)
    ledger, policy, now = watch.engine.ledger, watch.server.restart, watch.clock.now()
    ledger.order(now, "SchedulerHung", LIFE, policy)
    assert "has ordered the restart" in told(watch)[0]
    ledger.restarts[-1].dry = True
    assert "would have restarted the unit, but only says so" in told(watch)[0]
    ledger.condemned, ledger.condemned_at = None, None
    assert "systemd has not carried out the last one" in told(watch)[0]
    ledger.repaired(now, over=True)
    assert "when the back-off is over" in told(watch)[0]
    ledger.order(now, "SchedulerHung", "another life", policy)
    ledger.condemned, ledger.condemned_at, ledger.repaired_at = None, None, None
    assert "does not restart again: the last restart did not cure it." in told(watch)[0]
    ledger.repaired(now, over=True)
    assert "2 restarts within 6 h are the limit" in told(watch)[0]
    ledger.restarts.clear()
    ledger.order(now, "SchedulerHung", LIFE, policy)
    watch.take(
        Acted(
            t=now,
            inv=watch.target.inv,
            action="restart",
            result="refused",
            reason="SchedulerHung",
            detail="not restarted: no right.",
        )
    )
    watch.engine.conditions[HANGS.type] = HANGS
    assert told(watch)[0] == "The watchdog was refused the restart, and orders it again in 10 s: no right."
    watch.take(Operator(t=now, action="pause", reason="fabric"))
    watch.engine.conditions[HANGS.type] = HANGS
    assert told(watch)[0] == "The watchdog does nothing to the unit: paused by a person: fabric."


def test_while_its_memory_is_not_read_nothing_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ill(tmp_path, monkeypatch, HUNG)
    watch.unread = "a pause may stand in it"
    assert told(watch)[0] == "The watchdog does nothing to the unit: a pause may stand in it."


@pytest.mark.parametrize("guard", Guard)
def test_every_guard_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: Guard) -> None:
    watch = ill(tmp_path, monkeypatch, HUNG)
    monkeypatch.setattr(outlook_module, "barriers", lambda *_: iter([Barrier(guard, "of a guard")]))
    assert told(watch)[0] != DID_RESTART


def test_a_unit_that_systemd_is_at_work_on_is_not_said_to_be_restarted_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = ill(tmp_path, monkeypatch, HUNG)
    watch.take(Unit(t=watch.clock.now(), inv=LIFE, load_state="loaded", active_state="deactivating", sub_state="stop-sigterm"))
    watch.engine.conditions[HANGS.type] = HANGS
    assert "restarts the unit now" not in told(watch)[0]


@pytest.mark.parametrize("result", ["refused", "dropped", "canceled"])
def test_an_order_that_was_not_carried_out_is_given_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str
) -> None:
    watch = ill(tmp_path, monkeypatch, HUNG)
    clock = watch.clock
    assert isinstance(clock, FakeClock)
    watch.engine.ledger.order(clock.now(), "SchedulerHung", LIFE, watch.server.restart)
    watch.take(
        Acted(t=clock.now(), inv=LIFE, action="restart", result=result, reason="SchedulerHung", detail="not restarted: so it is.")
    )
    watch.engine.conditions[HANGS.type] = HANGS
    clock.advance(4.0)
    assert "orders it again in 6 s: " in told(watch)[0]
    clock.advance(6.0)
    assert told(watch)[0] == DID_RESTART


async def test_a_judge_that_fails_takes_only_this_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ill(tmp_path, monkeypatch)

    def broken(_now: float) -> list[Verdict]:
        raise ZeroDivisionError

    monkeypatch.setattr(watch.engine, "judge", broken)
    shown = (await Page(source([watch])).status())["servers"][0]
    assert shown["outlook"]["next"] == "What comes next cannot be told: a judge failed (ZeroDivisionError)."
    assert shown["health"]["level"] == "ill"


def test_one_that_ended_unasked_is_told_of(tmp_path: Path) -> None:
    watch = make_watch(tmp_path, clock=FakeClock())
    serve(watch)
    t = watch.clock.now()
    watch.take(Unit(t=t, inv=LIFE, load_state="loaded", active_state="failed", sub_state="failed", result="signal"))
    watch.tick()
    assert told(watch)[0].startswith("The watchdog ")
