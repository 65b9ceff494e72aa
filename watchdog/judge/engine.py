"""One server's judging: observations in, events out. The daemon and a replay run the same engine with the same clock."""

import math
from collections.abc import Iterator

import msgspec

from watchdog import observation as o
from watchdog.config import Judging, Restarting
from watchdog.judge import (
    answers,
    cache_use,
    deeds,
    deployment,
    devices,
    memory,
    outage,
    pool,
    progress,
    ranks,
    requests,
    saturation,
    senses,
    shape,
    speculation,
    speed,
    startup,
    trouble,
    vetoes,
)
from watchdog.judge.decide import decide
from watchdog.judge.facts import Facts
from watchdog.judge.facts.learned import Learned
from watchdog.judge.facts.senses import PAUSE_S
from watchdog.judge.ledger import Ledger
from watchdog.judge.verdict import Condition, Event, Verdict


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine is run with."""

    judge: Judging = Judging()
    restart: Restarting = Restarting()
    dry: bool = False
    """True where intents are only said: an ordered restart will bring no new life."""
    tick_s: float = 5.0


class Engine:
    """Folds observations, looks at them at each tick and after each urgent one, and yields what changed.

    Ticks lie on a grid of `tick_s`. A tick is taken when an observation that is later than it arrives (or when the daemon calls
    `tick`), so a longer record never changes what was said of its beginning.
    """

    def __init__(
        self, settings: Settings, ledger: Ledger | None = None, learned: Learned | None = None, *, mid_life: bool = False
    ) -> None:
        self.settings = settings
        self.ledger = ledger or Ledger()
        self.facts = Facts(learned, mid_life=mid_life)
        self.conditions: dict[str, Condition] = {}
        self.verdicts: list[Verdict] = []
        self._next_tick: float | None = None

    def observe(self, x: o.Observation) -> Iterator[Event]:
        """Take in one observation; yields the events of the ticks before it, and its own if it is urgent."""
        if self._next_tick is None:
            self._next_tick = math.ceil(x.t / self.settings.tick_s) * self.settings.tick_s
        if isinstance(x, o.Self) and x.paused_s > PAUSE_S:
            # Ticks that we slept through were never taken: judged now, they would hold our own sleep against the server.
            self._next_tick = max(self._next_tick, math.ceil(x.t / self.settings.tick_s) * self.settings.tick_s)
        while self._next_tick < x.t:
            yield from self._judge(self._next_tick)
            self._next_tick += self.settings.tick_s
        if self.facts.see(x):
            yield from self._judge(x.t)

    def tick(self, now: float) -> Iterator[Event]:
        """Judge at `now`, whether or not anything was observed."""
        yield from self._judge(now)
        self._next_tick = (math.floor(now / self.settings.tick_s) + 1) * self.settings.tick_s

    def judge(self, now: float) -> list[Verdict]:
        """What each judge says at `now`. Changes nothing."""
        f, policy = self.facts, self.settings.judge
        held = pool.account(f)
        return [
            senses.judge(f.senses, now),
            outage.judge(f, now),
            startup.judge(f, policy, now),
            ranks.judge(f, now),
            *progress.judge(f, policy, now),
            answers.judge(f, policy, now),
            shape.judge(f, now),
            saturation.judge(f, now),
            *memory.judge(f, held, policy),
            devices.judge(f, now),
            speculation.judge(f, now),
            *speed.judge(f, now),
            cache_use.judge(f),
            deployment.judge(f, held),
            requests.judge(f, now),
            trouble.judge(f, now),
            vetoes.judge(f, self.settings.restart, now),
            deeds.judge(f),
        ]

    def _judge(self, now: float) -> Iterator[Event]:
        self.verdicts = self.judge(now)
        for v in self.verdicts:
            before = self.conditions.get(v.type)
            changed = before is None or before.status is not v.status or before.reason != v.reason
            since = now if before is None or before.status is not v.status else before.since
            condition = Condition(type=v.type, status=v.status, reason=v.reason, message=v.message, since=since)
            self.conditions[v.type] = condition
            if changed:
                yield Event(t=now, condition=condition)
        for intent in decide(self.facts, self.verdicts, self.ledger, self.settings.restart, now, dry=self.settings.dry):
            yield Event(t=now, intent=intent)
