"""The endpoint source: asks a server's API at a pace that it can bear.

Two lanes, each with at most one request in flight: the cheap one (/health, /ready, /v1/models) and the canaries (chat, prefix).
So /health never overlaps with itself (overlapping ones make SGLang 0.5.x answer 200 past a stuck detokenizer), and a canary that
waits for its 60 s does not silence the others. /health beside a canary loses nothing: the canary itself goes the whole way.
(A canary whose model has no name yet asks /v1/models itself; that costs no lane.)
"""

import asyncio
import random

import msgspec

from watchdog import config
from watchdog.clock import Clock
from watchdog.observation import Probe
from watchdog.observe.canary import Canary
from watchdog.observe.pace import Budget, Pace
from watchdog.observe.source import Beat, Emit, Target

CHEAP = ("health", "models", "ready")
COSTLY = ("chat", "prefix")

LOOK_S = 0.5
"""So soon a new life of the unit is noticed while a probe is in flight, in seconds."""

REST_S = 5.0
"""Between two signs of life while nothing is due, in seconds."""

FIRST_S = {"health": 0.3, "models": 0.6, "ready": 0.9, "chat": 1.5, "prefix": 60.0}
"""After our start and after the server's, the first turn of each kind comes so many seconds later (and up to as much again)."""

HELD = {"starting": COSTLY, "traffic": COSTLY, "paused": (*COSTLY, "health")}
"""Which probes a hold leaves out. /health goes on in traffic, since a busy scheduler answers it without generating (SGLang
0.4.10 and later); while a person has paused us, only what never reaches the scheduler is asked."""


