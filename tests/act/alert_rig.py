"""What the tests of the alerter share: receivers that misbehave, a journal, and waiting."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.observe.talker import Talker, reply
from watchdog import config
from watchdog.act.alerts import Alerter
from watchdog.clock import BootClock
from watchdog.judge.verdict import Action, Intent, Severity

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


def alerter(tmp_path: Path, log: Log | None = None, *, mode: str = "act", **settings: Any) -> Alerter:
    given = {"group_wait_s": 0.1, "limit_s": 0.4, "per_hour": 1000, **settings}
    channels, clock = given.pop("channels", None), given.pop("clock", BootClock())
    read, paused = given.pop("read", True), given.pop("paused", lambda _server: None)
    return Alerter(
        config.Alerting(**given),
        [config.Server(name="kimi", unit="sglang-kimi.service"), config.Server(name="quiet", unit="q.service", mode="observe")],
        mode,  # type: ignore[arg-type]
        state=tmp_path,
        clock=clock,
        log=log or Log(),
        host="gpu01",
        rng=random.Random(1),
        channels=channels,
        paused=paused,
        read=read,
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
