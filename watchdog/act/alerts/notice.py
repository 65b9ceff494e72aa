"""What alerts are made of: causes that stand, and messages about them."""

import hashlib
from datetime import datetime
from enum import StrEnum

import msgspec

from watchdog.judge.verdict import Action, Severity

RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}

Key = tuple[str, str]
"""A cause: the server's name and the reason. One cause has one alert."""


class News(StrEnum):
    """What is new about a cause."""

    NEW = "new"
    CHANGED = "changed"
    STILL = "still"
    OVER = "over"
    PASSED = "passed"
    """It came and went before anything could be said of it (too many messages)."""


ENDED = (News.OVER, News.PASSED)


class Cause(msgspec.Struct, kw_only=True):
    """One cause for one server, as long as it stands.

    Attributes:
        actions: what was decided about it so far, in order: alert, restart, withhold, plan_restart.
        since: when it was first told to us.
        renewed: when it was last told to us.
        open_at: not to be said before (the group wait).
        said: when people were last told; None for never.
        said_actions: the actions that people know of.
        times: how often people were told.
        muted: whether another cause muted it when it was last looked at while it stood.
        over: since when it is over; it stands here until that has been said.
        outcome: one sentence on how it ended.
        failed: what came of our restart, where it did not help.
        refused: whether nothing was done: it was refused, or given up before it was begun.
        result: what was last heard of our restart (book.acted); "" for nothing yet.
        dry: whether our mode only says restarts.
        again: whether what people were told of has happened once more since.
    """

    server: str
    reason: str
    actions: list[Action]
    severity: Severity
    message: str
    since: datetime
    renewed: datetime
    open_at: datetime
    advice: str | None = None
    evidence: list[str] = []
    said: datetime | None = None
    said_actions: list[Action] = []
    times: int = 0
    muted: bool = False
    over: datetime | None = None
    outcome: str | None = None
    failed: str | None = None
    refused: bool = False
    result: str = ""
    dry: bool = False
    again: bool = False

    @property
    def key(self) -> Key:
        """Server and reason."""
        return self.server, self.reason

    @property
    def on_its_way(self) -> bool:
        """Whether it is only what we do ourselves: a restart, of which nobody has heard that it was not made, or did not help."""
        return all(action is Action.RESTART for action in self.actions) and self.failed is None and not self.dry


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cause as a message tells it.

    Attributes:
        did: what the watchdog does about it, or will not do: one sentence.
        until: when it was over.
        failed: whether our restart did not help.
        not_made: whether none was made.
    """

    server: str
    unit: str
    reason: str
    news: News
    severity: Severity
    actions: list[Action]
    message: str
    since: datetime
    until: datetime | None = None
    evidence: list[str] = []
    advice: str | None = None
    did: str = ""
    runbook: str | None = None
    failed: bool = False
    not_made: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent at once: one or several items.

    Attributes:
        id: the same for the same content, also when it is made anew after a crash, so that a receiver can tell a repetition.
        test: whether it only proves that the channel works.
    """

    id: str
    created: datetime
    host: str
    items: list[Item]
    test: bool = False

    @property
    def severity(self) -> Severity:
        """The worst of those that are not over; info when all are."""
        return max((i.severity for i in self.items if i.news not in ENDED), key=RANK.__getitem__, default=Severity.INFO)

    @property
    def firing(self) -> bool:
        """Whether something in it still holds."""
        return any(i.news not in ENDED for i in self.items)


def message_id(causes: list[tuple[Cause, News]]) -> str:
    """16 hexadecimal digits made from what is told."""
    facts = "\n".join(f"{c.server} {c.reason} {news} {c.since.isoformat()} {c.times} {' '.join(c.actions)}" for c, news in causes)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]
