"""The status page of a daemon under a real systemd: what it knows over its own end, and that a crowd cannot keep others out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog

SERVER = Server("alpha", 31001, version="0.5.23")
PYTHON = COMMAND.replace("sglang-watchdog", "python")
GET = """import sys, urllib.request
with urllib.request.urlopen("http://127.0.0.1:9430" + sys.argv[1], timeout=float(sys.argv[2])) as answer:
    sys.stdout.write(answer.read().decode())
"""
CROWD = """import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
crowd = []
for n in range(600):
    crowd.append(socket.create_connection(("127.0.0.1", 9430)))
    try:
        crowd[-1].send(b"GET /api/events HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n" if n % 2 else b"GET /me")
    except OSError:
        pass
print("all are in", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def dog() -> Iterator[Watchdog]:
    with Box() as box:
        SERVER.install(box)
        made = Watchdog(box, "wdog", [SERVER], daemon='tick_s = 0.5\nmode = "observe"')
        made.write(made.config + "[web]\nenabled = true\n")
        box.run("systemctl", "daemon-reload")
        box.run("systemctl", "start", SERVER.unit, made.unit)
        wait_for(lambda: made.view("alpha").get("verified"), 60, "the server is verified")
        yield made


def get(dog: Watchdog, path: str, limit_s: float = 10.0) -> str:
    return dog.box.run(PYTHON, "-c", GET, path, str(limit_s)).stdout


def shown(dog: Watchdog) -> dict[str, Any]:
    """The server, as the page has it; empty while the page cannot be had."""
    done = dog.box.run(PYTHON, "-c", GET, "/api/status", "10", check=False)
    return dict(json.loads(done.stdout)["servers"][0]) if done.returncode == 0 else {}


def row(server: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(c["value"], c.get("reason", "")) for c in server.get("timeline", {}).get("conditions", {}).get(kind, [])]


def test_a_crowd_keeps_nobody_out(dog: Watchdog) -> None:
    with dog.box.popen(PYTHON, "-c", CROWD, stdout=-1) as crowd:
        try:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "all are in\n"
            for _ in range(5):
                assert get(dog, "/healthz", 1.0) == "ok\n"
                assert "sglang_watchdog_up" in get(dog, "/metrics", 1.0)
        finally:
            crowd.terminate()


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_the_day_before_the_restart_is_still_there(dog: Watchdog, end: str) -> None:
    SERVER.fault(dog.box, "hang", "where=loop")
    wait_for(lambda: ("False", "Hung") in row(shown(dog), "SchedulerProgressing"), 60, "the page shows a hang")
    SERVER.fault(dog.box, "clear")
    wait_for(lambda: row(shown(dog), "SchedulerProgressing")[-1][0] == "True", 60, "and that it is over")
    before = shown(dog)
    if end == "stopped":
        dog.box.run("systemctl", "restart", dog.unit)
    else:
        kept = dog.box.run("stat", "-c", "%y", "/var/lib/wdog/alpha/timeline.json").stdout
        changed = lambda: dog.box.run("stat", "-c", "%y", "/var/lib/wdog/alpha/timeline.json").stdout != kept  # noqa: E731
        wait_for(changed, 40, "it is kept every half minute")
        dog.box.run("systemctl", "kill", "-s", "KILL", dog.unit)
    started, ready = (
        int(dog.box.show(dog.unit, name)) for name in ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    )
    assert end == "killed" or ready - started < 10e6, "what is read back does not hold up the start"
    after = wait_for(lambda: (s := shown(dog)) and s["health"]["level"] == "well" and s, 60, "it knows the server again")
    assert ("False", "Hung") in row(after, "SchedulerProgressing")
    assert "NotWatched" in [reason for _, reason in row(after, "SchedulerProgressing")]
    assert after["timeline"]["from_at"] <= before["timeline"]["phases"][0]["at"]
    assert after["timeline"]["phases"] == before["timeline"]["phases"], "the server went on"
    assert [d["text"] for d in after["diary"] if d["what"] == "would"][:1] == [
        d["text"] for d in before["diary"] if d["what"] == "would"
    ][:1]
    assert after["observed"]["s"] > before["observed"]["s"]
