"""The timeline over a restart of the daemon: what was seen before, that nobody looked in between, and what is seen now."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.web.site import LIFE, READY, make_watch, serve, source
from watchdog.clock import FakeClock
from watchdog.observation import Log, Unit
from watchdog.watch import Watch
from watchdog.web import shelf
from watchdog.web.page import Page
from watchdog.web.timeline import DAY_S, NOBODY, Timeline

START = FakeClock().origin


def clock_at(seconds: float) -> FakeClock:
    """The clock of a daemon that starts so long after the first one."""
    return FakeClock(START + timedelta(seconds=seconds))


async def keeping(page: Page, done: Callable[[], bool]) -> None:
    """Let the page read and write until something is so, then end it, as the daemon does."""
    task = asyncio.create_task(page.keep())
    async with asyncio.timeout(10):
        while not done():  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


def fails(watch: Watch) -> None:
    t = watch.clock.now()
    watch.take(Unit(t=t, inv=LIFE, load_state="loaded", active_state="failed", sub_state="failed", result="signal"))
    watch.tick()


async def first_day(folder: Path) -> None:
    """A daemon that sees a server serve for an hour and fail, and ends an hour later."""
    clock = FakeClock()
    watch = make_watch(folder, clock=clock)
    page = Page(source([watch]))
    serve(watch)
    page.look()
    clock.advance(3600)
    fails(watch)
    watch.note(clock.now(), "would", "would restart", "SchedulerHung")
    page.look()
    clock.advance(3600)
    await keeping(page, (folder / "kimi" / shelf.NAME).exists)


async def shown(watch: Watch) -> dict[str, Any]:
    page = Page(source([watch]))
    page.look()
    written = watch.home / shelf.NAME
    before = written.read_bytes() if written.exists() else b""
    await keeping(page, lambda: written.exists() and written.read_bytes() != before)
    status = await page.status()
    return dict(status["servers"][0])


async def test_what_was_seen_before_is_shown_and_the_gap_is_a_gap(tmp_path: Path) -> None:
    await first_day(tmp_path)
    server = await shown(make_watch(tmp_path, clock=clock_at(4 * 3600)))
    phases = [(c["at"][11:16], c["value"], c.get("reason")) for c in server["timeline"]["phases"]]
    assert phases == [
        ("02:00", "serving", None),
        ("03:00", "off", None),
        ("04:00", "unknown", NOBODY),
        ("06:00", "unknown", None),
    ]
    active = [(c["at"][11:16], c["value"]) for c in server["timeline"]["conditions"]["UnitActive"]]
    assert active[-3:] == [("02:00", "True"), ("03:00", "False"), ("04:00", "Unknown")]
    assert server["timeline"]["from_at"].startswith("2026-01-14T02:00")
    assert [(d["at"][11:16], d["text"]) for d in server["diary"] if d["what"] == "would"] == [("03:00", "would restart")]


@pytest.mark.parametrize("restored_at", [0, 1, 2])
async def test_a_life_that_went_on_while_nobody_looked_is_one_piece(tmp_path: Path, restored_at: int) -> None:
    clock = FakeClock()
    watch = make_watch(tmp_path, clock=clock)
    page = Page(source([watch]))
    serve(watch)
    page.look()
    clock.advance(4200)
    await keeping(page, (tmp_path / "kimi" / shelf.NAME).exists)
    again = make_watch(tmp_path, clock=clock_at(4260))
    page = Page(source([again]))
    kept = shelf.take(again.home)
    assert kept is not None
    steps = [
        lambda: None,
        lambda: again.take(Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", since=-4350.0)),  # "starting"
        lambda: again.take(Log(t=0.2, inv=LIFE, message=READY, at=-4260.0)),
    ]
    for number, step in enumerate(steps):
        step()
        if number == restored_at:
            page.timelines.setdefault("kimi", Timeline()).restore(kept, again.clock)
        page.look()
        again.clock.advance(0.1)
    rows = (await page.status())["servers"][0]["timeline"]
    assert [(c["at"][11:16], c["value"]) for c in rows["phases"]] == [("02:00", "serving")]
    told = [c.get("reason") for c in rows["conditions"]["SchedulerProgressing"]]
    assert NOBODY in told, "whether it hung meanwhile nobody knows"


async def test_what_is_older_than_a_day_is_forgotten(tmp_path: Path) -> None:
    await first_day(tmp_path)
    server = await shown(make_watch(tmp_path, clock=clock_at(2 * 3600 + DAY_S + 60)))
    assert [c["value"] for c in server["timeline"]["phases"]] == ["unknown"]


async def test_a_clock_that_was_set_back_brings_no_future(tmp_path: Path) -> None:
    await first_day(tmp_path)
    watch = make_watch(tmp_path, clock=clock_at(-3600))
    server = await shown(watch)
    now = watch.clock.wall(watch.clock.now()).isoformat()[:19]
    assert all(c["at"][:19] <= now for row in server["timeline"]["conditions"].values() for c in row)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 2, "seen": 0}',
        b'{"version": 1}',
        b'{"version": 1, "seen": "x"}',
        b"\xff" * 99,
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "list", "newer", "bare", "words", "binary", "deep"],
)
async def test_a_file_that_cannot_be_used_is_put_aside(tmp_path: Path, content: bytes) -> None:
    watch = make_watch(tmp_path)
    watch.home.mkdir()
    (watch.home / shelf.NAME).write_bytes(content)
    server = await shown(watch)
    assert [c["value"] for c in server["timeline"]["phases"]] == ["unknown"]
    assert [p.read_bytes() for p in watch.home.glob("timeline.json.*.bad")] == [content]


@pytest.mark.parametrize("moment", [1e308, -1e308, 1e18])
async def test_moments_that_cannot_be_harm_nobody(tmp_path: Path, moment: float) -> None:
    watch = make_watch(tmp_path, clock=FakeClock())
    watch.home.mkdir()
    rows = [{"t": moment, "value": "serving"}, {"t": START.timestamp() - 60, "value": "off"}]
    remark = {"t": moment, "what": "would", "text": "x"}
    kept = {"version": 1, "seen": START.timestamp(), "phases": rows, "conditions": {"UnitActive": rows}, "diary": [remark]}
    (watch.home / shelf.NAME).write_text(json.dumps(kept))
    server = await shown(watch)
    assert "off" in [c["value"] for c in server["timeline"]["phases"]]
    assert server["diary"] == []


async def test_a_disk_that_cannot_be_written_is_told_once_and_the_page_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = make_watch(tmp_path)
    watch.home.write_text("a file where the folder should be")
    monkeypatch.setattr("watchdog.web.page.KEEP_S", 0.02)
    page = Page(source([watch]))
    page.look()
    task = asyncio.create_task(page.keep())
    said = ""
    async with asyncio.timeout(20):
        while "timelines of the page cannot be kept" not in said:
            await asyncio.sleep(0.02)
            said += capsys.readouterr().out
    await asyncio.sleep(0.1)  # it goes on, and has time to say it again
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    assert (said + capsys.readouterr().out).count("timelines of the page cannot be kept") == 1
    assert (await page.status())["servers"][0]["name"] == "kimi"


def test_a_timeline_that_is_full_stays_small_on_disk(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = make_watch(tmp_path, clock=clock)
    line = Timeline()
    for n in range(1000):
        clock.advance(1.0)
        state = ("active", "running") if n % 2 else ("failed", "failed")
        watch.take(Unit(t=clock.now(), inv=LIFE, load_state="loaded", active_state=state[0], sub_state=state[1]))
        watch.tick()
        line.look(watch)
    shelf.put(watch.home, line.kept(watch))
    assert (watch.home / shelf.NAME).stat().st_size < 1 << 20
    kept = shelf.take(watch.home)
    assert kept is not None
    again = Timeline()
    again.restore(kept, watch.clock)
    assert list(again.phases)[:-1] == list(line.phases)[1:]
