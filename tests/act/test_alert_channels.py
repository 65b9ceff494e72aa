"""Alertmanager, Apprise, and the test of each channel."""

import asyncio
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.act.alert_rig import OK, Log, Script, alerter, intent, running, until, wall
from tests.observe.talker import reply, talking
from watchdog import config, regular
from watchdog.act.alerts import http, outbox
from watchdog.act.alerts.alertmanager import Alertmanager, Known
from watchdog.act.alerts.apprise_channel import Apprise
from watchdog.act.alerts.http import SendError
from watchdog.act.alerts.notice import Message
from watchdog.clock import FakeClock
from watchdog.judge.verdict import Action


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BACKOFF_S", 0.05)
    monkeypatch.setattr(outbox, "BACKOFF_MAX_S", 0.2)


async def test_alertmanager_is_kept_in_step(tmp_path: Path) -> None:
    async with talking(Script(reply(503), OK, "hang", OK)) as talker:
        a = alerter(tmp_path, alertmanager_url=f"{talker.url}/", runbook_url="https://runbook.example/x")
        async with running(a):
            a.tell("kimi", wall(), intent("SchedulerHung", Action.RESTART))
            await until(lambda: a.counts().sent.get("alertmanager") == 1)
            a.recovered("kimi", wall(), "Verified.")
            await until(lambda: a.counts().sent.get("alertmanager") == 2)
        requests = [msgspec.json.decode(r.partition(b"\r\n\r\n")[2]) for r in talker.requests]
        assert all(r.startswith(b"POST /api/v2/alerts ") for r in talker.requests)
        first, last = requests[1][0], requests[-1][0]
        assert first["labels"] == last["labels"]
        assert first["labels"] == {
            "alertname": "SchedulerHung",
            "severity": "info",
            "server": "kimi",
            "unit": "sglang-kimi.service",
            "host": "gpu01",
            "job": "sglang-watchdog",
        }
        ahead = datetime.fromisoformat(first["endsAt"]) - wall()
        assert timedelta(minutes=3) < ahead < timedelta(minutes=5)
        assert datetime.fromisoformat(last["endsAt"]) <= wall()
        assert first["annotations"]["runbook_url"] == "https://runbook.example/x#schedulerhung"
        assert a.counts().waiting["alertmanager"] == 0


def test_what_a_clock_that_ran_ahead_wrote_begins_no_later_than_now(tmp_path: Path) -> None:
    clock = FakeClock()
    now = clock.wall(0)
    known = Known(labels={}, annotations={}, starts=now + timedelta(hours=2), ended=now + timedelta(hours=3))
    (back,) = Alertmanager(config.Alerting(), "gpu01", msgspec.json.encode({"x": known}), now).known.values()
    assert (back.starts, back.ended) == (now, now)


async def test_alertmanager_learns_of_an_end_that_came_while_we_were_away(tmp_path: Path) -> None:
    async with talking(Script()) as talker:
        a = alerter(tmp_path, alertmanager_url=talker.url)
        async with running(a):
            a.tell("kimi", wall(), intent("MemoryLeak"))
            await until(lambda: a.counts().sent)
        again = alerter(tmp_path, alertmanager_url=talker.url)
        assert again.reconcile("kimi", ["ShmFull"]) == {"ShmFull"}
        async with running(again):
            await until(lambda: again.counts().sent)
        (last,) = msgspec.json.decode(talker.requests[-1].partition(b"\r\n\r\n")[2])
        assert (last["labels"]["alertname"], datetime.fromisoformat(last["endsAt"]) <= wall()) == ("MemoryLeak", True)


@pytest.mark.parametrize("set_s", [0, -7200, 7200, 60 * 365 * 86400])
async def test_alerts_are_sent_again_before_they_run_out(tmp_path: Path, set_s: float) -> None:
    """Whether or not the wall clock is set meanwhile."""
    clock = FakeClock()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, alertmanager_url=talker.url, clock=clock, group_wait_s=0)
        async with running(a):
            a.tell("kimi", clock.wall(0), intent("MemoryLeak"))
            await until(lambda: len(talker.requests) == 1)
            clock.origin += timedelta(seconds=set_s)
            clock.advance(59)
            await asyncio.sleep(0.2)
            assert len(talker.requests) == 1
            clock.advance(1)
            await until(lambda: len(talker.requests) == 2)
    (last,) = msgspec.json.decode(talker.requests[-1].partition(b"\r\n\r\n")[2])
    starts, ends = (datetime.fromisoformat(last[name]) for name in ("startsAt", "endsAt"))
    assert (starts, ends - starts) == (clock.wall(0), timedelta(seconds=60 + 240))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Authorization: Bearer abc\n# a remark\n\nX-Team: gpu\n", None),
        ("Authorization Bearer-of-secrets\n", "line 1, is not of the form"),
        ("Evil: a\x00b\n", "line 1, is not of the form"),
        (None, "cannot be read: No such file"),
    ],
)
async def test_headers_from_a_file(tmp_path: Path, content: str | None, said: str | None) -> None:
    path = tmp_path / "headers"
    if content is not None:
        path.write_text(content)
    async with talking(Script()) as talker:
        a = alerter(tmp_path, webhook_url=talker.url, webhook_headers_file=str(path))
        (result,) = await a.test("webhook")
        if said is None:
            assert result.ok
            assert b"Authorization: Bearer abc\r\nX-Team: gpu\r\n" in talker.requests[0]
        else:
            assert result.ok is False
            assert said in result.detail
            assert "secrets" not in result.detail


