"""The book of causes that stand: what is worth a message, when, and together with what. Pure: time comes from outside.

All moments are wall-clock time, so that they mean the same after a restart of the daemon. The caller counts them on a clock that
does not jump; where the wall clock was set meanwhile, it moves all of them by as much (`shift`), so that no wait gets longer or
shorter by that.
"""

from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from watchdog.act import redact
from watchdog.act.alerts.mutes import muted
from watchdog.act.alerts.notice import ENDED, RANK, Cause, Key, News, message_id
from watchdog.judge.verdict import Action, Intent, Severity

TOLD = (Action.ALERT, Action.RESTART, Action.WITHHOLD, Action.PLAN_RESTART)

HOLD_S = 6.5 * 3600.0
"""A veto or a plan that still stands is said anew by judge/decide.py after 6 h (FORGET_S); one that is not is over."""
RESTART_S = 3600.0
"""A restart that nobody reported back on is no longer held against other causes after so long."""
UNHEARD = "The watchdog has not seen whether its restart helped: `sglang-watchdog status` says how the server is."
QUIET_RESULTS = ("begun", "done", "dry")
"""Results of a restart that need no words: recovery is told when it is verified."""
MOOT = "moot"
"""It was given up because the fault was gone meanwhile, and the cause with it."""
PAUSED = "paused"
"""It was given up because a person has paused us: the fault stands."""
NOT_MADE = ("refused", "dropped", PAUSED)
"""Results of a restart that was not begun, while what calls for it stands."""
HOUR = timedelta(hours=1)
AGAIN_S = 900.0
"""What happens again and again is told so long after the last time at the earliest."""
MAX_CAUSES = 500
TEXT_CAP = 600
EVIDENCE_CAP = 8
"""Characters of a message, and pieces of evidence, that are kept of one cause."""


class Pages(msgspec.Struct, kw_only=True):
    """What of the book outlives the daemon.

    Attributes:
        told: when messages were made within the last hour.
        lost: causes that had no room in the book.
    """

    causes: list[Cause] = []
    told: list[datetime] = []
    lost: int = 0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How often people are told (config.Alerting)."""

    group_wait_s: float = 10.0
    repeat_s: float = 4 * 3600.0
    per_hour: int = 20


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said now: copies of the causes as they stand, each with what is new about it."""

    id: str
    at: datetime
    news: list[tuple[Cause, News]]


