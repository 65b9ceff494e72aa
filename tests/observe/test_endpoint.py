import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.observe.talker import Script, Talker, reply, says, talking
from tests.observe.test_canary import PARIS
from watchdog.clock import BootClock, FakeClock
from watchdog.observation import Observation, Probe
from watchdog.observe import endpoint, pace
from watchdog.observe.endpoint import EndpointSource
from watchdog.observe.source import Source, Target

MODELS = b'{"data": [{"id": "kimi-k2.5"}]}'

FAST = {
    "health_interval_s": 0.1,
    "models_interval_s": 0.1,
    "ready_interval_s": 0.1,
    "chat_interval_s": 0.1,
    "chat_per_hour": 1000,
    "health_limit_s": 5,
    "chat_limit_s": 5,
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LOOK_S", 0.02)
    monkeypatch.setattr(endpoint, "FIRST_S", {"health": 0.0, "models": 0.0, "ready": 0.0, "chat": 0.05, "prefix": 0.05})


def path(request: bytes) -> str:
    return request.split(b" ", 2)[1].decode()


def serving(**answers: Script) -> Script:
    """A well server, but for what is given: health, ready, models, chat."""

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        good = {
            "/health": ("health", says(reply(200))),
            "/ready": ("ready", says(reply(200))),
            "/v1/models": ("models", says(reply(200, MODELS))),
            "/v1/chat/completions": ("chat", says(PARIS)),
        }
        name, usual = good[path(request)]
        await answers.get(name, usual)(request, writer)

    return script


class Watched:
    """A source that runs, what it emitted, and its target."""

    def __init__(self, talker: Talker, probe: dict[str, object], model: str = "") -> None:
        self.target = Target(talker.server(model=model, probe={**FAST, **probe}))
        self.target.inv = "life1"
        self.source = EndpointSource(self.target, BootClock(), random.Random(1))
        self.seen: list[Probe] = []
        self.beats = 0

    def emit(self, seen: Observation) -> None:
        assert isinstance(seen, Probe)
        self.seen.append(seen)

    def beat(self) -> None:
        self.beats += 1

    def of(self, kind: str, outcome: str = "") -> list[Probe]:
        return [p for p in self.seen if p.probe == kind and (not outcome or p.outcome == outcome)]

    async def until(self, what: Callable[[], object], limit_s: float = 4.0) -> None:
        async with asyncio.timeout(limit_s):
            while not what():  # noqa: ASYNC110 - polls the test's own state
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(talker: Talker, hold: str | None = None, model: str = "", **probe: object) -> AsyncIterator[Watched]:
    watched = Watched(talker, probe, model)
    watched.target.hold = hold
    task = asyncio.create_task(watched.source.run(watched.emit, watched.beat))
    try:
        yield watched
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_it_is_a_source_and_asks_each_kind_again_and_again() -> None:
    async with talking(serving()) as talker, watching(talker) as w:
        source: Source = w.source
        assert source.name == "endpoint"
        await w.until(lambda: all(len(w.of(kind, "ok")) >= 2 for kind in ("health", "ready", "models", "chat")))
        assert w.of("prefix") == [], "off by default"
    assert {p.inv for p in w.seen} == {"life1"} and w.beats > 5
    chat = w.of("chat")[-1]
    assert chat.answer is not None and chat.answer.text == "Paris"
    assert any(b'"model": "kimi-k2.5"' in r for r in talker.requests), "the name was learnt"


async def test_health_never_overlaps_and_a_slow_canary_does_not_silence_the_others() -> None:
    now: dict[str, int] = {}
    most: dict[str, int] = {}

    async def counting(request: bytes, writer: asyncio.StreamWriter) -> None:
        lane = "canary" if "chat" in path(request) else "cheap"
        now[lane] = now.get(lane, 0) + 1
        most[lane] = max(most.get(lane, 0), now[lane])
        await asyncio.sleep(60 if lane == "canary" else 0.03)
        # Before the answer, since the next request may come before this task goes on.
        now[lane] -= 1
        await serving()(request, writer)

    async with talking(counting) as talker, watching(talker, model="kimi-k2.5") as w:
        await w.until(lambda: len(w.of("health", "ok")) >= 3)
        more = [asyncio.create_task(w.source.probe_now(kind)) for kind in 3 * ("health", "models")]
        await w.until(lambda: len(w.of("health", "ok")) >= 6)
        for probe in await asyncio.gather(*more):
            assert probe.outcome == "ok"
        assert w.of("chat") == []
    assert most == {"cheap": 1, "canary": 1}


async def test_while_starting_only_cheap_probes_are_sent_and_then_the_canary_at_once() -> None:
    async with talking(serving()) as talker, watching(talker, hold="starting", chat_interval_s=3600) as w:
        await w.until(lambda: w.of("chat") and len(w.of("health", "ok")) >= 2 and len(w.of("models", "ok")) >= 2)
        assert [(p.outcome, p.why) for p in w.of("chat")] == [("skipped", "starting")]
        w.target.hold = None
        w.target.tell()
        await w.until(lambda: w.of("chat", "ok"), limit_s=1)
    assert [p.outcome for p in w.of("chat")] == ["skipped", "ok"]


async def test_in_traffic_the_canary_is_skipped_but_not_health() -> None:
    async with talking(serving()) as talker, watching(talker, hold="traffic") as w:
        await w.until(lambda: len(w.of("chat", "skipped")) >= 2 and len(w.of("health", "ok")) >= 2)
    assert {p.why for p in w.of("chat")} == {"traffic"} and not w.of("chat", "ok")


async def test_in_traffic_a_canary_is_rare_and_stands_behind_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """That requests end does not say what they are told."""
    monkeypatch.setattr(pace, "RARELY_S", 0.3)
    async with talking(serving()) as talker, watching(talker, hold="traffic") as w:
        w.target.crowded = True
        await w.until(lambda: len(w.of("chat", "skipped")) >= 5)
        assert not w.of("chat", "ok")
        w.target.crowded = False
        w.target.tell()
        await w.until(lambda: len(w.of("chat", "ok")) >= 2)
        asked = [p.t for p in w.of("chat", "ok")]
        assert asked[1] - asked[0] >= 0.3 and [p for p in w.of("chat", "skipped") if asked[0] < p.t < asked[1]]


async def test_a_pause_leaves_only_what_costs_nothing() -> None:
    async with talking(serving()) as talker, watching(talker, hold="paused") as w:
        await w.until(lambda: w.of("chat") and w.of("health") and len(w.of("models", "ok")) >= 2 and w.of("ready", "ok"))
    assert {p.why for p in w.of("chat") + w.of("health")} == {"paused"}
    assert not [r for r in talker.requests if path(r) in ("/health", "/v1/chat/completions")]


async def test_the_budget() -> None:
    async with talking(serving()) as talker, watching(talker, chat_per_hour=2) as w:
        await w.until(lambda: w.of("chat", "skipped"))
        assert [(p.outcome, p.why) for p in w.of("chat")[:3]] == [("ok", None), ("ok", None), ("skipped", "budget")]


async def test_backoff_after_failures() -> None:
    broken = serving(chat=says(reply(500)))
    async with talking(broken) as talker, watching(talker) as w:
        await w.until(lambda: w.of("chat", "skipped"))
        assert [p.outcome for p in w.of("chat")[:4]] == ["status"] * 3 + ["skipped"]
        assert w.of("chat")[3].why == "backoff"


async def test_no_backoff_from_a_port_that_is_not_open_yet() -> None:
    async with talking(serving()) as talker:
        pass
    async with watching(talker) as w:
        await w.until(lambda: len(w.of("health", "refused")) >= 5)
    assert not w.of("health", "skipped")


async def test_a_server_without_ready_is_asked_once_in_each_life() -> None:
    old = serving(ready=says(reply(404, b'{"detail":"Not Found"}')))
    async with talking(old) as talker, watching(talker) as w:
        await w.until(lambda: len(w.of("health")) >= 4)
        assert [p.status for p in w.of("ready")] == [404]
        w.target.inv = "life2"
        w.target.tell()
        await w.until(lambda: len(w.of("ready")) == 2)
    assert [p.inv for p in w.of("ready")] == ["life1", "life2"]


async def test_a_new_life_discards_what_is_in_flight() -> None:
    async with talking(serving(chat=says(hold=60), health=says(hold=60))) as talker, watching(talker) as w:
        await w.until(lambda: {path(r) for r in talker.requests} >= {"/health", "/v1/chat/completions"})
        before = len(talker.requests)
        waiting = asyncio.create_task(w.source.probe_now("chat"))
        await asyncio.sleep(0.05)
        assert not waiting.done() and len(talker.requests) == before, "one that is in flight is waited for"
        w.target.inv = "life2"
        w.target.tell()
        await w.until(lambda: sum(path(r) == "/health" for r in talker.requests) == 2, limit_s=1)
        assert (await waiting).outcome == "skipped"
        assert w.of("chat") == w.of("health") == [], "nothing of the old life was told"


@pytest.mark.parametrize(("began", "outcome"), [(-60.0, "ok"), (60.0, "skipped")])
async def test_what_was_asked_before_the_unit_was_looked_at(began: float, outcome: str) -> None:
    """In the daemon's first second the life has no name yet. To learn it is no restart; only a later start is one."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def waits(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await go.wait()
        await says(reply(200))(request, writer)

    async with talking(serving(health=waits)) as talker:
        target = Target(talker.server(probe={**FAST}))
        clock = BootClock()
        probing = asyncio.create_task(EndpointSource(target, clock, random.Random(1)).probe_now("health"))
        await asked.wait()
        target.inv, target.active, target.known, target.since = "life1", True, True, clock.now() + began
        target.tell()
        await asyncio.wait({probing}, timeout=5 * endpoint.LOOK_S)  # it looks meanwhile
        go.set()
        probe = await probing
    assert (probe.outcome, probe.inv) == (outcome, "life1")


async def test_probe_now_without_a_running_source() -> None:
    async with talking(serving()) as talker:
        w = Watched(talker, {})
        w.target.hold = "starting"
        w.target.tell()
        probe = await w.source.probe_now("chat")
        assert probe.outcome == "ok" and probe.inv == "life1"
        with pytest.raises(ValueError, match="no such probe: nonsense"):
            await w.source.probe_now("nonsense")
    assert w.seen == []


async def test_probe_now_is_told_to_the_daemon_too_and_spends_the_budget() -> None:
    async with talking(serving()) as talker, watching(talker, hold="traffic", chat_per_hour=1) as w:
        await w.until(lambda: w.of("chat", "skipped"))
        probe = await w.source.probe_now("chat")
        assert probe.outcome == "ok" and w.of("chat", "ok") == [probe]
        w.target.hold = None
        w.target.tell()
        await w.until(lambda: w.of("chat")[-1].why == "budget")


async def test_a_closer_look_asks_more_often() -> None:
    slow = {f"{kind}_interval_s": 3 for kind in ("health", "models", "ready", "chat")}
    async with talking(serving()) as talker, watching(talker, **slow) as w:
        await w.until(lambda: w.of("health"))
        w.target.closer = True
        w.target.tell()
        began = asyncio.get_running_loop().time()
        await w.until(lambda: len(w.of("health")) >= 3)
        assert asyncio.get_running_loop().time() - began < 2.8


async def test_without_chat_no_canary() -> None:
    async with talking(serving()) as talker, watching(talker, chat=False) as w:
        await w.until(lambda: len(w.of("health")) >= 3)
    assert w.of("chat") == []


async def test_the_prefix_canary_when_it_is_wanted() -> None:
    async with talking(serving()) as talker, watching(talker, prefix=True, chat=False) as w:
        await w.until(lambda: w.of("prefix", "ok"))
    assert "first ask" in (w.of("prefix")[0].detail or "")


async def test_the_prefix_canary_waits_until_it_is_alone() -> None:
    async with talking(serving()) as talker, watching(talker, prefix=True, chat=False, prefix_interval_s=3600) as w:
        w.target.alone = False
        w.target.tell()
        await w.until(lambda: w.of("prefix", "skipped"))
        assert w.of("prefix")[-1].why == "traffic"
        w.target.alone = True
        w.target.tell()
        await w.until(lambda: w.of("prefix", "ok"))
        w.target.closer = True
        w.target.tell()
        await w.until(lambda: len(w.of("health")) >= 4)
    assert len(w.of("prefix")) == 2, "hourly, however close the daemon looks"


async def test_nothing_is_left_open_when_it_is_cancelled() -> None:
    async with talking(serving(health=says(hold=60), chat=says(hold=60))) as talker:
        async with watching(talker) as w:
            await w.until(lambda: talker.open == 2)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [t for t in others if "canary" in repr(t).lower() and "talker" not in repr(t)]


class Reloaded:
    """One source after the other for one server, on a clock that stands still: nothing is due a second time."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self.clock = FakeClock()
        self.target = Target(talker.server(probe={**FAST, "chat_per_hour": 2}))
        self.target.inv = "life1"
        self.source: EndpointSource | None = None

    async def asked(self) -> list[str]:
        """What is asked by the next source, until it has nothing left to ask."""
        self.source = EndpointSource(self.target, self.clock, random.Random(1), before=self.source)
        seen: list[str] = []
        beats = 0

        def beat() -> None:
            nonlocal beats
            beats += 1

        def emit(x: Observation) -> None:
            nonlocal beats
            assert isinstance(x, Probe)
            seen.append(f"{x.probe} {x.why or x.outcome}")
            beats = 0

        task = asyncio.create_task(self.source.run(emit, beat))
        async with asyncio.timeout(10):
            while beats < 6 or any(lane._flying for lane in self.source._lanes.values()):  # noqa: ASYNC110
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return sorted(seen)


async def test_a_reload_asks_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_S", dict.fromkeys(endpoint.FIRST_S, 0.0))
    async with talking(serving()) as talker:
        one = Reloaded(talker)
        everything = ["chat ok", "health ok", "models ok", "ready ok"]
        assert await one.asked() == everything
        assert await one.asked() == [], "the paces go on"
        assert one.source is not None and one.source.canary.learned_model == "kimi-k2.5"
        one.target.server = msgspec.structs.replace(one.target.server, model="kimi-k2.5")
        assert await one.asked() == everything, "something else is asked"
        one.target.inv = "life2"
        assert await one.asked() == ["chat budget", *everything[1:]], "a new life, and still the same hour"
