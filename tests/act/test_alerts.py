"""The alerter with real receivers on loopback: they fail, hang, reset and come back."""

import asyncio
import contextlib
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.observe.talker import Talker, reply, talking
from watchdog import config
from watchdog.act.alerts import Alerter, outbox
from watchdog.act.alerts.apprise_channel import Apprise
from watchdog.act.alerts.http import SendError
from watchdog.act.alerts.notice import Message
from watchdog.clock import BootClock, FakeClock
from watchdog.judge.verdict import Action, Intent, Severity

PROJECT = Path(__file__).resolve().parents[2]
OK = reply(200, b"{}")


class Log:
    """What the journal got."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def info(self, event: str, **fields: object) -> None:
        self.entries.append({"event": event, "level": "info", **fields})

    def warning(self, event: str, **fields: object) -> None:
        self.entries.append({"event": event, "level": "warning", **fields})

    def error(self, event: str, **fields: object) -> None:
        self.entries.append({"event": event, "level": "error", **fields})

    def said(self, words: str) -> int:
        return sum(words in str(entry["message"]) for entry in self.entries)


class Script:
    """Answers with what is next in line, then always with OK. "hang", "reset" and "garbage" are what they say."""

    def __init__(self, *answers: bytes | str) -> None:
        self.answers = list(answers)

    async def __call__(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        answer = self.answers.pop(0) if self.answers else OK
        if answer == "hang":
            await asyncio.sleep(60)
        elif answer == "reset":
            writer.transport.abort()
        else:
            writer.write(b"garbage\r\n\r\n" if isinstance(answer, str) else answer)
            await writer.drain()


def bodies(talker: Talker) -> list[dict[str, Any]]:
    return [msgspec.json.decode(request.partition(b"\r\n\r\n")[2]) for request in talker.requests]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BACKOFF_S", 0.05)
    monkeypatch.setattr(outbox, "BACKOFF_MAX_S", 0.2)


def alerter(tmp_path: Path, log: Log | None = None, *, mode: str = "act", **settings: Any) -> Alerter:
    given = {"group_wait_s": 0.1, "limit_s": 0.4, "per_hour": 1000, **settings}
    channels, clock = given.pop("channels", None), given.pop("clock", BootClock())
    return Alerter(
        config.Alerting(**given),
        [config.Server(name="kimi", unit="sglang-kimi.service"), config.Server(name="quiet", unit="q.service", mode="observe")],
        mode,  # type: ignore[arg-type]
        state=tmp_path,
        clock=clock,
        log=log or Log(),
        host="gpu01",
        source=random.Random(1),
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


async def until(holds: Callable[[], object], limit_s: float = 8) -> None:
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 (what is waited for is no event of ours)
            await asyncio.sleep(0.01)


def wall() -> datetime:
    clock = BootClock()
    return clock.wall(clock.now())


def intent(reason: str, action: Action = Action.ALERT, severity: Severity = Severity.CRITICAL) -> Intent:
    return Intent(
        action=action, reason=reason, severity=severity, message=f"{reason} it is.", advice="Look at it.", evidence=("a fact",)
    )


async def test_an_alert_arrives_with_its_end(tmp_path: Path) -> None:
    log = Log()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, webhook_url=f"{talker.url}/hook/SECRET", runbook_url="https://runbook.example/x")
        async with running(a):
            a.tell("kimi", wall(), intent("DeviceLost"))
            a.tell("kimi", wall(), intent("DeviceLost", Action.WITHHOLD))
            await until(lambda: talker.requests)
            a.tell("kimi", wall(), intent("DeviceLost", Action.CLEAR, Severity.INFO))
            await until(lambda: len(talker.requests) == 2)
        first, second = bodies(talker)
        assert talker.requests[0].startswith(b"POST /hook/SECRET HTTP/1.1\r\n")
        assert f"Idempotency-Key: {first['id']}".encode() in talker.requests[0]
        assert (first["status"], second["status"]) == ("firing", "resolved")
        assert first["alerts"][0] | {"since": ""} == {
            "server": "kimi",
            "unit": "sglang-kimi.service",
            "reason": "DeviceLost",
            "status": "firing",
            "news": "new",
            "severity": "critical",
            "actions": ["alert", "withhold"],
            "message": "DeviceLost it is.",
            "since": "",
            "until": None,
            "evidence": ["a fact"],
            "advice": "Look at it.",
            "did": "The watchdog holds a restart back: it would not help.",
            "runbook": "https://runbook.example/x#devicelost",
        }
        assert [e["event"] for e in log.entries] == ["alert", "alert"]
        assert a.counts().sent == {"webhook": 2}


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (reply(500, b"sk-abcdef0123456789 is wrong"), "answered 500: sk-… is wrong"),
        (reply(302, Location="http://evil.example/"), "answered 302"),
        ("hang", "gave no answer within 0.4 s"),
        ("reset", "onnection"),
        ("garbage", "the answer is not HTTP"),
    ],
)
async def test_a_receiver_that_fails_and_comes_back(tmp_path: Path, trouble: bytes | str, said: str) -> None:
    log = Log()
    async with talking(Script(trouble, trouble)) as talker:
        a = alerter(tmp_path, log, webhook_url=f"{talker.url}/SECRET")
        async with running(a):
            a.tell("kimi", wall(), intent("DeviceLost"))
            await until(lambda: a.counts().sent)
        assert len(talker.requests) == 3
        assert len({body["id"] for body in bodies(talker)}) == 1
        assert talker.most_open == 1 or trouble == "hang"  # whose script holds the connection open
    assert log.said(said) == 1
    assert log.said("takes alerts again") == 1
    assert not log.said("SECRET")
    assert (a.counts().failed, a.counts().waiting) == ({"webhook": 2}, {"webhook": 0})


async def test_a_receiver_that_is_not_there_yet(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    log = Log()
    a = alerter(tmp_path, log, webhook_url=f"http://127.0.0.1:{port}/")
    async with running(a):
        a.tell("kimi", wall(), intent("DeviceLost"))
        await until(lambda: log.said("Connection refused"))
        a.tell("kimi", wall(), intent("ShmFull", Action.WITHHOLD))
        await until(lambda: a.counts().waiting["webhook"] == 2)
        arrived: list[str] = []

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            arrived.append(msgspec.json.decode(await reader.readexactly(length))["alerts"][0]["reason"])
            writer.write(OK)
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", port)
        await until(lambda: len(arrived) == 2)
        server.close()
    assert arrived == ["DeviceLost", "ShmFull"]


async def test_a_refused_message_lets_the_next_pass(tmp_path: Path) -> None:
    log = Log()
    async with talking(Script(*[reply(400)] * outbox.REFUSALS)) as talker:
        a = alerter(tmp_path, log, webhook_url=talker.url)
        async with running(a):
            a.tell("kimi", wall(), intent("DeviceLost"))
            await until(lambda: a.counts().dropped["webhook"])
            a.tell("kimi", wall(), intent("ShmFull", Action.WITHHOLD))
            await until(lambda: a.counts().sent)
    assert log.said("a message was dropped") == 1


async def test_a_hanging_channel_delays_nobody_else(tmp_path: Path) -> None:
    class Stuck:
        name = "webhook"

        async def send(self, message: Message, now: datetime) -> None:
            await asyncio.sleep(60)

    class Quick:
        name = "apprise"

        def __init__(self) -> None:
            self.got: list[Message] = []

        async def send(self, message: Message, now: datetime) -> None:
            self.got.append(message)

    quick = Quick()
    a = alerter(tmp_path, channels=[Stuck(), quick])
    async with running(a):
        begun = time.monotonic()
        for n in range(100):
            a.tell("kimi", wall(), intent(f"Odd{n}"))
        assert time.monotonic() - begun < 0.5
        await until(lambda: quick.got)
    assert len(quick.got[0].items) == 100


async def test_a_fault_of_a_channel_stops_nothing(tmp_path: Path) -> None:
    class Broken:
        name = "webhook"

        async def send(self, message: Message, now: datetime) -> None:
            raise KeyError("oops")

    log = Log()
    a = alerter(tmp_path, log, channels=[Broken()])
    async with running(a):
        a.tell("kimi", wall(), intent("DeviceLost"))
        await until(lambda: a.counts().dropped["webhook"])
    assert log.said("a fault of the watchdog's own (KeyError)")


async def test_observe_mode_speaks_only_in_the_journal(tmp_path: Path) -> None:
    log = Log()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, webhook_url=talker.url, alertmanager_url=talker.url)
        async with running(a):
            a.tell("quiet", wall(), intent("SchedulerHung", Action.RESTART))
            await until(lambda: log.entries)
            await asyncio.sleep(0.2)
        assert talker.requests == []
    assert "would restart the unit now, but only looks on" in log.entries[0]["message"]


async def test_what_came_of_a_restart(tmp_path: Path) -> None:
    async with talking(Script()) as talker:
        a = alerter(tmp_path, webhook_url=talker.url)
        async with running(a):
            a.tell("kimi", wall(), intent("SchedulerHung", Action.RESTART))
            await until(lambda: talker.requests)
            a.acted("kimi", wall(), "SchedulerHung", "begun", "restarting")
            a.acted("kimi", wall(), "SchedulerHung", "timeout", "systemd did not answer")
            await until(lambda: len(talker.requests) == 2)
            a.recovered("kimi", wall(), "Verified: ready and answered after 41 s.")
            await until(lambda: len(talker.requests) == 3)
        entries = [body["alerts"][0] for body in bodies(talker)]
    assert [e["news"] for e in entries] == ["new", "changed", "over"]
    assert entries[1]["evidence"][0] == "The restart ended with timeout: systemd did not answer"
    assert entries[2]["did"] == "Verified: ready and answered after 41 s."


async def test_sigkill_loses_nothing_and_repeats_only_what_was_under_way(tmp_path: Path) -> None:
    """Raised while the receiver is down, killed, and delivered by the next life; then nothing more is sent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    command = [sys.executable, "-m", "tests.act.alert_sender", str(tmp_path), nobody, "12"]
    first = await asyncio.create_subprocess_exec(*command, cwd=PROJECT, stdout=asyncio.subprocess.PIPE)
    assert first.stdout is not None
    async with asyncio.timeout(30):
        assert await first.stdout.readuntil(b"told\n")
    await until(lambda: b"Odd11" in (tmp_path / "alerts/book.json").read_bytes())
    first.send_signal(signal.SIGKILL)
    await first.wait()
    first._transport.close()  # type: ignore[attr-defined]  # else its pipe is closed after the loop, with a warning

    async with talking(Script("hang", reply(500))) as talker:
        a = alerter(tmp_path, webhook_url=talker.url, per_hour=3600)
        async with running(a):
            await until(lambda: a.counts().sent and not a.counts().waiting["webhook"])
            await asyncio.sleep(0.3)
        reasons = [entry["reason"] for body in bodies(talker)[2:] for entry in body["alerts"]]
        assert sorted(reasons) == sorted(f"Odd{n}" for n in range(12))
        before = len(talker.requests)
        third = alerter(tmp_path, webhook_url=talker.url)
        async with running(third):
            await asyncio.sleep(0.3)
        assert len(talker.requests) == before


