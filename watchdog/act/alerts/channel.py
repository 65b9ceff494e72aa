"""What channels have in common: how they are called, how a sending ends, what is told of them."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol

import msgspec

from watchdog.act.alerts.http import SendError
from watchdog.act.alerts.notice import Message

CHANNELS = ("journal", "webhook", "alertmanager", "apprise")
KEYS = {"webhook": "webhook_url", "alertmanager": "alertmanager_url", "apprise": "apprise_urls_file"}
"""The key of [alert] that turns a channel on."""


class Logger(Protocol):
    """What is used of the daemon's structlog logger."""

    def info(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Channel(Protocol):
    """Sends messages one at a time."""

    name: str

    async def send(self, message: Message, now: datetime) -> None:
        """Send once; raises SendError where it has not arrived."""
        ...


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the test of one channel.

    Attributes:
        ok: None where the channel is not configured.
        detail: one sentence for people, with what helps.
        seconds: how long it took.
    """

    channel: str
    ok: bool | None
    detail: str
    seconds: float = 0.0


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures for the exporter, by channel."""

    sent: dict[str, int]
    failed: dict[str, int]
    dropped: dict[str, int]
    waiting: dict[str, int]


async def error_of(sending: Awaitable[None]) -> SendError | None:
    """What went wrong with a sending; a fault of our own counts as a message that cannot be sent, and stops nothing."""
    try:
        await sending
    except SendError as e:
        return e
    except Exception as e:  # noqa: BLE001
        return SendError(f"a fault of the watchdog's own ({type(e).__name__})", refused=True)
    return None