class EndpointSource:
    """Implements observe.source.Source for one server.

    Args:
        target: the server, and what the daemon says of it.
        clock: the program's clock.
        rng: of jitter and nonces; a test gives a seeded one.
        before: the source that this one follows, at a reload: what it asked of the server counts. The paces go on too, and the
            name of the model stays learnt, unless something else is to be asked now.
    """

    name = "endpoint"
    mandatory = False
    period_s = 10.0

    def __init__(
        self, target: Target, clock: Clock, rng: random.Random | None = None, before: "EndpointSource | None" = None
    ) -> None:
        self.target = target
        self.clock = clock
        self._rng = rng or random.Random()
        self.canary = Canary(target.server, self._rng, clock.now, lambda: target.args)
        self.budget: Budget = Budget(target.server.probe.chat_per_hour, None if before is None else before.budget)
        self._lanes = {kinds: _Lane(self, kinds) for kinds in (CHEAP, COSTLY)}
        if before is not None and _asks(before.canary.server) == _asks(target.server):
            self.canary.learned_model = before.canary.learned_model
            for kinds, lane in self._lanes.items():
                lane.go_on(before._lanes[kinds])
        self._emit: Emit | None = None

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Ask for ever."""
        self._emit = emit
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes.values():
                    group.create_task(lane.run(emit, beat))
        finally:
            self._emit = None

    async def probe_now(self, kind: str) -> Probe:
        """Ask at once, whatever the pace and the hold, and return what came; emit it too while the source runs.

        One that is in flight already is waited for instead of asking twice; otherwise it waits for its lane. So it takes at
        most as long as two probes of the lane. For `verify` and for evidence.
        """
        if kind not in CHEAP + COSTLY:
            raise ValueError(f"no such probe: {kind}")
        lane = self._lanes[CHEAP if kind in CHEAP else COSTLY]
        return await lane.now(kind, self._emit)

    def interval_s(self, kind: str) -> float:
        """The interval of a kind in good times."""
        probing = self.target.server.probe
        return {
            "health": probing.health_interval_s,
            "models": probing.models_interval_s,
            "ready": probing.ready_interval_s,
            "chat": probing.chat_interval_s,
            "prefix": probing.prefix_interval_s,
        }[kind]

    def wanted(self, kind: str) -> bool:
        """Whether the configuration asks for the kind at all."""
        probing = self.target.server.probe
        return {"chat": probing.chat, "prefix": probing.prefix}.get(kind, True)

    def first(self, kind: str) -> float:
        """The moment of the first turn, from now."""
        return self.clock.now() + FIRST_S[kind] * (1 + self._rng.random())

    def pace(self, kind: str) -> Pace:
        """A fresh pace. The hourly prefix canary waits for a quiet moment instead of hoping to hit one."""
        return Pace(self.interval_s(kind), self._rng, self.first(kind), patient=kind == "prefix")


def _asks(server: config.Server) -> tuple[object, ...]:
    """Who is asked, and what."""
    return server.base_url, server.api_key_file, server.ca_file, server.model, server.probe


class _Lane:
    """Some kinds of probe, one at a time."""

    def __init__(self, source: EndpointSource, kinds: tuple[str, ...]) -> None:
        self._of = source
        self._kinds = kinds
        self._lock = asyncio.Lock()
        self._flying: tuple[str, asyncio.Task[Probe]] | None = None
        self._paces: dict[str, Pace] = {}
        self._inv: str | None = None
        self._begun = False
        self._beat: Beat = _quiet

    async def run(self, emit: Emit, beat: Beat) -> None:
        self._beat = beat
        while True:
            beat()
            if not self._begun or self._of.target.inv != self._inv:
                self._begin_life()
            kind = self._next_due()
            if kind is None:
                await self._of.target.change(self._rest_s())
            elif why := self._why_not(kind):
                self._skip(kind, why, emit)
            else:
                async with self._lock:
                    probe = await self._ask(kind)
                if probe is not None:
                    emit(probe)

    def go_on(self, before: "_Lane") -> None:
        """Keep the pace of another one, which has ended."""
        self._inv, self._paces, self._begun = before._inv, before._paces, before._begun

    async def now(self, kind: str, emit: Emit | None) -> Probe:
        if self._flying is not None and self._flying[0] == kind:
            task = self._flying[1]
            await asyncio.wait({task})
            # It was emitted, if at all, by whoever began it.
            return _broken_off(self._of, kind) if task.cancelled() else task.result()
        async with self._lock:
            probe = await self._ask(kind)
        if probe is None:
            return _broken_off(self._of, kind)
        if emit is not None:
            emit(probe)
        return probe

    def _begin_life(self) -> None:
        """A new life of the server: nothing that was learnt of the old one holds."""
        self._inv, self._begun = self._of.target.inv, True
        if "models" in self._kinds:
            self._of.canary.learned_model = None
        self._paces = {kind: self._of.pace(kind) for kind in self._kinds if self._of.wanted(kind)}

    def _next_due(self) -> str | None:
        """The kind whose turn it is, the longest overdue first."""
        now = self._of.clock.now()
        due = self._due()
        late = [kind for kind, moment in due.items() if moment <= now]
        return min(late, key=lambda kind: due[kind]) if late else None

    def _due(self) -> dict[str, float]:
        """When each kind is due, as things are."""
        ample = self._of.budget.ample(self._of.clock.now())
        return {
            kind: pace.due(closer=self._closer(kind) and (ample or kind not in COSTLY), hold=self._hold(kind))
            for kind, pace in self._paces.items()
        }

    def _rest_s(self) -> float:
        """How long nothing is due, if the target stays as it is."""
        return max(0.0, min((*self._due().values(), self._of.clock.now() + REST_S)) - self._of.clock.now())

    def _closer(self, kind: str) -> bool:
        """A closer look is one at health: the prefix canary adds nothing to it, and costs most."""
        return self._of.target.closer and kind != "prefix"

    def _hold(self, kind: str) -> str | None:
        hold = self._of.target.hold
        if kind == "prefix" and hold is None and not self._of.target.alone:
            return "traffic"
        if kind == "chat" and hold == "traffic" and not self._of.target.crowded:
            hold = None if self._paces[kind].long_ago(self._of.clock.now()) else hold
        return hold if hold is not None and kind in HELD.get(hold, COSTLY) else None

    def _why_not(self, kind: str) -> str | None:
        now = self._of.clock.now()
        if hold := self._hold(kind):
            return hold
        if self._paces[kind].backing_off(now, closer=self._closer(kind)):
            return "backoff"
        if kind in COSTLY and not self._of.budget.left(now):
            return "budget"
        return None

    def _skip(self, kind: str, why: str, emit: Emit) -> None:
        now = self._of.clock.now()
        self._paces[kind].skipped(now, why)
        emit(Probe(t=now, inv=self._inv, probe=kind, outcome="skipped", why=why))

    async def _ask(self, kind: str) -> Probe | None:
        """One probe; None if the server's life ended meanwhile, so that the answer means nothing."""
        target, clock = self._of.target, self._of.clock
        inv, known, begun = target.inv, target.known, clock.now()
        if kind in COSTLY:
            self._of.budget.spend(begun)
        task = asyncio.create_task(self._of.canary.ask(kind, inv))
        self._flying = kind, task
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_S)
                self._beat()
                if target.known and not known:
                    known = True
                    if target.since is None or target.since <= begun:
                        inv = target.inv  # the life that was asked has got its name, no more
                if target.inv != inv and not task.done():
                    return None
        finally:
            self._flying = None
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        probe = msgspec.structs.replace(task.result(), inv=inv)
        if target.inv == inv and kind in self._paces:
            self._learn(kind, probe, begun)
        return probe

    def _learn(self, kind: str, probe: Probe, begun: float) -> None:
        if kind == "ready" and probe.status in (404, 405):
            # Before 0.5.20 there is no /ready; it cannot appear in this life.
            del self._paces[kind]
            return
        # A refused connection costs the server nothing, and while it starts failures are the normal thing.
        harmless = probe.outcome in ("ok", "refused", "skipped") or self._of.target.hold == "starting"
        self._paces[kind].asked(begun, self._of.clock.now(), failed=not harmless)


def _broken_off(source: EndpointSource, kind: str) -> Probe:
    """What a caller gets who asked for a probe that came to nothing; it is not emitted."""
    return Probe(
        t=source.clock.now(),
        inv=source.target.inv,
        probe=kind,
        outcome="skipped",
        why="starting",
        detail="the probe was broken off, since the server was restarted meanwhile or the source ended",
    )


def _quiet() -> None:
    """The beat of a lane that is asked while the source does not run."""
