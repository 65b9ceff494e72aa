"""What one channel still has to send: in order, within a number and an age, kept in a file of JSON lines."""

import random
from datetime import datetime, timedelta

import msgspec

from watchdog.act.alerts.notice import Message
from watchdog.judge.verdict import Severity

MAX_MESSAGES = 500
MAX_AGE = timedelta(days=3)
BACKOFF_S = 5.0
BACKOFF_MAX_S = 300.0
REFUSALS = 3
"""A message that the other side calls bad so often is dropped: it would hold up all that come after it."""


class Outbox:
    """Messages in order, oldest first.

    Attributes:
        dropped: how many were dropped: too old, too many, or refused.
        failures: how many attempts have failed since the last success.
    """

    def __init__(self, raw: bytes | None = None) -> None:
        """Take up what was kept; a line that cannot be read is counted as dropped."""
        self.messages: list[Message] = []
        self.dropped = 0
        self.failures = 0
        self._refusals = 0
        for line in (raw or b"").splitlines():
            try:
                self.messages.append(msgspec.json.decode(line, type=Message))
            except msgspec.DecodeError:
                self.dropped += 1

    def encoded(self) -> bytes:
        """The file's content."""
        return b"".join(msgspec.json.encode(message) + b"\n" for message in self.messages)

    def put(self, message: Message) -> None:
        """Add a message, if it is not there yet; makes room by dropping the oldest that is not critical."""
        if any(each.id == message.id for each in self.messages):
            return
        self.messages.append(message)
        while len(self.messages) > MAX_MESSAGES:
            self._drop(next((i for i, m in enumerate(self.messages) if m.severity is not Severity.CRITICAL), 0))

    def head(self, now: datetime | None) -> Message | None:
        """The message to send next; drops those that are too old. `now` is None where the wall clock is not sure."""
        while self.messages and now is not None and now - self.messages[0].created > MAX_AGE:
            self._drop(0)
        return self.messages[0] if self.messages else None

    def sent(self, message: Message) -> None:
        """It has arrived."""
        self.messages = [each for each in self.messages if each.id != message.id]
        self.failures = self._refusals = 0

    def failed(self, message: Message, *, refused: bool) -> bool:
        """It has not arrived; True if it is dropped because the other side has called it bad too often."""
        self.failures += 1
        self._refusals = self._refusals + 1 if refused else 0
        if self._refusals < REFUSALS:
            return False
        self.messages = [each for each in self.messages if each.id != message.id]
        self.dropped += 1
        self._refusals = 0
        return True

    def _drop(self, index: int) -> None:
        del self.messages[index]
        self.dropped += 1


def backoff_s(failures: int, rng: random.Random, asked_s: float | None = None) -> float:
    """How long to wait after so many failures in a row: 5 s, doubled each time up to 5 min, with jitter.

    Args:
        failures: at least 1.
        rng: where the jitter comes from: between half the wait and the whole, so that many hosts do not come at once.
        asked_s: what the other side asked for (Retry-After); heeded up to an hour.
    """
    wait = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(failures - 1, 16)) * rng.uniform(0.5, 1.0)
    return max(wait, min(asked_s or 0.0, 3600.0))
