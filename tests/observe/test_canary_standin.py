"""The canaries against the stand-in server: every profile's model, and a host pool that changes answers."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.standin.server import StandIn
from watchdog import config
from watchdog.clock import BootClock
from watchdog.config import profile
from watchdog.judge import load_back, shape, text
from watchdog.judge.facts import Facts
from watchdog.judge.text import Quality
from watchdog.judge.verdict import Status
from watchdog.observation import Metrics, Probe, Unit
from watchdog.observe.canary import Canary
from watchdog.sglang import metrics

HOUR = 3600.0
SERVERS: dict[str, tuple[str, ...]] = {
    "kimi-k2": ("/models/Kimi-K2.5", "kimi_k2", "kimi_k2"),
    "kimi-k2-instruct": ("/models/Kimi-K2-Instruct", "", "kimi_k2"),
    "qwen3": ("/models/Qwen3-8B", "qwen3", "qwen25"),
    "deepseek-v3": ("/models/DeepSeek-V3.1", "deepseek-v3", "deepseekv31"),
    "deepseek-r1": ("/models/DeepSeek-R1", "deepseek-r1", ""),
    "glm": ("/models/GLM-4.6", "glm45", "glm45"),
    "gpt-oss": ("/models/gpt-oss-120b", "gpt-oss", "gpt-oss"),
    profile.GENERIC: ("/models/Llama-3.1-8B-Instruct", "", "llama3"),
}
"""Profile → model path, reasoning parser and tool-call parser of a server that it is for."""


def canary(server: StandIn, args: dict[str, Any], **probe: Any) -> Canary:
    settings = {"name": "a", "unit": "a.service", "base_url": f"http://127.0.0.1:{server.port}", "probe": probe}
    [configured] = config.parse({"servers": [settings]}).servers
    return Canary(configured, random.Random(1), BootClock().now, lambda: args)


def arguments_of(name: str) -> dict[str, str]:
    given = zip(("model_path", "reasoning_parser", "tool_call_parser"), SERVERS[name], strict=True)
    return {key: value for key, value in given if value}


@pytest.mark.parametrize("name", profile.names())
async def test_a_profile_that_is_found_asks_well(name: str, tmp_path: Path) -> None:
    args = arguments_of(name)
    words = [word for key, value in args.items() for word in (f"--{key.replace('_', '-')}", value)]
    with StandIn(tmp_path, *words) as server:
        asker = canary(server, args)
        found = asker.profile()
        assert found.name == name and profile.misfit(found, args) is None
        facts = Facts(mid_life=True)
        for _ in range(3):
            probe = await asker.ask("chat", None)
            assert probe.outcome == "ok" and probe.answer is not None
            assert text.grade(probe.answer, probe.expects).quality is Quality.GOOD
            facts.see(probe)
        assert shape.judge(facts, 0.0).status is Status.TRUE
        thinks = bool(args.get("reasoning_parser")) and found.profile.thinks != "on request"
        assert (probe.answer.reasoning is not None) == thinks
        prefix = await asker.ask("prefix", None)
        assert prefix.outcome == "ok" and prefix.answer is not None
        # Where reasoning can be switched off, what is compared is the answer itself.
        assert (prefix.answer.reasoning is None) == (not thinks or bool(found.profile.brief_kwargs))


async def test_the_example_of_kimi_works_as_it_is_shipped(tmp_path: Path) -> None:
    [shipped] = config.load(Path(__file__).parents[2] / "config/kimi-k2.5-8gpu.toml").servers
    args = arguments_of("kimi-k2")
    with StandIn(tmp_path, "--model-path", args["model_path"], "--reasoning-parser", args["reasoning_parser"]) as server:
        here = msgspec.structs.replace(shipped, base_url=f"http://127.0.0.1:{server.port}")
        asker = Canary(here, random.Random(1), BootClock().now, lambda: args)
        probe = await asker.ask("chat", None)
    assert asker.profile().name == "kimi-k2" and probe.reasons is True and probe.answer is not None
    assert probe.answer.reasoning and text.grade(probe.answer, probe.expects).quality is Quality.GOOD


@pytest.fixture(scope="module", params=["0.5.23", "0.5.9"])
def pooled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """A server with a host pool: one whose answers tell where cached tokens lay, one of which only counters do."""
    words = ("--enable-hierarchical-cache", "--host-pool-mib", "8", "--model-path", "/models/Llama")
    with StandIn(tmp_path_factory.mktemp("pooled"), *words, version=request.param) as running:
        yield running


class Watched:
    """Facts that see the canaries of one server, an hour apart."""

    def __init__(self, server: StandIn) -> None:
        self.server = server
        self.asker = canary(server, {})
        self.facts = Facts(mid_life=True)
        self.facts.see(Unit(t=0.0, inv="a", load_state="loaded", active_state="active", sub_state="running", since=-7200.0))
        self.t = 60.0

    def scrape(self, t: float) -> None:
        values = metrics.parse(self.server.get("/metrics").body.decode()).values
        self.facts.see(Metrics(t=t, inv="a", ok=True, values=values))

    async def ask(self) -> Probe:
        self.scrape(self.t - 20.0)
        probe = await self.asker.ask("prefix", "a")
        assert probe.outcome == "ok"
        self.facts.see(msgspec.structs.replace(probe, t=self.t))
        self.scrape(self.t + 5.0)
        self.t += HOUR
        return probe

    def verdict(self) -> tuple[Status, str]:
        v = load_back.judge(self.facts, self.t)
        return v.status, v.reason


async def test_a_damaged_host_pool_is_found(pooled: StandIn) -> None:
    pooled.clear()
    assert pooled.request("POST", "/flush_cache").status == 200
    watched = Watched(pooled)
    first = await watched.ask()
    assert first.earlier is not None and first.earlier.cached_host is None
    for _ in range(3):
        await watched.ask()
    assert watched.verdict() == (Status.UNKNOWN, "NothingSeen")
    for _ in range(3):
        pooled.order("evict")
        loaded = await watched.ask()
        told = loaded.earlier is not None and loaded.earlier.cached_host
        assert bool(told) == (loaded.fresh is not None) == (pooled.get("/server_info").json["version"] == "0.5.23")
    assert watched.verdict() == (Status.TRUE, "SameAnswers")
    pooled.order("damaged-host-pool")
    for _ in range(6):
        pooled.order("evict")
        await watched.ask()
    assert watched.verdict() == (Status.FALSE, "LoadBackChangesAnswers")