async def test_a_disk_that_is_full_does_not_silence_us(tmp_path: Path) -> None:
    log = Log()
    (tmp_path / "alerts").write_text("no folder")
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, webhook_url=talker.url)
        async with running(a):
            a.tell("kimi", wall(), intent("DeviceLost"))
            await until(lambda: talker.requests)
            (tmp_path / "alerts").unlink()
            await until((tmp_path / "alerts/book.json").exists)
    assert log.said("They are still sent") == 1


async def test_files_that_cannot_be_understood_are_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "alerts"
    folder.mkdir()
    for name in ("book.json", "alertmanager.json", "outbox-webhook.jsonl"):
        (folder / name).write_bytes(b'{"causes": 7')
    log = Log()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, webhook_url=talker.url, alertmanager_url=f"{talker.url}/am")
        async with running(a):
            a.tell("kimi", wall(), intent("DeviceLost"))
            await until(lambda: len(talker.requests) >= 2)
    assert log.said("was set aside") == 2
    assert (folder / "book.json.bad").exists()
    assert a.counts().dropped["webhook"] == 1


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


async def test_alerts_are_sent_again_before_they_run_out(tmp_path: Path) -> None:
    clock = FakeClock()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, alertmanager_url=talker.url, clock=clock, group_wait_s=0)
        async with running(a):
            a.tell("kimi", clock.wall(0), intent("MemoryLeak"))
            await until(lambda: len(talker.requests) == 1)
            clock.advance(59)
            await asyncio.sleep(0.2)
            assert len(talker.requests) == 1
            clock.advance(1)
            await until(lambda: len(talker.requests) == 2)


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
