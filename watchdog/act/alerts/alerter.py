"""The alerter: takes intents at once, and tells people in a task of its own, so that nothing ever waits for it."""

import asyncio
import contextlib
import random
import socket
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.act.alerts import wording
from watchdog.act.alerts.alertmanager import RESEND_S, Alertmanager
from watchdog.act.alerts.apprise_channel import Apprise
from watchdog.act.alerts.book import Book, Draft, Pages, Rules
from watchdog.act.alerts.channel import CHANNELS, KEYS, Channel, Counts, Logger, Result, error_of
from watchdog.act.alerts.http import SendError
from watchdog.act.alerts.notice import ENDED, Cause, Item, Message, News
from watchdog.act.alerts.outbox import Outbox, backoff_s
from watchdog.act.alerts.store import Store
from watchdog.act.alerts.webhook import Webhook
from watchdog.clock import Clock
from watchdog.judge.verdict import Intent, Severity
from watchdog.worker import BusyError, Worker

BOOK = "book.json"
KNOWN = "alertmanager.json"
LOOK_S = 5.0
"""So often the book is looked at without an intent: repeats are due, mutes end, room comes up under the hourly limit."""
SAVE_LIMIT_S = 10.0
LAST_SAVE_S = 2.0


class Alerter:
    """Tells people what was decided: one message for each cause, grouped, muted, repeated, cleared, limited, and none lost.

    `tell`, `recovered`, `acted`, `reconcile` and `stand_down` only write into memory and return at once; `run` does the rest.

    Args:
        settings: the section [alert].
        servers: the watched servers.
        mode: daemon.mode, for servers without their own. In mode observe a server's alerts go to the journal only.
        state: the daemon's state folder; all is kept below its folder alerts/.
        clock: the one clock.
        log: the daemon's logger; the channel "journal".
        host: the name of this host in messages.
        rng: where the jitter comes from.
        channels: used in place of the configured webhook and Apprise.
        paused: why no restart of a server will be made because a person has paused us; None where no pause holds.
        read: whether what is kept is read now, which blocks; without it nothing is written either, so that nothing is lost.
    """

    def __init__(
        self,
        settings: config.Alerting,
        servers: Sequence[config.Server],
        mode: config.Mode,
        *,
        state: Path,
        clock: Clock,
        log: Logger,
        host: str | None = None,
        rng: random.Random | None = None,
        channels: Sequence[Channel] | None = None,
        paused: Callable[[str], str | None] = lambda _server: None,
        read: bool = True,
    ) -> None:
        self.settings = settings
        self.host = host or socket.gethostname()
        self._servers = {server.name: server for server in servers}
        self._mode = mode
        self._clock = clock
        self._origin = clock.origin
        self._log = log
        self._rng = rng or random.Random()
        self._paused = paused
        self._store = Store(state / "alerts")
        self.read = read
        self._disk = Worker("alerts-disk")
        self._save_failed = False
        self._rules = Rules(group_wait_s=settings.group_wait_s, repeat_s=settings.repeat_s, per_hour=settings.per_hour)
        now = clock.wall(clock.now())
        self._book = self._opened_book(now)
        self._channels = list(channels) if channels is not None else self._configured()
        self._outboxes = {channel.name: Outbox(self._kept(_file(channel.name))) for channel in self._channels}
        self._alertmanager = self._opened_alertmanager(now) if settings.alertmanager_url else None
        self._sent: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._mail = {channel.name: asyncio.Event() for channel in self._channels}
        self._alarm = asyncio.Event()
        self._written = {name: hash(content) for name, content in self._files().items()}

    def go_on(self, since: "Alerter") -> None:
        """Take in all that another one knows, which has ended: it may have been told more than it could keep."""
        self._now()
        since._now()  # as the wall clock is set now, both
        self._book.go_on(since._book)
        self._book.keep_only(self._servers)
        for name, box in since._outboxes.items():
            for message in box.messages if name in self._outboxes else ():
                self._outboxes[name].put(message)
        if self._alertmanager is not None and since._alertmanager is not None:
            self._alertmanager.known |= since._alertmanager.known
        self._sent += since._sent
        self._failed += since._failed

    def tell(self, server: str, t_wall: datetime, intent: Intent) -> None:
        """Hand over one intent. Never blocks, never raises."""
        self._now()
        if self._book.take(server, t_wall, intent, dry=self._mode_of(server) != "act"):
            self._changed()

    def recovered(self, server: str, t_wall: datetime, message: str) -> None:
        """It is well again, or was taken down: what we restarted or withheld for is over, in the words of `message`."""
        self._now()
        if self._book.recovered(server, t_wall, message):
            self._changed()

    def acted(self, server: str, t_wall: datetime, reason: str, result: str, detail: str) -> None:
        """What came of a restart (observation.Acted, or book.MOOT or book.PAUSED): one that failed or was not made is told."""
        self._now()
        if self._book.acted(server, reason, t_wall, result, detail):
            self._changed()

    def reconcile(self, server: str, alerts: Collection[str]) -> set[str]:
        """After our own start: compare with the alerts that stand for the judges (Ledger.alerts).

        Returns:
            Reasons that were never told to this alerter (we died in between): taken out of the ledger they are raised anew.
        """
        unknown = self._book.reconcile(server, alerts, self._now())
        self._changed()
        return unknown

    def stand_down(self, server: str, why: str | None) -> None:
        """While a person has stopped the server, nothing new is told of it; None ends that."""
        before = dict(self._book.stood_down)
        if why is None:
            self._book.stood_down.pop(server, None)
        else:
            self._book.stood_down[server] = why
        if before != self._book.stood_down:
            self._changed()

    def counts(self) -> Counts:
        """Figures since our own start (waiting: at the moment)."""
        dropped = {name: box.dropped for name, box in self._outboxes.items()}
        waiting = {name: len(box.messages) for name, box in self._outboxes.items()}
        if self._alertmanager is not None:
            waiting["alertmanager"] = sum(known.ended is not None for known in self._alertmanager.known.values())
        return Counts(
            sent=dict(self._sent), failed=dict(self._failed), dropped=dropped | {"book": self._book.lost}, waiting=waiting
        )

    async def run(self) -> None:
        """Tell people, until cancelled. What is not delivered by then is on disk and goes on after the next start."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_desk())
                for channel in self._channels:
                    tasks.create_task(self._deliver(channel))
                if self._alertmanager is not None:
                    tasks.create_task(self._follow(self._alertmanager))
        finally:
            await self._save(LAST_SAVE_S)

    async def test(self, channel: str = "") -> list[Result]:
        """Prove a channel, or all where none is named: sends a message that says that it is a test. Needs no `run`.

        Raises:
            ValueError: there is no such channel.
        """
        if channel and channel not in CHANNELS:
            raise ValueError(f"there is no channel {channel}; there are {', '.join(CHANNELS)}")
        return [await self._test(name) for name in CHANNELS if channel in ("", name)]

    def _now(self) -> datetime:
        """Wall-clock time. Where that clock was set, all that is remembered moves with it: what we wait for takes as long."""
        origin = self._clock.origin
        by, self._origin = origin - self._origin, origin
        if by:
            self._book.shift(by)
            if self._alertmanager is not None:
                self._alertmanager.shift(by)
        return origin + timedelta(seconds=self._clock.now())

    def _changed(self) -> None:
        self._news.set()
        self._alarm.set()

    def _configured(self) -> list[Channel]:
        channels: list[Channel] = []
        if self.settings.webhook_url:
            channels.append(Webhook(self.settings))
        if self.settings.apprise_urls_file:
            channels.append(Apprise(self.settings))
        return channels

    def _kept(self, name: str) -> bytes | None:
        return self._store.load(name) if self.read else None

    def _opened_book(self, now: datetime) -> Book:
        raw = self._kept(BOOK)
        pages: Pages | None = None
        if raw is not None:
            try:
                pages = msgspec.json.decode(raw, type=Pages)
            except msgspec.DecodeError as e:
                self._unreadable(BOOK, e)
        book = Book(self._rules, pages, now)
        book.keep_only(self._servers)
        return book

    def _opened_alertmanager(self, now: datetime) -> Alertmanager:
        try:
            return Alertmanager(self.settings, self.host, self._kept(KNOWN), now)
        except msgspec.DecodeError as e:
            self._unreadable(KNOWN, e)
            return Alertmanager(self.settings, self.host)

    def _unreadable(self, name: str, error: Exception) -> None:
        kept = self._store.aside(name)
        where = f"; kept as {kept}" if kept else ""
        self._log.error("state-lost", message=f"{name} of the alerts cannot be understood ({error}){where}")

    async def _keep_desk(self) -> None:
        """Make messages of what is due, and keep the files in step."""
        while True:
            self._news.clear()
            self._look_at_pauses()
            while (draft := self._book.due(self._now())) is not None:
                self._hand_out(draft)
            await self._save()
            await self._nap(self._news)

    def _look_at_pauses(self) -> None:
        """Right before anything is told: no restart is promised that will not be made."""
        now = self._now()
        changed = [name for name in self._servers if self._book.pause(name, now, self._paused(name))]
        if changed:
            self._alarm.set()

    async def _nap(self, event: asyncio.Event) -> None:
        """Until something happens, or the book is to be looked at again: oftener while something may become due."""
        limit = min(LOOK_S, max(0.02, self.settings.group_wait_s / 10)) if self._book.causes else LOOK_S
        with contextlib.suppress(TimeoutError):
            # Not wait_for(): in Python 3.11 it can swallow a cancellation that comes as the event does (gh-86296).
            async with asyncio.timeout(limit):
                await event.wait()

    def _hand_out(self, draft: Draft) -> None:
        items = [self._item(cause, news) for cause, news in draft.news]
        for item in items:
            self._write_journal(item)
        outside = [item for item in items if self._mode_of(item.server) != "observe"]
        if outside:
            message = Message(id=draft.id, created=draft.at, host=self.host, items=outside)
            for name, box in self._outboxes.items():
                box.put(message)
                self._mail[name].set()
        self._book.said(draft)
        self._alarm.set()

    def _item(self, cause: Cause, news: News) -> Item:
        unit = self._servers[cause.server].unit if cause.server in self._servers else ""
        link = self.settings.runbook_url
        return Item(
            server=cause.server,
            unit=unit,
            reason=cause.reason,
            news=news,
            severity=cause.severity,
            actions=list(cause.actions),
            message=cause.message,
            since=cause.since,
            until=cause.over,
            evidence=list(cause.evidence),
            advice=cause.advice,
            did=cause.outcome or "It is over." if news in ENDED else wording.did(cause, unit, self._mode_of(cause.server)),
            runbook=f"{link}#{cause.reason.lower()}" if link else None,
            failed=cause.failed is not None and cause.result != "unknown",
            not_made=cause.refused or cause.dry,
        )

    def _mode_of(self, server: str) -> config.Mode:
        found = self._servers.get(server)
        return (found.mode if found is not None else None) or self._mode

    def _write_journal(self, item: Item) -> None:
        write = self._log.info if item.news in ENDED else self._log.warning
        if item.severity is Severity.CRITICAL and item.news not in ENDED:
            write = self._log.error
        write(
            "alert",
            message=f"{item.news}: {item.message} {item.did}",
            server=item.server,
            unit=item.unit,
            reason=item.reason,
            severity=str(item.severity),
            action=str(item.actions[-1]),
            advice=item.advice,
            evidence=item.evidence,
        )

    async def _deliver(self, channel: Channel) -> None:
        """Send a channel's messages in order, one at a time, as long as it takes."""
        box, mail = self._outboxes[channel.name], self._mail[channel.name]
        while True:
            message = box.head(self._clock.sure())
            if message is None:
                mail.clear()
                await mail.wait()
                continue
            error = await error_of(channel.send(message, self._now()))
            if error is None:
                self._came_through(channel.name, box.failures)
                box.sent(message)
                await self._save()
                continue
            if box.failed(message, refused=error.refused):
                self._log.error(
                    "alert-channel", message=f"{channel.name}: a message was dropped, refused again and again: {error}"
                )
            self._fell_through(channel.name, box.failures, error)
            await asyncio.sleep(backoff_s(box.failures, self._rng, error.after_s))

    async def _follow(self, manager: Alertmanager) -> None:
        """Keep Alertmanager in step: at once when something changes, and before what it knows runs out."""
        failures = 0
        told_at: float | None = None
        while True:
            self._alarm.clear()
            now = self._now()
            standing = [c for c in self._book.standing(now) if self._mode_of(c.server) != "observe"]
            news = manager.follow([(cause, self._item(cause, News.STILL)) for cause in standing], now)
            if manager.known and (news or told_at is None or self._clock.now() - told_at >= RESEND_S):
                await self._save()
                error = await error_of(manager.send(self._now()))
                told_at = self._clock.now() if error is None else None
                if error is not None:
                    failures += 1
                    self._fell_through("alertmanager", failures, error)
                    await asyncio.sleep(backoff_s(failures, self._rng, error.after_s))
                    continue
                self._came_through("alertmanager", failures)
                failures = 0
                await self._save()
            await self._nap(self._alarm)

    def _came_through(self, channel: str, failures: int) -> None:
        self._sent[channel] += 1
        if failures:
            self._log.info("alert-channel", message=f"{channel} takes alerts again.")

    def _fell_through(self, channel: str, failures: int, error: SendError) -> None:
        self._failed[channel] += 1
        if failures == 1:
            self._log.warning("alert-channel", message=f"{channel} does not take alerts: {error}. They wait and are sent later.")

    def _files(self) -> dict[str, bytes]:
        """What is kept, in the order in which it is written: a message first, that it was made last."""
        files = {_file(name): box.encoded() for name, box in self._outboxes.items()}
        if self._alertmanager is not None:
            files[KNOWN] = self._alertmanager.encoded()
        return files | {BOOK: msgspec.json.encode(self._book.pages)}

    async def _save(self, limit_s: float = SAVE_LIMIT_S) -> None:
        """Bring the files up to date. A disk that is full or dead delays only alerts, and loses none while we run."""
        behind = {name: content for name, content in self._files().items() if self._written.get(name) != hash(content)}
        if not behind or self._disk.busy or not self.read:
            return

        def write() -> None:
            for name, content in behind.items():
                self._store.save(name, content)
                self._written[name] = hash(content)

        try:
            await self._disk.call(write, limit_s)
        except (OSError, RuntimeError, BusyError) as e:  # TimeoutError is an OSError
            if not self._save_failed:
                why = e.strerror if isinstance(e, OSError) and e.strerror else "the disk does not answer"
                self._log.error(
                    "alert-channel", message=f"Alerts cannot be kept in {self._store.folder}: {why}. They are still sent."
                )
            self._save_failed = True
        else:
            self._save_failed = False

    async def _test(self, channel: str) -> Result:
        message = Message(id=f"test-{self._rng.getrandbits(64):016x}", created=self._now(), host=self.host, items=[], test=True)
        found = next((each for each in self._channels if each.name == channel), None)
        begun = self._clock.now()
        if channel == "journal":
            self._log.info("alert", message=wording.title(message))
            return Result(channel=channel, ok=True, detail="Written. Look for it with: journalctl -t sglang-watchdog -n 5")
        if channel == "alertmanager" and self.settings.alertmanager_url:
            manager = self._alertmanager or Alertmanager(self.settings, self.host)
            error = await error_of(manager.test(self._now()))
        elif found is not None:
            error = await error_of(found.send(message, self._now()))
        else:
            return Result(channel=channel, ok=None, detail=f"Not configured: set alert.{KEYS[channel]}.")
        seconds = round(self._clock.now() - begun, 3)
        if error is not None:
            return Result(channel=channel, ok=False, detail=f"{error}.", seconds=seconds)
        return Result(channel=channel, ok=True, detail="It was taken; look whether it arrived.", seconds=seconds)


def _file(channel: str) -> str:
    return f"outbox-{channel}.jsonl"
