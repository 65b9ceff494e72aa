"""One daemon and many servers under a real systemd, each with a fault of its own: what is done, and that no other is touched."""

import re
from collections.abc import Iterator

import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import Server, Watchdog, lives

SECRET = "sk-this-must-not-be-kept-anywhere"
LONG = 90.0

HANG = Server(
    "hang",
    30001,
    version="0.5.23",
    arguments=f"--traffic 0.5 --api-key {SECRET}",
    keys='api_key_file = "/etc/wd/key"',
    service=f"ExecStartPre=/bin/echo \"server_args=ServerArgs(tp_size=1, api_key='{SECRET}', port=1) HF_TOKEN={SECRET}\"",
)
BUSY = Server("busy", 30002)
GARBAGE = Server("garbage", 30003, arguments="")
KILLED = Server("killed", 30004)
SELFEND = Server("selfend", 30005, version="0.5.23")
EXIT0 = Server("exit0", 30006)
LOOP = Server(
    "loop",
    30007,
    arguments="--fail-at pool=host-memory --enable-hierarchical-cache --host-pool-mib 8",
    unit="StartLimitBurst=3\nStartLimitIntervalSec=600",
)
OBSERVE = Server("observe", 30008, keys='mode = "observe"')
ALERT = Server("alert", 30009, keys='mode = "alert"')
STOPPED = Server("stopped", 30010)
LIMIT = Server("limit", 30011, unit="StartLimitBurst=1\nStartLimitIntervalSec=3600")
PAUSED = Server("paused", 30012)
BOUNCED = Server("bounced", 30013)
TAKEN = Server("taken", 30014)
ALL = [HANG, BUSY, GARBAGE, KILLED, SELFEND, EXIT0, LOOP, OBSERVE, ALERT, STOPPED, LIMIT, PAUSED, BOUNCED, TAKEN]


class Scene:
    def __init__(self, box: Box, dog: Watchdog) -> None:
        self.box = box
        self.dog = dog
        self.before: dict[str, str] = {}


@pytest.fixture(scope="module")
def scene(box: Box) -> Iterator[Scene]:
    """All servers up and proven, and then all faults at once."""
    box.write("/etc/wd/key", SECRET)
    for server in ALL:
        server.install(box)
    dog = Watchdog(box, "wd", ALL)
    scene = Scene(box, dog)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", dog.unit)
    box.run("systemctl", "start", *(s.unit for s in ALL), check=False)
    for server in ALL:
        if server is not LOOP:
            wait_for(lambda s=server: dog.view(s.name).get("verified"), LONG, f"{server.name} is verified\n{dog.told()}")
    scene.before = lives(box, *(s.unit for s in ALL))
    dog.ask("pause", server="paused", reason="a test")
    HANG.fault(box, "hang-behind-200")
    BUSY.fault(box, "busy", "seconds=60", "step=8")
    GARBAGE.fault(box, "garbage")
    KILLED.fault(box, "kill-scheduler")
    SELFEND.fault(box, "kill-scheduler")
    EXIT0.fault(box, "exit-0")
    OBSERVE.fault(box, "kill-scheduler")
    ALERT.fault(box, "hang-behind-200")
    STOPPED.fault(box, "hang-behind-200")
    BOUNCED.fault(box, "hang-behind-200")
    TAKEN.fault(box, "ignore-sigterm")
    TAKEN.fault(box, "kill-scheduler")
    LIMIT.fault(box, "kill-scheduler")
    PAUSED.fault(box, "kill-scheduler")
    yield scene
    box.run("systemctl", "stop", dog.unit)


def cured(scene: Scene, server: Server, *reasons: str) -> None:
    """The whole way: a reason, evidence, one restart, a new life, verified."""
    dog = scene.dog
    verified = dog.cured(LONG, server.name)
    assert verified["reason"] in reasons
    assert [e["result"] for e in dog.entries(event="acted", server=server.name)] == ["begun", "done"]
    assert scene.box.show(server.unit, "InvocationID") != scene.before[server.unit]
    assert verified["invocation"] == scene.box.show(server.unit, "InvocationID")
    assert len(dog.view(server.name)["restarts"]) == 1


def untouched(scene: Scene, server: Server) -> None:
    """Nothing was done to it."""
    assert scene.dog.entries(event="acted", server=server.name) == []
    assert scene.box.show(server.unit, "InvocationID") == scene.before[server.unit]


def test_operator_who_stops_it_during_our_own_restart_is_obeyed(scene: Scene) -> None:
    scene.dog.until(LONG, event="acted", server="taken", result="begun")
    wait_for(lambda: scene.box.show(TAKEN.unit, "ActiveState") == "deactivating", LONG, "our stop, which it does not hear")
    scene.box.run("systemctl", "stop", "--no-block", TAKEN.unit)
    assert "standing down" in scene.dog.until(LONG, event="acted", server="taken", result="canceled")["message"]
    scene.box.run("systemctl", "kill", "-s", "KILL", TAKEN.unit)
    wait_for(lambda: scene.box.show(TAKEN.unit, "ActiveState") in ("inactive", "failed"), LONG, "it is down")


def suspected(scene: Scene, server: Server) -> None:
    """Wait until the daemon begins to doubt that the server moves."""
    wait_for(
        lambda: [
            c
            for c in scene.dog.view(server.name)["conditions"]
            if (c["type"], c["status"]) == ("SchedulerProgressing", "Unknown")
        ],
        LONG,
        f"{server.name} is suspected",
    )


