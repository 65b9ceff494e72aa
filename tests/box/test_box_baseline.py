"""The baseline shown for real: pools of real memory, seen, shrunk and missing; a real leak; the file and its commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog
from tests.judge.reference import INV, Deployment
from tests.standin.server import StandIn
from watchdog import observation as o
from watchdog.standin import faults

MIB = 2**20
POOL = 200
LIMIT = 60.0
ARGUMENTS = f"--tp-size 2 --enable-hierarchical-cache --hicache-ratio 4 --host-pool-mib {POOL} --traffic 0.5"

ANON = Server("anon", 32001, seconds=8, version="0.5.9", arguments=ARGUMENTS)
SHARED = Server("shared", 32002, seconds=8, version="0.5.23", arguments=ARGUMENTS)
MEMFD = Server("memfd", 32003, seconds=8, version="0.5.23", arguments=f"{ARGUMENTS} --host-pool-kind memfd")
NONE = Server("none", 32004, seconds=8, version="0.5.9", arguments=f"{ARGUMENTS} --host-pool-kind none")
SERVERS = [ANON, SHARED, MEMFD, NONE]


@pytest.fixture(scope="module")
def dog(box: Box) -> Iterator[Watchdog]:
    """All servers under one watchdog, from before their start."""
    dog = Watchdog(box, "pools", SERVERS)
    dog.write(dog.config.replace("processes_interval_s", "memory_interval_s = 2\nprocesses_interval_s"))
    for server in SERVERS:
        server.install(box)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", dog.unit)
    box.run("systemctl", "start", *(s.unit for s in SERVERS))
    yield dog
    box.run("systemctl", "stop", dog.unit, *(s.unit for s in SERVERS), check=False)


def footprint(dog: Watchdog, server: Server, reason: str) -> str:
    """Wait until FootprintAsAnnounced has this reason, and return its message."""

    def found() -> str:
        conditions = dog.view(server.name).get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "FootprintAsAnnounced" and c["reason"] == reason), "")

    return wait_for(found, LIMIT, f"{server.name}: {reason}\n{dog.view(server.name).get('conditions')}\n{dog.told()}")


@pytest.mark.parametrize("server", [ANON, SHARED, MEMFD], ids=lambda s: s.name)
def test_a_pool_of_real_memory_is_seen(dog: Watchdog, server: Server) -> None:
    said = footprint(dog, server, "AsAnnounced")
    assert "0.42 GB (0.4 GiB) announced by 2 ranks" in said
    memory = dog.view(server.name)["memory"]
    assert memory["announced"] == 420_000_000
    assert memory["seen"] == pytest.approx(2 * POOL * MIB, rel=0.3)


def test_a_pool_that_is_announced_and_not_there(dog: Watchdog) -> None:
    said = footprint(dog, NONE, "FootprintTooSmall")
    assert "announced by 2 ranks" in said and "resident memory" in said


@pytest.fixture(scope="module")
def shrinking(dog: Watchdog, box: Box) -> None:
    """Half of two pools is given back, once they were seen whole."""
    for server in (SHARED, MEMFD):
        footprint(dog, server, "AsAnnounced")
        server.fault(box, "shrink-pool", "fraction=0.5")


@pytest.mark.usefixtures("shrinking")
def test_a_real_leak_is_told_with_its_rank(tmp_path: Path) -> None:
    """The stand-in's memory really grows; each look at it is told as a minute, and the level before as an hour."""
    with StandIn(tmp_path, "--tp-size", "2") as server:
        ranks = _ranks(server)
        d = Deployment(ranks=2, per_rank=0, own=0, host=16 * 10**9, args={"enable_hierarchical_cache": False}, tick_s=60.0)
        d.unit()
        d.server()
        d.ready()
        for _ in range(30):
            _look(d, ranks)
        assert d.verdict("MemoryHolds").reason == "Level"
        faults.write(server.faults, "leak", {"mb": 250, "rank": 1})
        for _ in range(30):
            before = _held(ranks)
            wait_for(lambda more=before + 80 * MIB: _held(ranks) >= more, LIMIT, "the rank has grown")
            _look(d, ranks)
        v = d.verdict("MemoryHolds")
        assert v.reason == "Leak", v.message
        assert "scheduler_TP1" in v.message and "MemoryLeak" in d.reasons("plan_restart")


def _ranks(server: StandIn) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children(recursive=True)
    named = {" ".join(p.cmdline()).strip(): p for p in children}
    return [next(p for name, p in named.items() if name.startswith(f"sglang::scheduler_TP{r}")) for r in range(2)]


def _held(ranks: list[psutil.Process]) -> int:
    return sum(p.memory_info().rss for p in ranks)


def _look(d: Deployment, ranks: list[psutil.Process]) -> None:
    d.t += 60.0
    sizes = [p.memory_info().rss for p in ranks]
    procs = [o.Proc(pid=p.pid, name=f"sglang::scheduler_TP{r}", state="S", rss=sizes[r]) for r, p in enumerate(ranks)]
    d.feed(o.Procs(t=d.t, inv=INV, procs=procs))
    d.feed(o.Host(t=d.t, mem_total=d.host, mem_available=d.host - sum(sizes)))


@pytest.mark.usefixtures("shrinking")
@pytest.mark.parametrize("server", [SHARED, MEMFD], ids=lambda s: s.name)
def test_pools_that_shrink(dog: Watchdog, server: Server) -> None:
    said = footprint(dog, server, "PoolShrank")
    assert "has shrunk: the ranks' resident memory fell by 0." in said


def test_the_baseline_is_made_kept_and_compared(dog: Watchdog, box: Box) -> None:
    wait_for(lambda: dog.view("anon").get("verified"), LIMIT, f"anon is verified\n{dog.told()}")
    config = ("--config", f"/etc/wd/{dog.name}.toml")
    made = wait_for(lambda: _learned(box, config), LIMIT, "the server has told its version and arguments")
    assert "0.42 GB (0.4 GiB)" in made and "SGLang 0.5.9" in made and "hicache_ratio=4" in made
    box.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", dog.unit)
    wait_for(lambda: dog.view("anon"), LIMIT, "the watchdog is up again")
    kept = json.loads(box.run("cat", f"/var/lib/{dog.name}/anon/baseline.json").stdout)
    assert kept["baselines"][0]["announced"] == 420_000_000 and kept["baselines"][0]["phases"]
    shown = box.run(COMMAND, "baseline", "show", "--server", "anon", *config).stdout
    assert "host pool announced              0.42 GB (0.4 GiB)" in shown
    wait_for(
        lambda: box.run(COMMAND, "baseline", "diff", "--server", "anon", *config, check=False).returncode == 0,
        LIMIT,
        "no difference",
    )
    refused = box.run(COMMAND, "baseline", "learn", "--server", "none", *config, check=False)
    assert refused.returncode == 2 and "no baseline is made" in refused.stderr


def _learned(box: Box, config: tuple[str, str]) -> str:
    done = box.run(COMMAND, "baseline", "learn", "--server", "anon", *config, check=False)
    return done.stdout if done.returncode == 0 else ""
