"""The sources that look at the host, and the incident bundle, against a real unit under a real systemd."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.box.box import Box, wait_for

ROOT = Path(__file__).parents[2]
UNIT = "sglang-kimi.service"
SECRET = "s3cr3tXYZ0123456789"

SERVER = """
import os, signal, socket, sys, time
import setproctitle
for title in ("sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"):
    if os.fork() == 0:
        setproctitle.setproctitle(title)
        pool = bytearray(8 << 20)
        time.sleep(600)
listener = socket.create_server(("127.0.0.1", 30000))
print("Receive: obj=GenerateReqInput(rid='1f2e', text='SECRET')", flush=True)
print("The server is fired up and ready to roll!", flush=True)
time.sleep(600)
"""

SERVICE = f"""
[Service]
ExecStart={sys.executable} /opt/server.py --model-path /models/Kimi-K2.5 --tp 2 --api-key {SECRET}
Environment=SGLANG_LOG_MS=1 HF_TOKEN={SECRET}
"""

LOOK = """
import asyncio, json, os, sys
from pathlib import Path
from watchdog import config
from watchdog.act.evidence import collect
from watchdog.act.scene import Scene
from watchdog.clock import BootClock
from watchdog.judge.verdict import Action, Intent, Severity
from watchdog.observation import encode
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.engine_info import EngineInfoSource
from watchdog.observe.memory import unit_memory
from watchdog.observe.port import PortSource
from watchdog.observe.processes import ProcessSource
from watchdog.observe.source import Target
from watchdog.worker import Worker

async def main():
    target = Target(config.Server(name="kimi", unit="sglang-kimi.service"))
    target.inv, target.cgroup, target.main_pid, target.active = "a1", sys.argv[1], int(sys.argv[2]), True
    clock = BootClock()
    procs = await ProcessSource(target, clock).look()
    port = await PortSource(target, clock).look()
    server = await EngineInfoSource(target, clock)._read(Worker("w"))
    memory = unit_memory(Cgroups(), target.cgroup)
    bundle = None
    if len(sys.argv) > 3:
        intent = Intent(action=Action.DIAGNOSE, reason="Test", severity=Severity.INFO, message="A test.")
        latest = {type(each): each for each in (procs, port, server) if each is not None}
        record = [encode(procs)]
        scene = Scene(server=target.server, intent=intent, clock=clock, t=clock.now(), inv="a1", latest=latest, record=record)
        bundle = await collect(scene, Path(sys.argv[3]), limit_s=10)
    seen = [None if each is None else json.loads(encode(each)) for each in (procs, port, server, memory)]
    print(json.dumps([*seen, None if bundle is None else [str(bundle.path), bundle.failed, bundle.warning]]))

if os.environ.get("UID"):  # only now, since an ordinary user may not reach this Python
    os.setgroups([])
    os.setresgid(*[int(os.environ["UID"])] * 3)
    os.setresuid(*[int(os.environ["UID"])] * 3)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def unit(box: Box) -> tuple[str, int]:
    """The cgroup and the main process of a unit that looks like a server."""
    box.write("/opt/server.py", SERVER.replace("SECRET", SECRET))
    box.write("/opt/look.py", LOOK)
    box.unit(UNIT, SERVICE)
    box.run("systemctl", "start", UNIT)
    wait_for(lambda: "fired up" in box.journal("-u", UNIT), 20, "the server is up")
    return box.show(UNIT, "ControlGroup"), int(box.show(UNIT, "MainPID"))


def look(box: Box, unit: tuple[str, int], *more: str, user: str = "") -> list[Any]:
    environment = [f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1", f"UID={user}"]
    got = box.run("env", *environment, sys.executable, "/opt/look.py", unit[0], str(unit[1]), *more, check=False)
    assert got.returncode == 0, got.stderr
    found: list[Any] = json.loads(got.stdout)
    return found


def test_root_sees_all(box: Box, unit: tuple[str, int]) -> None:
    procs, port, server, memory, _ = look(box, unit)

    names = {each["name"]: each for each in procs["procs"]}
    assert {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"} < names.keys()
    assert len(procs["procs"]) == 4 and procs["cpu_s"] > 0
    assert names["sglang::scheduler_TP0"]["ppid"] == unit[1]
    assert names["sglang::scheduler_TP0"]["rss"] > 8 << 20
    assert names["sglang::scheduler_TP0"]["wchan"]
    assert (port["listening"], port["pid"], port["in_unit"], port["address"]) == (True, unit[1], True, "127.0.0.1:30000")
    assert server["args"]["tp_size"] == 2 and server["env"] == {"SGLANG_LOG_MS": "1"}
    assert SECRET not in json.dumps(server)
    # Where the host has the memory controller as v1, the unit's v2 cgroup has none: then nothing is known.
    assert memory["memory_current"] is None or memory["memory_current"] > 8 << 20


def test_an_ordinary_user_sees_what_is_open_to_all(box: Box, unit: tuple[str, int]) -> None:
    procs, port, server, _, _ = look(box, unit, user="65534")

    assert {"sglang::scheduler_TP0", "sglang::detokenizer"} < {each["name"] for each in procs["procs"]}
    assert all(each["wchan"] is None or each["state"] == "R" for each in procs["procs"])
    assert (port["listening"], port["pid"], port["in_unit"]) == (True, None, None)
    assert server["args"]["tp_size"] == 2 and "env" not in server


def test_the_bundle_of_a_real_unit(box: Box, unit: tuple[str, int]) -> None:
    *_, bundle = look(box, unit, "/var/lib/incidents")
    path, failed, warning = bundle

    assert warning is None and failed.keys() <= {"gpu.txt", "metrics.txt", "stacks.txt"}
    text = box.run("sh", "-c", f"cat {path}/*.txt {path}/*.md {path}/*.json; zcat {path}/*.gz").stdout
    assert SECRET not in text
    assert "fired up and ready to roll" in text
    assert "rid='1f2e' [request left out]" in text
    assert f"Id={UNIT}" in text
    assert "sglang::scheduler_TP1" in text
    assert "active" in box.run("systemctl", "is-active", UNIT).stdout


def test_a_dead_scheduler_is_missing_at_once_and_a_stopped_unit_is_empty(box: Box, unit: tuple[str, int]) -> None:
    procs = look(box, unit)[0]["procs"]
    victim = next(each["pid"] for each in procs if each["name"] == "sglang::scheduler_TP1")
    box.run("kill", "-KILL", str(victim))

    left = [each for each in look(box, unit)[0]["procs"] if each["state"] != "Z"]
    assert [each["name"] for each in left if "scheduler" in each["name"]] == ["sglang::scheduler_TP0"]

    box.run("systemctl", "stop", UNIT)
    procs, port, server, memory, _ = look(box, unit)
    assert procs.get("procs", []) == [] and procs["cpu_s"] is None
    assert port["listening"] is False and server is None and memory["memory_current"] is None