def test_operator_who_stops_or_restarts_it_during_our_suspicion_is_obeyed(scene: Scene) -> None:
    for verb, server in (("stop", STOPPED), ("restart", BOUNCED)):
        suspected(scene, server)
        scene.box.run("systemctl", verb, "--no-block", server.unit)
    wait_for(
        lambda: (v := scene.dog.view("bounced")).get("verified") and v["invocation"] != scene.before[BOUNCED.unit],
        LONG,
        "its new life is verified",
    )


def test_scheduler_killed_unnoticed_by_the_server_is_restarted(scene: Scene) -> None:
    cured(scene, KILLED, "ProcessGone")


def test_start_limit_does_not_bite_our_restart(scene: Scene) -> None:
    cured(scene, LIMIT, "ProcessGone")
    assert scene.box.show(LIMIT.unit, "ActiveState") == "active"


def test_exit_with_status_0_that_nobody_asked_for(scene: Scene) -> None:
    cured(scene, EXIT0, "ProcessGone", "DiedUnasked")


def test_server_that_ends_by_itself_is_left_to_systemd(scene: Scene) -> None:
    wait_for(
        lambda: scene.box.show(SELFEND.unit, "InvocationID") not in ("", scene.before[SELFEND.unit]), LONG, "systemd restarts it"
    )
    wait_for(lambda: scene.dog.view("selfend").get("verified"), LONG, "its new life is verified")
    assert scene.dog.entries(event="acted", server="selfend") == []
    assert scene.dog.view("selfend")["restarts"] == []


def test_hang_behind_a_200_evidence_restart_verified(scene: Scene) -> None:
    cured(scene, HANG, "SchedulerHung", "Stalled")
    bundle = next(e["bundle"] for e in scene.dog.entries(event="evidence", server="hang") if e.get("bundle", "").startswith("/"))
    assert "summary.md" in scene.box.run("ls", bundle).stdout
    begun = scene.box.journal("-u", scene.dog.unit, "-o", "short-monotonic")
    assert begun.index("hang: evidence saved") < begun.index("hang: begun: restarting")


def test_garbage_answers_are_told_and_not_at_once_restarted(scene: Scene) -> None:
    entry = scene.dog.until(LONG, action="alert", server="garbage")
    assert (entry["reason"], entry["severity"]) == ("GarbageAnswers", "critical")
    untouched(scene, GARBAGE)


def test_crash_loop_with_a_lasting_cause_is_withheld_with_advice(scene: Scene) -> None:
    entry = scene.dog.until(LONG, action="withhold", server="loop")
    assert entry["reason"] == "SameEarlyDeath"
    assert "--hicache-ratio" in entry["advice"], scene.dog.told("loop")
    assert scene.dog.entries(event="acted", server="loop") == []


def test_mode_observe_says_what_it_would_do_and_does_nothing(scene: Scene) -> None:
    entry = scene.dog.until(LONG, event="would", server="observe")
    assert (entry["action"], entry["mode"]) == ("restart", "observe")
    assert [e["result"] for e in scene.dog.entries(event="acted", server="observe")] == ["dry"]
    assert scene.box.show(OBSERVE.unit, "InvocationID") == scene.before[OBSERVE.unit]


def test_mode_alert_saves_evidence_and_does_nothing(scene: Scene) -> None:
    scene.dog.until(LONG, event="would", server="alert")
    assert [e for e in scene.dog.entries(event="evidence", server="alert") if e.get("bundle", "").startswith("/")]
    assert scene.box.show(ALERT.unit, "InvocationID") == scene.before[ALERT.unit]


def test_what_operators_did_was_left_as_it_is(scene: Scene) -> None:
    assert scene.box.show(STOPPED.unit, "ActiveState") in ("inactive", "failed")
    assert scene.box.show(TAKEN.unit, "ActiveState") in ("inactive", "failed")
    for name in ("stopped", "bounced"):
        assert scene.dog.entries(event="acted", server=name) == []
    assert [e["result"] for e in scene.dog.entries(event="acted", server="taken")] == ["begun", "canceled"]
    assert scene.dog.view("taken")["restarts"] == [], "what was not done does not count"


def test_busy_server_is_left_alone(scene: Scene) -> None:
    untouched(scene, BUSY)
    assert [p for p in scene.dog.view("busy")["failed_probes"] if p.get("status") == 503], "/health said 503 meanwhile"


def test_paused_server_is_watched_and_left_alone_until_resumed(scene: Scene) -> None:
    untouched(scene, PAUSED)
    view = scene.dog.view("paused")
    assert view["wrong"] == ["ProcessesPresent"]
    assert "paused by a person: a test" in view["sentence"]
    scene.dog.ask("resume", server="paused")
    scene.dog.until(LONG, event="acted", server="paused", result="done")


def test_nothing_else_was_said_or_kept_than_may_be(scene: Scene) -> None:
    """No key and no user's prompt in what the daemon keeps and tells; one line for each entry."""
    found = scene.box.run("grep", "-rl", SECRET, "/var/lib/wd", check=False).stdout
    assert found == ""
    told = scene.box.journal("-u", scene.dog.unit, "-o", "export")
    assert SECRET not in told
    packed = scene.box.run("sh", "-c", "find /var/lib/wd -name '*.gz' -exec zcat {} + | grep -c " + SECRET, check=False)
    assert packed.stdout.strip() == "0"
    assert SECRET in scene.box.journal("-u", HANG.unit), "the server itself had printed it"
    assert not scene.dog.entries(event="internal-fault")
    faults = re.findall(r"^MESSAGE=(?:Traceback|.*never retrieved|.*Task was destroyed).*$", told, re.MULTILINE)
    assert not faults
