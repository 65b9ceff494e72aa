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
    load_back,
    memory,
    names,
    outage,
    pool,
    progress,
    ranks,
    replicas,
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
from watchdog.judge.facts.deaths import Ends
from watchdog.judge.facts.learned import Learned
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.senses import PAUSE_S
from watchdog.judge.ledger import Ledger
from watchdog.judge.recovery import Recovery
from watchdog.judge.verdict import Condition, Event, Verdict

SLOW_S = 30.0
"""What changes over many minutes is judged so often, and at each turn of the unit's life."""


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
        self._recovery = Recovery()
        self._next_tick: float | None = None
        self._slow: list[Verdict] = []
        self._slow_at = -math.inf
        self._slow_of: tuple[str | None, Phase] | None = None

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
        urgent = self.facts.see(x)
        if isinstance(x, o.Acted) and x.action == "restart":
            self.ledger.acted(x.t, x.result, x.reason)
        elif isinstance(x, o.Operator) and x.action == "repaired":
            self.ledger.repaired(x.t, over=deeds.failed(self.facts) is not None)
        if urgent:
            yield from self._judge(x.t)

    def tick(self, now: float) -> Iterator[Event]:
        """Judge at `now`, whether or not anything was observed."""
        yield from self._judge(now)
        self._next_tick = (math.floor(now / self.settings.tick_s) + 1) * self.settings.tick_s

    def ends(self, now: float) -> Ends:
        """How the lives of the last day ended, to be written down."""
        ends = self.facts.life.deaths.keep(now)
        ends.over_at = self._recovery.over_at if math.isfinite(self._recovery.over_at) else None
        return ends

    def recall(self, ends: Ends, now: float) -> None:
        """Take up what the daemon before us saw end, and let the alerts that stand until it has been looked at."""
        self.facts.life.deaths.recall(ends)
        if ends.over_at is not None:
            self._recovery.over_at = max(self._recovery.over_at, ends.over_at)
        self.ledger.resume(now)

    def judge(self, now: float) -> list[Verdict]:
        """What each judge says at `now`. Changes nothing."""
        return self._urgent(now) + self._gradual(now)

    def _urgent(self, now: float) -> list[Verdict]:
        """The judges whose word can call for a restart, forbid one, or say what the server does."""
        f, policy = self.facts, self.settings.judge
        return [
            senses.judge(f.senses, now),
            outage.judge(f, now, self._recovery.over_at),
            startup.judge(f, policy, now),
            ranks.judge(f, now),
            *progress.judge(f, policy, now),
            replicas.judge(f, policy, now),
            answers.judge(f, policy, now),
            saturation.judge(f, policy, now),
            devices.judge(f, now),
            requests.judge(f, now),
            trouble.judge(f, now),
            vetoes.judge(f, self.settings.restart, now),
            deeds.judge(f, now),
        ]

    def _gradual(self, now: float) -> list[Verdict]:
        """The judges of what changes over many minutes: their word is at most told."""
        f = self.facts
        held = pool.account(f)
        return [
            shape.judge(f, now),
            names.judge(f),
            *memory.judge(f, held, self.settings.judge),
            speculation.judge(f, now),
            *speed.judge(f, now),
            cache_use.judge(f),
            load_back.judge(f, now),
            deployment.judge(f, held),
        ]

    def _judge(self, now: float) -> Iterator[Event]:
        fresh = urgent = self._urgent(now)
        of = (self.facts.life.inv, self.facts.life.phase())
        if now - self._slow_at >= SLOW_S or of != self._slow_of:
            self._slow, self._slow_at, self._slow_of = self._gradual(now), now, of
            fresh = urgent + self._slow
        self.verdicts = urgent + self._slow
        for v in fresh:
            before = self.conditions.get(v.type)
            changed = before is None or before.status is not v.status or before.reason != v.reason
            if before is not None and not changed and before.message == v.message:
                continue
            since = now if before is None or before.status is not v.status else before.since
            turned = now if changed or before is None else before.reason_since
            condition = Condition(
                type=v.type, status=v.status, reason=v.reason, message=v.message, since=since, reason_since=turned
            )
            self.conditions[v.type] = condition
            if changed:
                yield Event(t=now, condition=condition)
        self._recovery.look(self.facts, self.conditions, now)
        for intent in decide(self.facts, self.verdicts, self.ledger, self.settings.restart, now, dry=self.settings.dry):
            yield Event(t=now, intent=intent)
