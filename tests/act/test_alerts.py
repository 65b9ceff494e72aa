"""The alerter with real receivers on loopback: they fail, hang, reset and come back."""

import asyncio
import signal
import socket
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.act.alert_rig import OK, Log, Script, alerter, bodies, intent, running, until, wall
from tests.observe.talker import reply, talking
from watchdog.act.alerts import outbox
from watchdog.act.alerts.book import RESTART_S
from watchdog.act.alerts.notice import Message
from watchdog.clock import FakeClock
from watchdog.judge.verdict import Action, Severity

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BACKOFF_S", 0.05)
    monkeypatch.setattr(outbox, "BACKOFF_MAX_S", 0.2)


async def test_an_alert_arrives_with_its_end(tmp_path: Path) -> None:
    log = Log()
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, webhook_url=f"{talker.url}/hook/SECRET", runbook_url="https://runbook.example/x")
        async with running(a):
            a.tell("kimi", wall(), intent("DeviceLost"))
            a.tell("kimi", wall(), intent("DeviceLost", Action.WITHHOLD))
            await until(lambda: talker.requests)
            a.tell("kimi", wall(), intent("DeviceLost", Action.CLEAR, Severity.INFO))
            await until(lambda: a.counts().sent == {"webhook": 2})
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
        a = alerter(tmp_path, log, webhook_url=f"{talker.url}/SECRET", limit_s=0.4 if trouble == "hang" else 10.0)
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
    assert entries[0]["did"].startswith("The watchdog restarts the unit now")
    assert entries[1]["did"] == "The watchdog's restart did not help: systemd did not answer"
    assert bodies(talker)[1]["title"].startswith("RESTART FAILED kimi")
    assert entries[2]["did"] == "Verified: ready and answered after 41 s."


async def test_no_restart_is_promised_once_a_person_has_paused_us(tmp_path: Path) -> None:
    """A pause that comes between the decision and its message: it stays an alert, of its full severity, until it is over."""
    log, why = Log(), "not restarted: paused by a person: looking at it"
    async with talking(Script()) as talker:
        a = alerter(tmp_path, log, alertmanager_url=talker.url, paused=lambda server: why if server == "kimi" else None)
        async with running(a):
            a.tell("kimi", wall(), intent("SchedulerHung", Action.RESTART))
            await until(lambda: log.entries)
            a.acted("kimi", wall(), "SchedulerHung", "paused", why)
            await asyncio.sleep(0.3)
        (told,) = [e["message"] for e in log.entries if e["event"] == "alert"]
        labels, ends = [
            (sent[0]["labels"]["severity"], sent[0]["endsAt"])
            for sent in (msgspec.json.decode(r.partition(b"\r\n\r\n")[2]) for r in talker.requests)
        ][-1]
    assert "has not restarted the unit: paused by a person: looking at it. Nobody but you will restart it" in told
    assert "restarts the unit now" not in told
    assert labels == "critical"
    assert datetime.fromisoformat(ends) > wall(), "it is not resolved"


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
    assert log.said("kept as ") == 2
    assert list(folder.glob("book.json.*.bad"))
    assert a.counts().dropped["webhook"] == 1


async def test_what_was_kept_is_joined_with_what_was_told_before_it_could_be_read(tmp_path: Path) -> None:
    folder, nobody = tmp_path / "alerts", "http://127.0.0.1:9"

    def on_disk() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.glob("*") if path.suffix != ".new"}

    first, blind = (alerter(tmp_path, webhook_url=nobody, read=read) for read in (True, False))
    async with running(first):
        first.tell("kimi", wall(), intent("DeviceLost"))
        await until(lambda: b"DeviceLost" in on_disk().get("outbox-webhook.jsonl", b""))
        await until(lambda: not first._disk.busy)
    kept = on_disk()
    async with running(blind):
        blind.tell("kimi", wall(), intent("HostMemoryLow"))
        await until(lambda: blind.counts().waiting["webhook"])
    assert on_disk() == kept, "nothing is overwritten"
    async with talking(Script()) as talker:
        joined = alerter(tmp_path, webhook_url=talker.url)
        joined.go_on(blind)
        async with running(joined):
            await until(lambda: joined.counts().sent.get("webhook") == 2)
    assert [body["alerts"][0]["reason"] for body in bodies(talker)] == ["DeviceLost", "HostMemoryLow"]


@pytest.mark.parametrize("set_s", [-7200, 7200, 60 * 365 * 86400])
def test_a_wall_clock_that_is_set_makes_no_wait_longer_or_shorter(tmp_path: Path, set_s: float) -> None:
    """As time servers do it after a boot. What is told has the right time afterwards, and so has what is kept."""
    clock = FakeClock()
    a = alerter(tmp_path, clock=clock, group_wait_s=10, repeat_s=3600, alertmanager_url="http://127.0.0.1:9")

    def due() -> list[tuple[str, str]]:
        draft = a._book.due(a._now())
        if draft is None:
            return []
        assert draft.at == clock.wall(clock.now())
        a._book.said(draft)
        return [(cause.reason, str(news)) for cause, news in draft.news]

    def now() -> datetime:
        return clock.wall(clock.now())

    clock.advance(30)
    a.tell("quiet", now(), intent("DeviceLost"))
    a.tell("kimi", now(), intent("SchedulerHung", Action.RESTART))
    clock.advance(2)
    clock.origin += timedelta(seconds=set_s)
    assert due() == []
    clock.advance(8)
    assert sorted(due()) == [("DeviceLost", "new"), ("SchedulerHung", "new")]
    assert {cause.since for cause in a._book.causes} == {clock.wall(30)}

    clock.advance(60)
    clock.origin += timedelta(seconds=set_s)
    assert due() == [], "a restart that nobody reported back on yet is not over"
    clock.origin -= timedelta(seconds=set_s)
    a.tell("quiet", now(), intent("DeviceLost", Action.CLEAR))
    clock.advance(10)
    assert due() == [("DeviceLost", "over")]
    clock.advance(RESTART_S - 81)
    assert due() == []
    clock.advance(1)
    assert due() == []
    clock.advance(10)
    assert due() == [("SchedulerHung", "over")]


def test_two_alerters_are_joined_by_one_wall_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    before = alerter(tmp_path, clock=clock, group_wait_s=10)
    before.tell("kimi", clock.wall(0), intent("DeviceLost"))
    clock.origin += timedelta(hours=2)  # which it has not seen
    after = alerter(tmp_path, clock=clock, group_wait_s=10)
    after.go_on(before)
    assert [cause.open_at for cause in after._book.causes] == [clock.wall(10)]
