"""What a watched server's lives teach: starts by phase, and the baseline, from verified lives only."""

from pathlib import Path
from typing import Any

import pytest

from tests.judge.reference import ARGS, GB, INV, POOL, STAMP
from watchdog import config
from watchdog import observation as o
from watchdog.baseline import BaselineFile
from watchdog.clock import FakeClock
from watchdog.judge.verdict import Status
from watchdog.learning import AFTER_S, Learner, RefusedError
from watchdog.watch import Watch

SERVER = config.Server(name="kimi", unit="sglang-kimi.service")


class World:
    """A watched server with its learner, on a clock that is moved by hand."""

    def __init__(self, home: Path, **args: Any) -> None:
        self.clock = FakeClock()
        self.watch = Watch(SERVER, config.Config(servers=[SERVER]), home, self.clock, lambda *_: None)
        self.learner = Learner(self.watch, "gpu-1")
        self.args = {**ARGS, "tp_size": 1, **args}
        self.held = 0

    @property
    def t(self) -> float:
        return self.clock.now()

    def log(self, message: str, after: float = 1.0) -> None:
        self.clock.advance(after)
        self.watch.take(o.Log(t=self.t, inv=INV, message=f"{STAMP}] {message}", pid=7))

    def look(self) -> None:
        self.clock.advance(10.0)
        procs = [o.Proc(pid=9, name="sglang::scheduler", state="S", rss=4 * GB + self.held)]
        self.watch.take(o.Procs(t=self.t, inv=INV, procs=procs))
        self.watch.take(o.Host(t=self.t, mem_total=500 * GB, mem_available=400 * GB - self.held))

    def start(self, inv: str = INV) -> None:
        self.watch.take(o.Unit(t=self.t, inv=inv, active_state="active", sub_state="running", main_pid=1, since=self.t))
        self.log("server_args=ServerArgs(model_path='/models/Kimi-K2.5')")
        self.watch.take(o.Server(t=self.t, inv=inv, version="0.5.9", args=self.args))
        self.log("Load weight begin. avail mem=93.61 GB", 10.0)
        self.log("KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB", 200.0)
        self.look()
        self.log("Allocating 44.77 GB host memory for hierarchical KV cache.")
        self.held = POOL
        self.look()
        self.log("The server is fired up and ready to roll!", 30.0)

    def serve(self, seconds: float = AFTER_S + 60.0, *, answered: bool = True) -> None:
        until = self.t + seconds
        while self.t < until:
            self.look()
            if answered:
                answer = o.Answer(text="The capital of France is Paris.", finish_reason="stop", completion_tokens=8)
                probe = o.Probe(t=self.t, inv=INV, probe="chat", outcome="ok", status=200, ttft_s=0.1, total_s=0.3, answer=answer)
                self.watch.take(probe)
            self.watch.tick()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_the_first_verified_life_becomes_the_baseline(world: World, tmp_path: Path) -> None:
    world.start()
    await world.learner.keep()
    world.serve()
    await world.learner.keep()
    kept, trouble = BaselineFile(tmp_path / "baseline.json").load()
    assert trouble is None and kept.server == "kimi"
    (b,) = kept.baselines
    assert (b.made_by, b.announced, b.seen_as, b.identity.host) == ("first verified life", POOL, "ranks", "gpu-1")
    assert b.start_s is not None and b.phases["weights"] == pytest.approx(200.0)
    assert world.watch.engine.facts.baseline == b


async def test_a_life_that_answered_nothing_is_no_model(world: World, tmp_path: Path) -> None:
    world.start()
    world.serve(answered=False)
    await world.learner.keep()
    assert not (tmp_path / "baseline.json").exists()
    with pytest.raises(RefusedError, match="not verified"):
        world.learner.accept("learn", changed_too=False)


