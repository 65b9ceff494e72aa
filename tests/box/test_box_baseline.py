"""The baseline shown for real: pools of real memory, seen, shrunk and missing; a real leak; the file and its commands."""

import json
import re
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
    box.run("systemctl", "reload", dog.unit)
    dog.until(LIMIT, event="reloaded")
    for server in (SHARED, MEMFD):
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
        # From the beginning, so that a look which comes late on a busy machine bends no line.
        before = _held(ranks)
        for n in range(1, 31):
            wait_for(lambda more=before + n * 80 * MIB: _held(ranks) >= more, LIMIT, "the rank has grown")
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
    assert "0.42 GB (0.4 GiB) announced by 2 ranks" in said, "the watchdog was reloaded: no line counts twice"


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


# ---- the deep check, without a daemon

DEEP = Server(
    "deep",
    32007,
    version="0.5.23",
    arguments="--enable-hierarchical-cache --hicache-ratio 4 --host-pool-mib 8 --kv-tokens 9000 --speculative-algorithm EAGLE3",
)


@pytest.fixture(scope="module")
def deep(box: Box) -> Iterator[tuple[str, str]]:
    """A server that waits to be checked, and the configuration that names it."""
    dog = Watchdog(box, "deepest", [DEEP])
    DEEP.install(box)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", DEEP.unit)
    wait_for(lambda: "fired up" in box.journal(f"_SYSTEMD_UNIT={DEEP.unit}"), LIMIT, "ready")
    yield "--config", f"/etc/wd/{dog.name}.toml"
    box.run("systemctl", "stop", DEEP.unit, check=False)


def test_the_deep_check_asks_before_it_loads_a_server(deep: tuple[str, str], box: Box) -> None:
    before = box.journal(f"_SYSTEMD_UNIT={DEEP.unit}").count("Prefill batch")
    done = box.run(COMMAND, "verify", "--deep", *deep, check=False)
    assert (done.returncode, "there is nobody to ask: say --yes" in done.stderr) == (2, True), done
    # On a terminal it shows what it would cost, and a person says no.
    asked = box.run("script", "-qec", f"{COMMAND} verify --deep {' '.join(deep)}", "/dev/null", check=False, stdin="n\n")
    assert asked.returncode == 2, asked
    assert re.search(r"deep: at most \d+ requests, \d+ tokens and 2 min", asked.stdout), asked.stdout
    assert "prefix cache: 2 requests" in asked.stdout and "nothing was asked of the server" in asked.stdout
    batches = box.journal(f"_SYSTEMD_UNIT={DEEP.unit}").count("Prefill batch") - before
    assert batches <= 3, "the canary and health checks of the plain check, and no more"


def test_the_deep_check_of_a_server_that_is_well(deep: tuple[str, str], box: Box) -> None:
    done = box.run(COMMAND, "verify", "--deep", "--yes", "--json", *deep, check=False, timeout=150)
    items = [item for item in json.loads(done.stdout)["servers"][0]["items"] if item["area"] == "deep"]
    assert {item["item"] for item in items} == {
        *("prefix cache", "speculation", "load", "decode speed", "first token", "load back", "cost")
    }
    assert {item["item"]: item["seen"] for item in items if item["verdict"] != "ok"} == {}
    accepted = next(item["seen"] for item in items if item["item"] == "speculation")
    assert accepted.startswith("accept length 2.") and "decode lines" in accepted, accepted


# ---- huge pages of the machine itself

HUGE_POOL = 32
"""MiB of each rank: 16 huge pages of 2 MiB."""
PAGES = 2 * HUGE_POOL // 2
SETTING = Path("/proc/sys/vm/nr_hugepages")
IN_PAGES = "Environment=SGLANG_HUGEPAGE_SIZE=2MB"
HUGE = Server(
    "huge", 32005, seconds=8, version="0.5.23", service=IN_PAGES, arguments=ARGUMENTS.replace(f"{POOL}", f"{HUGE_POOL}")
)
FALLS_BACK = Server("fallback", 32006, seconds=8, version="0.5.23", service=IN_PAGES, arguments=ARGUMENTS)


