"""The daemon's own life under a real systemd: started, frozen, killed, reloaded, on a full disk, without its bus, stopped."""

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import Server, Watchdog

LONG = 60.0
HELD_S = 23.0
"""Longer than hang_s of the servers here, so that a daemon that believed its clock would see a hang."""

ALPHA = Server(
    "alpha", 31001, seconds=8, version="0.5.23", arguments="--traffic 0.5 --enable-hierarchical-cache --host-pool-mib 8"
)
HELD = Server("held", 31002)
FROZEN = Server("frozen", 31003)
EVIDENCE = Server("evidence", 31004)
STOPPING = Server("stopping", 31005, service="TimeoutStopSec=7")
STARTING = Server("starting", 31006, service="ExecStartPre=/bin/sleep 4")
FULL = Server("full", 31007)
# What it prints before its start uses up what journald lets through, its ready line included.
QUIET = Server(
    "quiet",
    31008,
    arguments="",
    service="LogRateLimitIntervalSec=25s\nLogRateLimitBurst=20\nExecStartPre=/bin/seq 2000",
)
MISSING = Server("missing", 31009)
NOKEY = Server("nokey", 31010, arguments="--api-key secret", keys='api_key_file = "/etc/wd/no-such-key"')
ELSEWHERE = Server("elsewhere", 31011)
ELSEWHERE.table = ELSEWHERE.table.replace(":31011", ":31999")
GONE = Server("gone", 31012, service="DefaultDependencies=no")
UP = [HELD, FROZEN, EVIDENCE, STOPPING, STARTING, FULL, QUIET, NOKEY, ELSEWHERE]
SLOW_JOURNALCTL = '#!/bin/sh\nsleep 4\nexec /usr/bin/journalctl "$@"\n'