async def test_a_life_in_doubt_is_no_model(world: World, tmp_path: Path) -> None:
    """It answered once, and then a probe in vain: whether it hangs is not known yet."""
    world.start()
    world.serve()
    world.clock.advance(25.0)
    world.watch.take(o.Probe(t=world.t, inv=INV, probe="health", outcome="timeout", total_s=20.0, limit_s=20.0))
    world.watch.tick()
    assert world.watch.engine.conditions["SchedulerProgressing"].status is Status.UNKNOWN
    await world.learner.keep()
    assert not (tmp_path / "baseline.json").exists()
    with pytest.raises(RefusedError, match="not verified"):
        world.learner.accept("learn", changed_too=False)


async def test_a_life_without_its_pool_is_no_model(world: World, tmp_path: Path) -> None:
    world.start()
    world.held = 0
    world.serve()
    await world.learner.keep()
    assert not (tmp_path / "baseline.json").exists()


async def test_a_life_whose_memory_was_not_looked_at_is_no_model(world: World, tmp_path: Path) -> None:
    """As it is for a moment when a watchdog begins anew beside a server that it knows to be verified."""
    world.start()
    world.look = lambda: world.clock.advance(10.0)  # type: ignore[method-assign]
    world.serve()
    await world.learner.keep()
    assert not (tmp_path / "baseline.json").exists()
    with pytest.raises(RefusedError, match="no baseline is made: Memory has not been read since the server was ready"):
        world.learner.accept("learn", changed_too=False)


async def test_a_changed_deployment_must_be_accepted(world: World, tmp_path: Path) -> None:
    world.start()
    world.serve()
    await world.learner.keep()
    other = World(tmp_path, hicache_ratio=5.0)
    other.start()
    other.serve()
    await other.learner.keep()
    assert other.watch.engine.conditions["AsBaseline"].reason == "DeploymentChanged"
    with pytest.raises(RefusedError, match="hicache_ratio"):
        other.learner.accept("learn", changed_too=False)
    other.learner.accept("accept", changed_too=True)
    await other.learner.keep()
    kept, _ = BaselineFile(tmp_path / "baseline.json").load()
    assert [b.identity.arguments["hicache_ratio"] for b in kept.baselines] == [5.0, 4.0]
    other.serve(60.0)
    assert other.watch.engine.conditions["AsBaseline"].reason == "AsBaseline"


def test_starts_are_learned_and_give_the_time_to_go(world: World) -> None:
    world.start()
    world.learner.look()
    learned = world.watch.engine.facts.learned
    assert learned.start_s == pytest.approx(world.t, abs=1.0)
    assert list(learned.phases) == ["KV cache", "host pool", "launch", "weights"]
    world.learner.look()
    assert len(learned.starts) == 1
    world.watch.take(o.Unit(t=world.t, inv="b" * 32, active_state="active", sub_state="running", main_pid=2, since=world.t))
    eta = world.watch.engine.facts.eta_s(world.t)
    assert eta == pytest.approx(learned.start_s, abs=1.0)
    assert world.watch.engine.facts.learned_step_s("weights") == pytest.approx(200.0)
    assert world.watch.snapshot_state().learned.start_s == learned.start_s


async def test_a_damaged_file_is_told_and_a_full_disk_tried_again(tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_bytes(b"{")
    world = World(tmp_path)
    world.start()
    world.serve()
    (tmp_path / "baseline.json.new").mkdir()  # cannot be written
    await world.learner.keep()
    assert not (tmp_path / "baseline.json").exists()
    (tmp_path / "baseline.json.new").rmdir()
    await world.learner.keep()
    assert len(BaselineFile(tmp_path / "baseline.json").load()[0].baselines) == 1


def test_both_sides_are_described(world: World) -> None:
    world.start()
    assert world.learner.describe()["baseline"] is None
    world.serve()
    world.learner.look()
    said = world.learner.describe()
    assert {
        "item": "host pool announced",
        "baseline": "44.77 GB (41.7 GiB)",
        "now": "44.77 GB (41.7 GiB)",
        "differs": False,
    } in said["compared"]