@pytest.fixture(scope="module")
def pages() -> Iterator[None]:
    """Huge pages are the kernel's, so the machine's: set aside for these tests, and given back."""
    before = SETTING.read_text()
    free = _huge_pages()["HugePages_Free"]
    try:
        SETTING.write_text(str(int(before) + max(0, PAGES - free)))
    except OSError as e:
        pytest.skip(f"the kernel sets no huge pages aside: {e}")
    try:
        if (free := _huge_pages()["HugePages_Free"]) < PAGES or _huge_pages()["Hugepagesize"] != 2048:
            pytest.skip(f"the kernel has no {PAGES} huge pages of 2 MiB to give, only {free}")
        yield
    finally:
        SETTING.write_text(before)


def _huge_pages() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in lines if name.startswith("Huge")}


@pytest.fixture(scope="module")
def paged(pages: None, box: Box) -> Iterator[Watchdog]:
    """A server whose pools take all huge pages, and one that finds none left."""
    dog = Watchdog(box, "pages", [HUGE, FALLS_BACK])
    dog.write(dog.config.replace("processes_interval_s", "memory_interval_s = 2\nprocesses_interval_s"))
    for server in dog.servers:
        server.install(box)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", dog.unit, HUGE.unit)
    yield dog
    box.run("systemctl", "stop", dog.unit, *(s.unit for s in dog.servers), check=False)


def test_a_pool_in_huge_pages_is_seen(paged: Watchdog, box: Box) -> None:
    said = footprint(paged, HUGE, "AsAnnounced")
    assert "announced by 2 ranks" in said and "seen as huge pages, more than before it" in said
    assert paged.view("huge")["memory"]["seen"] == 2 * HUGE_POOL * MIB
    # They are in no process's resident memory: nothing else could have explained the pool.
    main = box.show(HUGE.unit, "MainPID")
    ranks = box.run("pgrep", "-P", main, "-f", "sglang::scheduler").stdout.split()
    assert len(ranks) == 2
    for pid in ranks:
        lines = (line.split() for line in box.run("cat", f"/proc/{pid}/status").stdout.splitlines())
        held = {words[0].rstrip(":"): int(words[1]) for words in lines if words[2:] == ["kB"]}
        assert held["HugetlbPages"] == HUGE_POOL * 1024 and held["RssShmem"] < 1024, held
    config = ("--config", f"/etc/wd/{paged.name}.toml")
    found = json.loads(box.run(COMMAND, "verify", "--json", "--server", "huge", *config, check=False).stdout)
    item = next(item for item in found["servers"][0]["items"] if item["item"] == "pool is held")
    assert (item["verdict"], "of huge pages in use" in item["seen"]) == ("ok", True), item


def test_a_pool_that_finds_no_huge_pages_left(paged: Watchdog, box: Box) -> None:
    """SGLang takes small pages then: the pool is held all the same, and the line about it is told."""
    footprint(paged, HUGE, "AsAnnounced")
    box.run("systemctl", "start", FALLS_BACK.unit)
    said = footprint(paged, FALLS_BACK, "AsAnnounced")
    assert "seen as " in said and "huge pages" not in said
    assert "Hugepage mmap via libc failed" in box.journal(f"_SYSTEMD_UNIT={FALLS_BACK.unit}")
    trouble = next(c for c in paged.view("fallback")["conditions"] if c["type"] == "LogClean")
    assert (trouble["status"], "ugepage" in trouble["message"]) == ("False", True), trouble


def test_a_pool_in_huge_pages_that_shrinks(paged: Watchdog, box: Box) -> None:
    footprint(paged, HUGE, "AsAnnounced")
    HUGE.fault(box, "shrink-pool", "fraction=0.5")
    said = footprint(paged, HUGE, "PoolShrank")
    assert "huge pages fell by 0.03 GB" in said, said