@pytest.mark.parametrize("key", ["webhook_headers_file", "ca_file", "apprise_urls_file"])
async def test_a_file_that_cannot_be_read_is_not_blamed_on_the_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    free, read = threading.Event(), regular.read

    def hangs(path: Path, cap: int) -> bytes:
        if path.name == "hung":
            free.wait(30)
        return read(path, cap)

    (tmp_path / "headers").write_text("A: b")
    monkeypatch.setattr(regular, "read", hangs)
    monkeypatch.setattr(http, "FILE_LIMIT_S", 0.1)
    files = {"webhook_headers_file": str(tmp_path / "headers"), key: str(tmp_path / "hung")}
    channel = "apprise" if key == "apprise_urls_file" else "webhook"
    a = alerter(tmp_path, webhook_url="https://127.0.0.1:9/", **files)
    for _ in range(3):
        (result,) = await a.test(channel)
        assert result.detail.startswith(f"{tmp_path}/hung cannot be read, since its disk does not answer")
    assert [t.name for t in threading.enumerate()].count(f"files of {channel}") == 1
    free.set()


async def test_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = alerter(tmp_path, webhook_url="http://127.0.0.1:9/", webhook_headers_file="hook")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert "LoadCredential=hook:" in (await a.test("webhook"))[0].detail
    (tmp_path / "hook").write_text("X-Key: 1\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert "Connection refused" in (await a.test("webhook"))[0].detail


async def test_each_channel_is_proved(tmp_path: Path) -> None:
    log = Log()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, webhook_url=f"{talker.url}/w", alertmanager_url=f"{talker.url}/am")
        results = await a.test()
        assert [(r.channel, r.ok) for r in results] == [
            ("journal", True),
            ("webhook", True),
            ("alertmanager", True),
            ("apprise", None),
        ]
        assert results[3].detail == "Not configured: set alert.apprise_urls_file."
        webhook, manager = (msgspec.json.decode(r.partition(b"\r\n\r\n")[2]) for r in talker.requests)
        assert webhook["status"] == "test"
        assert "nothing is wrong" in webhook["text"]
        assert manager[0]["labels"]["alertname"] == "WatchdogTest"
    assert log.said("TEST from sglang-watchdog on gpu01")
    with pytest.raises(ValueError, match="there is no channel pigeon"):
        await a.test("pigeon")


FAKE_APPRISE = """
import json, os, sys, time
class AppriseAsset:
    def __init__(self, **more): pass
class Apprise:
    def __init__(self, asset): self.urls = []
    def add(self, url):
        self.urls.append(url)
        return not url.startswith("bad:")
    def notify(self, **what):
        if "hang:" in self.urls[0]: time.sleep(60)
        json.dump({"urls": self.urls, **what, "env": dict(os.environ)}, open(self.urls[0][7:], "w"))
        return "fail" not in self.urls[0]
"""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file://{}/ok", None),
        ("file://{}/fail", "could not deliver"),
        ("bad://x", "is of no kind that Apprise knows"),
        ("hang://x", "has not delivered within 1.5 s"),
        ("# nothing", "has no address"),
    ],
)
async def test_apprise_runs_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str | None
) -> None:
    """With a stand-in for the library; the real one is used in tests/external/."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/secret")
    (tmp_path / "apprise.py").write_text(FAKE_APPRISE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={tmp_path} exec {sys.executable} -P "$@"\n')
    python.chmod(0o755)
    urls = tmp_path / "urls"
    urls.write_text(url.format(tmp_path) + "\n")
    channel = Apprise(config.Alerting(apprise_urls_file=str(urls), limit_s=1.5), python=str(python))
    a = alerter(tmp_path, channels=[channel])
    (result,) = await a.test("apprise")
    assert result.ok is (said is None)
    assert (said or "") in result.detail
    if said is None:
        got = msgspec.json.decode((tmp_path / "ok").read_bytes())
        assert got["title"] == "TEST from sglang-watchdog on gpu01: nothing is wrong"
        assert "NOTIFY_SOCKET" not in got["env"]


async def test_without_apprise_the_cure_is_named(tmp_path: Path) -> None:
    (tmp_path / "urls").write_text("ntfy://x\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    channel = Apprise(config.Alerting(apprise_urls_file=str(tmp_path / "urls")), python=str(python))
    with pytest.raises(SendError, match=r"install sglang-watchdog\[apprise\]"):
        await channel.send(Message(id="1", created=wall(), host="gpu01", items=[], test=True), wall())
