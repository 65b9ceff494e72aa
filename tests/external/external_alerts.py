"""Alerts through a real Alertmanager and the real Apprise (`make test-external`)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.external.programs import APPRISE_PYTHON, alertmanager, free_port, get_json, until
from tests.observe.talker import Talker, reply, says, talking
from watchdog import config
from watchdog.act.alerts import Alerter, outbox
from watchdog.act.alerts.apprise_channel import Apprise
from watchdog.clock import BootClock
from watchdog.judge.verdict import Action, Intent, Severity

CLOCK = BootClock()


class Log:
    """The journal is not looked at here."""

    def info(self, event: str, **fields: object) -> None:
        logging.info(event)

    warning = error = info


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BACKOFF_S", 0.2)
    monkeypatch.setattr(outbox, "BACKOFF_MAX_S", 0.5)


def alerter(state: Path, **settings: Any) -> Alerter:
    channels = settings.pop("channels", None)
    return Alerter(
        config.Alerting(**{"group_wait_s": 0.2, **settings}),
        [config.Server(name="kimi", unit="sglang-kimi.service")],
        "act",
        state=state,
        clock=CLOCK,
        log=Log(),
        host="gpu01",
        channels=channels,
    )


@asynccontextmanager
async def running(alerter: Alerter) -> AsyncIterator[None]:
    task = asyncio.create_task(alerter.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def tell(alerter: Alerter, reason: str, action: Action = Action.ALERT) -> None:
    told = Intent(action=action, reason=reason, severity=Severity.CRITICAL, message=f"{reason} it is.", advice="Look at it.")
    alerter.tell("kimi", CLOCK.wall(CLOCK.now()), told)


def heard(talker: Talker) -> list[tuple[str, str]]:
    """What Alertmanager passed on: name and status of each alert."""
    bodies = [msgspec.json.decode(r.partition(b"\r\n\r\n")[2]) for r in talker.requests]
    return [(alert["labels"]["alertname"], alert["status"]) for body in bodies for alert in body["alerts"]]


async def test_an_alert_reaches_people_through_alertmanager_and_resolves(tmp_path: Path) -> None:
    async with talking(says(reply(200))) as talker:
        with alertmanager(tmp_path, talker.url, free_port()) as url:
            a = alerter(tmp_path, alertmanager_url=url, runbook_url="https://runbook.example/")
            async with running(a):
                tell(a, "DeviceLost")
                tell(a, "SchedulerHung", Action.RESTART)  # muted by the lost device

                async def fired() -> bool:
                    return ("DeviceLost", "firing") in heard(talker)

                await until(fired)
                (alert,) = await get_json(f"{url}/api/v2/alerts")  # type: ignore[misc]
                assert alert["labels"]["server"] == "kimi"
                assert alert["annotations"]["runbook_url"] == "https://runbook.example/#devicelost"
                tell(a, "DeviceLost", Action.CLEAR)

                async def resolved() -> bool:
                    return ("DeviceLost", "resolved") in heard(talker)

                await until(resolved)
    assert heard(talker).count(("DeviceLost", "firing")) == 1


async def test_what_ends_while_alertmanager_is_away_is_told_when_it_comes_back(tmp_path: Path) -> None:
    port = free_port()
    async with talking(says(reply(200))) as talker:

        async def fired() -> bool:
            return ("MemoryLeak", "firing") in heard(talker)

        async def resolved() -> bool:
            return ("MemoryLeak", "resolved") in heard(talker)

        a = alerter(tmp_path, alertmanager_url=f"http://127.0.0.1:{port}")
        async with running(a):
            tell(a, "MemoryLeak")
            await asyncio.sleep(0.5)  # nobody is there yet
            with alertmanager(tmp_path, talker.url, port):
                await until(fired)
            tell(a, "MemoryLeak", Action.CLEAR)
            await asyncio.sleep(0.5)
        again = alerter(tmp_path, alertmanager_url=f"http://127.0.0.1:{port}")
        with alertmanager(tmp_path, talker.url, port):
            async with running(again):
                await until(resolved)


async def test_the_test_alert_arrives(tmp_path: Path) -> None:
    async with talking(says(reply(200))) as talker:
        with alertmanager(tmp_path, talker.url, free_port()) as url:
            a = alerter(tmp_path, alertmanager_url=url)

            async def passed() -> bool:
                return bool((await a.test("alertmanager"))[0].ok)

            await until(passed)

            async def arrived() -> bool:
                return ("WatchdogTest", "firing") in heard(talker)

            await until(arrived)


@pytest.mark.parametrize(("status", "said"), [(200, "It was taken"), (500, "could not deliver")])
async def test_apprise_delivers(tmp_path: Path, status: int, said: str) -> None:
    async with talking(says(reply(status, b"{}"))) as talker:
        (tmp_path / "urls").write_text(f"# where to\njson://127.0.0.1:{talker.port}/SECRET\n")
        settings = config.Alerting(apprise_urls_file=str(tmp_path / "urls"), limit_s=30)
        a = alerter(tmp_path, channels=[Apprise(settings, python=str(APPRISE_PYTHON))])
        (result,) = await a.test("apprise")
        assert said in result.detail
        assert "SECRET" not in result.detail
        body = msgspec.json.decode(talker.requests[0].partition(b"\r\n\r\n")[2])
    assert body["title"] == "TEST from sglang-watchdog on gpu01: nothing is wrong"
    assert "arrive here" in body["message"]


async def test_an_alert_goes_through_apprise(tmp_path: Path) -> None:
    async with talking(says(reply(200, b"{}"))) as talker:
        (tmp_path / "urls").write_text(f"json://127.0.0.1:{talker.port}/\n")
        settings = config.Alerting(apprise_urls_file=str(tmp_path / "urls"), limit_s=30)
        a = alerter(tmp_path, channels=[Apprise(settings, python=str(APPRISE_PYTHON))])
        async with running(a):
            tell(a, "DeviceLost")

            async def arrived() -> bool:
                return bool(a.counts().sent)

            await until(arrived)
        body = msgspec.json.decode(talker.requests[0].partition(b"\r\n\r\n")[2])
    assert (body["type"], body["title"]) == ("failure", "CRITICAL kimi on gpu01: DeviceLost it is.")
    assert "What helps: Look at it." in body["message"]


async def test_an_address_that_apprise_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("nosuchthing://x\n")
    settings = config.Alerting(apprise_urls_file=str(tmp_path / "urls"), limit_s=30)
    a = alerter(tmp_path, channels=[Apprise(settings, python=str(APPRISE_PYTHON))])
    assert "is of no kind that Apprise knows" in (await a.test("apprise"))[0].detail
