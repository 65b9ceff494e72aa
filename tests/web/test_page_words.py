"""How a server is in a word, and the timeline: pure, on a clock that a test moves."""

from pathlib import Path
from typing import Any

import pytest

from tests.web.site import LIFE, make_watch, serve
from watchdog.clock import FakeClock
from watchdog.observation import Unit
from watchdog.web.page import health, in_words
from watchdog.web.timeline import DAY_S, MOST, Timeline

NOW = "2026-01-14T02:10:00.000Z"


def server(phase: str = "serving", *false: tuple[str, str], **other: Any) -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "False", "reason": reason, "since_at": "2026-01-14T02:05:00.000Z"} for kind, reason in false
    ]
    usual = {"phase": phase, "paused": False, "verified": True, "restarts": [], "conditions": conditions}
    return usual | {"since_at": "2026-01-14T02:00:00.000Z", "ready_at": "2026-01-14T02:01:00.000Z"} | other


def restart(at: str, *, dry: bool = False) -> dict[str, Any]:
    return {"at": f"2026-01-14T{at}.000Z", "reason": "SchedulerHung", "dry": dry, "proven": False}


@pytest.mark.parametrize(
    ("shown", "level", "title"),
    [
        (server(), "well", "Well"),
        (server(verified=False), "busy", "Serving, not proven yet"),
        (server("serving", ("SchedulerProgressing", "Hung")), "ill", "Hung"),
        (server("serving", ("QueueFlowing", "QueueFull"), ("AnswersSane", "Garbage")), "ill", "Garbage"),
        (server("serving", ("DevicesHealthy", "ThermalThrottle")), "trouble", "Thermal throttle"),
        (server("serving", ("ANewCondition", "OddThing")), "trouble", "Odd thing"),
        (server(paused=True), "paused", "Paused"),
        (server("serving", ("SchedulerProgressing", "Hung"), paused=True), "paused", "Paused · Hung"),
        (server("starting"), "busy", "Starting"),
        (server("starting", ("Started", "Stuck")), "ill", "Stuck"),
        (server("off", ("UnitActive", "Died")), "ill", "Died"),
        (server("off"), "unknown", "Off"),
        (server("unknown"), "unknown", "Not known yet"),
        (server("stopping"), "busy", "Stopping"),
        (server("stopping", restarts=[restart("02:09:30")]), "busy", "Restarting"),
        (server("stopping", restarts=[restart("02:09:30", dry=True)]), "busy", "Stopping"),
        (server("stopping", restarts=[restart("01:00:00")]), "busy", "Stopping"),
        (server("starting", ("UnitActive", "Died"), restarts=[restart("01:59:30")]), "busy", "Restarting"),
        (server("starting", restarts=[restart("01:00:00")]), "busy", "Starting"),
        (server("serving", restarts=[restart("01:59:30")]), "well", "Well"),
    ],
)
def test_a_server_in_a_word(shown: dict[str, Any], level: str, title: str) -> None:
    got = health(shown, NOW)
    assert (got["level"], got["title"]) == (level, title)


def test_since_when_is_that_of_what_is_wrong() -> None:
    assert health(server("serving", ("SchedulerProgressing", "Hung")), NOW)["since_at"] == "2026-01-14T02:05:00.000Z"
    assert health(server(), NOW)["since_at"] == "2026-01-14T02:01:00.000Z"
    assert health(server("starting"), NOW)["since_at"] == "2026-01-14T02:00:00.000Z"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("SchedulerHung", "Scheduler hung"),
        ("GPULost", "GPU lost"),
        ("Xid79", "Xid 79"),
        ("", ""),
        ("OutOfMemory", "Out of memory"),
    ],
)
def test_reasons_as_words(reason: str, words: str) -> None:
    assert in_words(reason) == words


def test_a_day_is_kept_and_no_more(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = make_watch(tmp_path, clock=clock)
    line = Timeline()
    line.look(watch)
    serve(watch)
    line.look(watch)
    line.look(watch)
    assert [c.value for c in line.phases] == ["serving"], "it served already when we came"
    clock.advance(DAY_S / 2)
    watch.take(Unit(t=clock.now(), inv=LIFE, active_state="failed", sub_state="failed", result="signal"))
    watch.tick()
    line.look(watch)
    rows = line.view(watch)
    assert [c["value"] for c in rows["phases"]] == ["serving", "off"]
    assert [c["value"] for c in rows["conditions"]["UnitActive"]][-2:] == ["True", "False"]
    assert rows["phases"][-1]["at"] == "2026-01-14T14:00:00.000Z"
    clock.advance(DAY_S * 0.75)
    watch.tick()
    line.look(watch)
    assert [c.value for c in line.phases] == ["serving", "off"], "the change before the day's beginning says how the day began"


def test_a_row_that_flaps_stays_small(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = make_watch(tmp_path, clock=clock)
    line = Timeline()
    for n in range(2 * MOST):
        clock.advance(1.0)
        state = ("active", "running") if n % 2 else ("failed", "failed")
        watch.take(Unit(t=clock.now(), inv=LIFE, load_state="loaded", active_state=state[0], sub_state=state[1]))
        watch.tick()
        line.look(watch)
    assert max(len(row) for row in (line.phases, *line.conditions.values())) <= MOST