class Book:
    """Takes intents, yields drafts of messages.

    Attributes:
        stood_down: servers of which nothing is told → why.
    """

    def __init__(self, rules: Rules, pages: Pages | None = None, now: datetime | None = None) -> None:
        self.rules = rules
        self.stood_down: dict[str, str] = {}
        self._paused: set[str] = set()
        self._causes: dict[Key, Cause] = {}
        self._told: deque[datetime] = deque()
        self.lost = 0
        if pages is not None:
            self.lost = pages.lost
            self._causes = {cause.key: cause for cause in pages.causes}
            self._told.extend(pages.told)
            if now is not None:
                self._set_clock_back(now)

    def go_on(self, since: "Book") -> None:
        """Take in another one, which is newer than this one was when it was written down."""
        self._causes |= since._causes
        self._told = deque(sorted({*self._told, *since._told}))
        self.lost = max(self.lost, since.lost)
        self.stood_down |= since.stood_down

    def shift(self, by: timedelta) -> None:
        """The wall clock was set: all moments are `by` later on it."""
        self._told = deque(t + by for t in self._told)
        for cause in self._causes.values():
            cause.since, cause.renewed, cause.open_at = cause.since + by, cause.renewed + by, cause.open_at + by
            cause.said = cause.said and cause.said + by
            cause.over = cause.over and cause.over + by

    @property
    def pages(self) -> Pages:
        """What is to be kept."""
        return Pages(causes=list(self._causes.values()), told=list(self._told), lost=self.lost)

    @property
    def causes(self) -> list[Cause]:
        """All causes in the book, those that are over and not yet told as such included."""
        return list(self._causes.values())

    def take(self, server: str, at: datetime, intent: Intent, *, dry: bool = False) -> bool:
        """Fold in one intent; True if it changed the book. `dry`: a restart is only said."""
        if intent.action is Action.CLEAR:
            return self.end(server, intent.reason, at, "It is over.")
        if intent.action not in TOLD or (intent.action is Action.ALERT and intent.severity is Severity.INFO):
            return False
        evidence = [redact.line(each, TEXT_CAP) for each in intent.evidence[:EVIDENCE_CAP]]
        cause = self._causes.get((server, intent.reason))
        if cause is None:
            if len(self._causes) >= MAX_CAUSES:
                self.lost += 1
                return True
            cause = Cause(
                server=server,
                reason=intent.reason,
                actions=[],
                severity=intent.severity,
                message="",
                since=at,
                renewed=at,
                open_at=at + timedelta(seconds=self.rules.group_wait_s),
            )
            self._causes[cause.key] = cause
        elif cause.over is None and intent.action is Action.ALERT and Action.ALERT in cause.said_actions:
            cause.again = True
        elif cause.over is not None:
            # Back before its end was told: the same alert goes on.
            cause.over, cause.outcome, cause.severity = None, None, intent.severity
        if intent.action not in cause.actions:
            cause.actions.append(intent.action)
        if intent.action is Action.RESTART:
            cause.dry = dry
            if not cause.refused:  # the same refusal again is no news
                cause.failed, cause.result = None, ""
        cause.severity = max(cause.severity, intent.severity, key=RANK.__getitem__)
        cause.message = redact.line(intent.message, TEXT_CAP)
        cause.advice = redact.line(intent.advice, TEXT_CAP) if intent.advice else cause.advice
        cause.evidence = evidence or cause.evidence
        cause.renewed = at
        return True

    def end(self, server: str, reason: str, at: datetime, outcome: str) -> bool:
        """A cause is over; True if it stood."""
        cause = self._causes.get((server, reason))
        if cause is None or cause.over is not None:
            return False
        cause.over, cause.outcome = at, outcome
        return True

    def recovered(self, server: str, at: datetime, outcome: str) -> bool:
        """The server is well, or taken down: restarts and what was withheld are over; alerts wait for their own clear."""
        ended = [c for c in self._of(server) if Action.ALERT not in c.actions and Action.PLAN_RESTART not in c.actions]
        for cause in ended:
            self.end(server, cause.reason, at, outcome)
        return bool(ended)

    def acted(self, server: str, reason: str, at: datetime, result: str, detail: str) -> bool:
        """What came of a restart: one that did not help, or was not made, is news; True if that changed the book.

        The cause stands as long as the fault does: it is over by `recovered`, or where the fault was gone (MOOT).
        """
        cause = self._causes.get((server, reason))
        if cause is None or cause.over is not None or Action.RESTART not in cause.actions:
            return False
        if result in QUIET_RESULTS:
            carried_out = cause.refused and result != "dry"
            if carried_out:
                cause.failed, cause.refused = None, False
            cause.result = result
            return carried_out
        if result == MOOT:
            return self.end(server, reason, at, redact.line(detail, TEXT_CAP))
        return self._came_to(cause, at, result, detail)

    def _came_to(self, cause: Cause, at: datetime, result: str, detail: str) -> bool:
        failed = redact.line(detail, TEXT_CAP) or result
        cause.result = result
        if failed == cause.failed:
            return False
        cause.failed, cause.refused, cause.renewed = failed, result in NOT_MADE, at
        cause.said_actions = [action for action in cause.said_actions if action is not Action.RESTART]
        return True

    def pause(self, server: str, at: datetime, why: str | None) -> bool:
        """A person has paused us, or, where `why` is None, no pause holds; True if that changed the book.

        No restart that has not begun will be made, and nothing that stands is said anew until then.
        """
        changed = False
        if why is not None:
            self._paused.add(server)
            for cause in self._of(server):
                waits = cause.result not in QUIET_RESULTS and (cause.failed is None or cause.refused)
                if Action.RESTART in cause.actions and waits and not cause.dry:
                    changed = self._came_to(cause, at, PAUSED, why) or changed
        elif server in self._paused:
            self._paused.discard(server)
            for cause in self._of(server):
                cause.renewed, changed = at, True
                cause.result = "dropped" if cause.result == PAUSED else cause.result
        return changed

    def reconcile(self, server: str, alerts: Collection[str], at: datetime) -> set[str]:
        """Compare with the alerts that stand for the judges: ends those that do not; returns those that this book never saw."""
        for cause in self._of(server):
            if Action.ALERT in cause.actions and cause.reason not in alerts:
                self.end(server, cause.reason, at, "It was over while the watchdog did not run.")
        return set(alerts) - {cause.reason for cause in self._of(server)}

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget servers that are no longer watched."""
        self._causes = {key: cause for key, cause in self._causes.items() if cause.server in servers}

    def due(self, now: datetime) -> Draft | None:
        """What is to be said now; None if nothing is, or if it must wait. Changes the book only where causes ended unsaid."""
        self._expire(now)
        silenced = muted(self._causes.values(), self.stood_down)
        for cause in list(self._causes.values()):
            if cause.over is None:
                cause.muted = cause.key in silenced
            elif cause.said is None and (cause.muted or cause.over < cause.open_at):
                # Nobody heard of it: muted, or too brief. What only the limit held up stays, and is told as passed.
                del self._causes[cause.key]
        news = [(cause, what) for cause in self._causes.values() if (what := self._news(cause))]
        if not any(self._ready(cause, what, now) for cause, what in news):
            return None
        news = [
            (c, what) for c, what in news if what is not News.STILL or self._ready(c, what, now, early_s=self.rules.repeat_s / 10)
        ]
        if not self._room(news, now):
            return None
        news.sort(key=lambda each: (each[1] in ENDED, -RANK[each[0].severity], each[0].since))
        return Draft(id=message_id(news), at=now, news=[(msgspec.structs.replace(c), what) for c, what in news])

    def said(self, draft: Draft) -> None:
        """The draft has become a message that will not be lost."""
        self._told.append(draft.at)
        for copy, what in draft.news:
            cause = self._causes.get(copy.key)
            if cause is None:
                continue
            cause.said, cause.said_actions, cause.times = draft.at, list(copy.actions), cause.times + 1
            cause.again = False
            if what in ENDED and cause.over is not None:
                del self._causes[cause.key]

    def standing(self, now: datetime) -> list[Cause]:
        """Those that hold, are past the group wait and are not muted, or were told before they were."""
        silenced = muted(self._causes.values(), self.stood_down)
        return [
            c
            for c in self._causes.values()
            if c.over is None and (c.said is not None or (c.open_at <= now and c.key not in silenced))
        ]

    def _of(self, server: str) -> list[Cause]:
        return [c for c in self._causes.values() if c.server == server and c.over is None]

    def _news(self, cause: Cause) -> News | None:
        if cause.over is not None:
            return News.PASSED if cause.said is None else News.OVER
        if cause.muted:
            return None
        if cause.said is None:
            return News.NEW
        if set(cause.actions) - set(cause.said_actions):
            return News.CHANGED
        if cause.again:
            return News.CHANGED
        return None if cause.on_its_way else News.STILL

    def _ready(self, cause: Cause, what: News, now: datetime, early_s: float = 0.0) -> bool:
        if what is News.CHANGED and not set(cause.actions) - set(cause.said_actions):
            # It happened once more. Where it does so again and again, not each time is told.
            return cause.said is not None and now - cause.said >= timedelta(seconds=AGAIN_S)
        if what is News.STILL:
            return cause.said is not None and now - cause.said >= timedelta(seconds=self.rules.repeat_s - early_s)
        if what in ENDED:
            return cause.over is not None and now - cause.over >= timedelta(seconds=self.rules.group_wait_s)
        return now >= cause.open_at

    def _room(self, news: Iterable[tuple[Cause, News]], now: datetime) -> bool:
        while self._told and now - self._told[0] >= HOUR:
            self._told.popleft()
        urgent = any(c.severity is Severity.CRITICAL and what in (News.NEW, News.CHANGED) for c, what in news)
        return len(self._told) < (self.rules.per_hour if urgent else self.rules.per_hour - self.rules.per_hour // 4)

    def _set_clock_back(self, now: datetime) -> None:
        """What a clock wrote that ran ahead is brought back to now, so that nothing waits for a moment that is far."""
        self._told = deque(min(t, now) for t in self._told)
        opens = now + timedelta(seconds=self.rules.group_wait_s)
        for cause in self._causes.values():
            cause.since, cause.renewed, cause.open_at = min(cause.since, now), min(cause.renewed, now), min(cause.open_at, opens)
            cause.said = cause.said and min(cause.said, now)
            cause.over = cause.over and min(cause.over, now)

    def _expire(self, now: datetime) -> None:
        for cause in self._causes.values():
            if cause.over is not None or Action.ALERT in cause.actions:
                continue
            unmade = not cause.on_its_way and all(action is Action.RESTART for action in cause.actions)
            if unmade or (cause.server in self._paused and not cause.on_its_way):
                continue  # nobody says it anew, and it stands all the same
            limit, outcome = (RESTART_S, UNHEARD) if cause.on_its_way else (HOLD_S, "Nothing calls for it any more.")
            if now - cause.renewed >= timedelta(seconds=limit):
                cause.over, cause.outcome = now, outcome