class Host:
    """The box with its daemons, and what was seen of them when they began."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.dogs: dict[str, Watchdog] = {}
        self.lives: dict[str, str] = {}
        self.resumed: subprocess.Popen[str]
        self.killed: dict[str, Future[bool]] = {}
        self.threads = ThreadPoolExecutor(3)

    def add(self, name: str, *servers: Server, service: str = "") -> Watchdog:
        self.dogs[name] = dog = Watchdog(self.box, name, list(servers), service=service)
        return dog

    def signal(self, dog: Watchdog, name: str) -> None:
        self.box.run("systemctl", "kill", "--kill-whom=main", "-s", name, dog.unit)

    def kill_when(self, dog: Watchdog, moment: Callable[[], object]) -> None:
        """Send SIGKILL to a daemon at the first sight of a moment, beside what the tests do."""

        def kill() -> bool:
            wait_for(moment, LONG, dog.name)
            self.signal(dog, "KILL")
            return True

        self.killed[dog.name] = self.threads.submit(kill)

    def until_verified(self, dog: Watchdog, server: str) -> None:
        wait_for(lambda: dog.view(server).get("verified"), LONG, f"{server} is verified\n{dog.told()}")


@pytest.fixture(scope="module")
def host(box: Box) -> Iterator[Host]:
    """All daemons and servers up; then the long incidents begin, all at once, and the tests look at what comes of each."""
    host = Host(box)
    box.write("/run/slow/journalctl", SLOW_JOURNALCTL)
    box.run("chmod", "+x", "/run/slow/journalctl")
    box.run("mkdir", "-p", "/var/lib/wfull")
    box.run("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", "/var/lib/wfull")
    box.run("sh", "-c", "head -c 1M /dev/zero > /var/lib/wfull/filler", check=False)
    box.run("mkdir", "-p", "/var/lib/wodd/quiet/state.json")
    for server in [ALPHA, *UP]:
        server.install(box)
    host.add("walpha", ALPHA)
    host.add("wheld", HELD, service="WatchdogSec=60")
    host.add("wfrozen", FROZEN, service="WatchdogSec=3\nTimeoutStopSec=1")
    host.add("wevidence", EVIDENCE, service="Environment=PATH=/run/slow:/usr/bin:/bin")
    host.add("wstopping", STOPPING)
    host.add("wstarting", STARTING)
    host.add("wfull", FULL)
    host.add("wodd", QUIET, MISSING, NOKEY, ELSEWHERE)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", *(s.unit for s in UP), timeout=90)
    box.run("systemctl", "start", *(dog.unit for name, dog in host.dogs.items() if name != "walpha"), timeout=90)
    for dog, server in (
        ("wheld", HELD),
        ("wfrozen", FROZEN),
        ("wevidence", EVIDENCE),
        ("wstopping", STOPPING),
        ("wstarting", STARTING),
    ):
        host.until_verified(host.dogs[dog], server.name)
        host.lives[server.name] = box.show(server.unit, "InvocationID")
    host.lives[FULL.name] = box.show(FULL.unit, "InvocationID")
    host.signal(host.dogs["wheld"], "STOP")
    host.resumed = box.popen("sh", "-c", f"sleep {HELD_S}; systemctl kill --kill-whom=main -s CONT wheld.service")
    evidence = host.dogs["wevidence"]
    host.kill_when(evidence, lambda: evidence.entries(event="evidence"))
    host.kill_when(host.dogs["wstopping"], lambda: box.show(STOPPING.unit, "ActiveState") == "deactivating")
    host.kill_when(host.dogs["wstarting"], lambda: box.show(STARTING.unit, "ActiveState") == "activating")
    STOPPING.fault(box, "ignore-sigterm")
    for server in (FROZEN, EVIDENCE, STOPPING, STARTING, FULL):
        server.fault(box, "kill-scheduler")
    yield host
    host.threads.shutdown()
    box.run("sh", "-c", "systemctl stop 'w*.service'", check=False)


def seen_through(host: Host, dog: Watchdog, server: Server) -> None:
    """The daemon was killed in the middle of its restart: the next one ends what was begun, with one restart in all."""
    assert host.killed[dog.name].result(LONG), f"the moment to kill the daemon was missed\n{dog.told()}"
    dog.cured(LONG, server.name)
    assert len(dog.view(server.name)["restarts"]) == 1, dog.told()
    assert len(dog.entries(event="started")) == 2, "two daemons"
    started = host.box.journal("-u", server.unit, "_PID=1").count("Started ")
    assert started == 2, "one start by the test, and one restart"
    assert host.box.show(server.unit, "InvocationID") != host.lives[server.name]


def test_killed_while_it_saves_evidence(host: Host) -> None:
    dog = host.dogs["wevidence"]
    seen_through(host, dog, EVIDENCE)
    assert [e["result"] for e in dog.entries(event="acted")] == ["dropped", "begun", "done"]


def test_killed_while_the_server_stops(host: Host) -> None:
    dog = host.dogs["wstopping"]
    seen_through(host, dog, STOPPING)
    assert [e["result"] for e in dog.entries(event="acted")] == ["begun", "done"]


def test_killed_while_the_server_starts(host: Host) -> None:
    dog = host.dogs["wstarting"]
    seen_through(host, dog, STARTING)
    assert [e["result"] for e in dog.entries(event="acted")] == ["begun", "done"]


def test_full_disk_is_told_and_the_restart_goes_on(host: Host) -> None:
    dog = host.dogs["wfull"]
    dog.cured(LONG, "full")
    assert host.box.show(FULL.unit, "InvocationID") != host.lives[FULL.name]
    assert "free space" in dog.until(5, event="state-lost")["message"]
    assert dog.entries(event="record-lost")
    assert any(e.get("bundle") == "lost" for e in dog.entries(event="evidence"))
    host.box.run("rm", "/var/lib/wfull/filler")
    dog.ask("pause", seconds=60)
    wait_for(lambda: dog.entries(event="state-saved"), 15, "it writes again")


def test_frozen_daemon_is_killed_and_remembers_budget_and_pause(host: Host) -> None:
    dog = host.dogs["wfrozen"]
    dog.cured(LONG, "frozen")
    dog.ask("pause", reason="maintenance")
    pid = host.box.show(dog.unit, "MainPID")
    host.signal(dog, "STOP")
    wait_for(lambda: host.box.show(dog.unit, "MainPID") not in ("0", pid), 30, "systemd's watchdog ends it, and it comes back")
    view = wait_for(lambda: dog.view("frozen"), 15, "it answers")
    assert [r["reason"] for r in view["restarts"]] == ["ProcessGone"]
    assert (view["paused"], view["pause_reason"]) == (True, "maintenance")
    assert "Watchdog timeout" in host.box.journal("-u", dog.unit, "_PID=1")


def test_ready_at_once_and_the_status_follows_the_start(host: Host) -> None:
    dog, box = host.dogs["walpha"], host.box
    box.run("systemctl", "start", dog.unit)
    started, ready = (
        int(box.show(dog.unit, name)) for name in ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    )
    assert ready - started < 10e6, "at most 1 s on a quiet machine"
    box.run("systemctl", "start", "--no-block", ALPHA.unit)
    said: list[str] = []
    end = time.monotonic() + LONG
    while not dog.view("alpha").get("verified") and time.monotonic() < end:
        said.append(dog.status())
        time.sleep(0.1)
    wait_for(lambda: dog.status().startswith("serving"), 10, "the sentence of a server that serves")
    phases = [next((i for i, s in enumerate(said) if word in s.lower()), -1) for word in ("weights", "pool", "warm")]
    assert -1 not in phases, list(dict.fromkeys(said))
    assert phases == sorted(phases)


def test_what_is_wrong_from_the_start_is_said_with_its_cure(host: Host) -> None:
    dog = host.dogs["wodd"]
    assert "it is a folder, not a file); kept as state.json." in dog.until(10, event="state-lost", server="quiet")["message"]
    wait_for(lambda: "not-found" in dog.view("missing")["sentence"], 10, "the unit is missing")
    assert "daemon-reload" in dog.until(20, reason="UnitMissing", action="alert")["advice"]
    assert "cannot be read from /etc/wd/no-such-key" in dog.until(20, event="source-failed", server="nokey")["message"]
    assert dog.view("elsewhere")["probes"]["health"]["outcome"] == "refused"
    assert not dog.entries(event="acted")
    assert not dog.entries(event="internal-fault")


def test_readiness_line_lost_to_a_rate_limit(host: Host) -> None:
    dog = host.dogs["wodd"]
    view = wait_for(lambda: (v := dog.view("quiet")).get("verified") and v, LONG, "found ready by its answers")
    assert view["phase"] == "serving"
    wait_for(lambda: "Suppressed" in host.box.journal("_COMM=systemd-journal"), LONG, "journald says that it dropped lines")
    assert "The server is fired up" not in host.box.journal("-u", QUIET.unit)
    lost = dog.until(LONG, condition="Sighted", reason="LogLinesLost", server="quiet")
    assert "the silence of the log proves nothing" in lost["message"]


def test_reload_takes_a_good_configuration_and_keeps_a_bad_one_out(host: Host) -> None:
    dog, box = host.dogs["wodd"], host.box
    good = dog.config
    dog.write(good.replace("hang_s = 20", 'hang_s = "soon"'))
    box.run("systemctl", "reload", dog.unit)
    assert "hang_s" in dog.until(15, event="reload-refused")["message"]
    dog.write(
        good.replace('name = "missing"\nunit = "missing.service"', 'name = "added"\nunit = "alpha.service"').replace(
            ":31009", ":31001"
        )
    )
    box.run("systemctl", "reload", dog.unit)
    dog.until(15, event="reloaded")
    wait_for(lambda: dog.view("added").get("verified"), 30, "the server that came in")
    assert dog.view("missing") == {}
    assert dog.view("quiet")["phase"] == "serving", "what was known stays known"
    assert box.show(dog.unit, "NRestarts") == "0"


def test_held_for_longer_than_a_hang_it_finds_no_fault(host: Host) -> None:
    dog = host.dogs["wheld"]
    assert host.resumed.wait(LONG) == 0
    entry = dog.until(15, condition="Sighted", reason="Blind")
    assert "we did not run ourselves" in entry["message"]
    time.sleep(3)
    assert not dog.entries(event="intent", action="restart")
    assert not dog.entries(event="intent", action="diagnose")
    assert dog.view("held")["phase"] == "serving"
    assert host.box.show(HELD.unit, "InvocationID") == host.lives["held"]
    assert host.box.show(dog.unit, "NRestarts") == "0"


def moving(dog: Watchdog, server: str) -> bool:
    """Whether the journal shows a step of the engine of the last two seconds."""
    age = dog.view(server)["work"]["step_age_s"]
    return age is not None and age < 2.5


def test_journald_restarted_rotated_and_vacuumed(host: Host) -> None:
    dog, box = host.dogs["walpha"], host.box
    for command in (
        ["systemctl", "restart", "systemd-journald"],
        ["journalctl", "--rotate"],
        ["journalctl", "--rotate", "--vacuum-files=1"],
    ):
        seen = dog.view("alpha")["observations"]["log"]
        box.run(*command)
        wait_for(lambda n=seen: dog.view("alpha")["observations"]["log"] > n + 5, 20, f"lines flow after {command}")
    wait_for(lambda: moving(dog, "alpha"), 20, "it sees the engine move")
    assert not dog.entries(event="acted")
    wait_for(lambda: dog.status().startswith("serving"), 10, "it serves")


def test_bus_restarted_and_still_able_to_restart(host: Host) -> None:
    dog, box = host.dogs["walpha"], host.box
    life = box.show(ALPHA.unit, "InvocationID")
    box.run("systemctl", "restart", "dbus.service")
    ALPHA.fault(box, "hang", "where=loop")
    time.sleep(0.5)
    ALPHA.fault(box, "kill-scheduler")
    wait_for(lambda: box.show(ALPHA.unit, "InvocationID") not in ("", life), LONG, f"a new life\n{dog.told()}")
    dog_pid = box.show(dog.unit, "MainPID")
    assert dog_pid != "0"
    assert not [d for d in host.dogs.values() if d.entries(event="internal-fault")]


def test_stop_is_quick_and_leaves_the_server_alone(host: Host) -> None:
    dog, box = host.dogs["wheld"], host.box
    begun = time.monotonic()
    box.run("systemctl", "stop", dog.unit)
    assert time.monotonic() - begun < 5
    assert box.show(dog.unit, "Result") == "success"
    assert box.show(HELD.unit, "InvocationID") == host.lives["held"]
    assert box.show(HELD.unit, "ActiveState") == "active"
