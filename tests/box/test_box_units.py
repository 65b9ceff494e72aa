"""The shipped service, user and polkit rule at work: what they allow, and what not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.box.box import Box, wait_for

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "units"
RULES = "/etc/polkit-1/rules.d/50-sglang-watchdog.rules"
RESULT = "/var/lib/sglang-watchdog/result.json"


@pytest.fixture(scope="module")
def host(box: Box) -> Box:
    """The box with the service installed, and two units: one that it may restart, and one that it may not."""
    for name in ("sglang.service", "other.service"):
        box.unit(name, "[Service]\nExecStart=/bin/sleep infinity\n")
        box.run("systemctl", "start", name)
    box.write("/usr/lib/sysusers.d/sglang-watchdog.conf", (UNITS / "sglang-watchdog.sysusers").read_text())
    box.run("systemd-sysusers")
    box.let_others_in()
    box.write(
        "/etc/systemd/system/sglang-watchdog.service.d/test.conf",
        f"[Service]\nType=oneshot\nWatchdogSec=0\nRestart=no\nProtectHome=no\nPrivateTmp=no\nEnvironment=PYTHONPATH={ROOT}\n"
        f"ExecStart=\nExecStart={sys.executable} {ROOT}/tests/box/unprivileged.py sglang.service other.service\n",
    )
    box.unit("sglang-watchdog.service", (UNITS / "sglang-watchdog.service").read_text())
    return box


def asked(host: Box) -> dict[str, Any]:
    done = host.run("systemctl", "start", "sglang-watchdog.service", check=False)
    assert done.returncode == 0, host.journal("-u", "sglang-watchdog.service")
    found: dict[str, Any] = json.loads(host.run("cat", RESULT).stdout)
    return found


def test_without_the_rule_it_is_told_what_is_missing(host: Box) -> None:
    host.run("rm", "-f", RULES)
    life = host.show("sglang.service", "InvocationID")
    found = asked(host)
    own = found["sglang.service"]
    assert (own["restart"], own["kill"], own["result"]) == (False, False, "refused")
    assert "polkit rule of sglang-watchdog must name this unit" in own["message"]
    assert host.show("sglang.service", "InvocationID") == life


def test_with_the_rule_it_may_restart_its_unit_and_nothing_else(host: Box) -> None:
    before = host.journal("-u", "polkit.service").count("Finished loading")
    host.write(RULES, (UNITS / "sglang-watchdog.rules").read_text())
    wait_for(lambda: host.journal("-u", "polkit.service").count("Finished loading") > before, 10, "polkit reads the rule")
    lives = {name: host.show(name, "InvocationID") for name in ("sglang.service", "other.service")}
    found = asked(host)
    assert found["uid"] != 0
    own, other = found["sglang.service"], found["other.service"]
    assert (own["restart"], own["kill"], own["result"]) == (True, True, "done")
    assert (other["restart"], other["kill"], other["result"]) == (False, False, "refused")
    assert host.show("sglang.service", "InvocationID") != lives["sglang.service"]
    assert host.show("other.service", "InvocationID") == lives["other.service"]
    assert (found["reset"], found["kill"]) == ("allowed", "allowed")
    assert "polkit" in found["foreign"]
    for verb in ("start", "stop"):
        refused = host.run(
            "runuser", "-u", "sglang-watchdog", "--", "systemctl", "--no-ask-password", verb, "sglang.service", check=False
        )
        assert refused.returncode != 0, verb
    assert host.show("sglang.service", "ActiveState") == "active"
    # The sandbox lets it see what it needs, and write nothing outside its own folders.
    assert (found["meminfo"], found["cgroup"], found["wrote"], found["notify"]) == (True, True, False, True)


@pytest.mark.parametrize(
    ("verb", "lasting", "state"), [("start", "ExecStartPre", "activating"), ("stop", "ExecStop", "deactivating")]
)
def test_the_watchdog_is_back_at_once_while_the_server_starts_or_stops(host: Box, verb: str, lasting: str, state: str) -> None:
    """A start takes up to 25 minutes, a stop of pinned memory minutes: an order between the units would wait for their end."""
    unit = "/etc/systemd/system/slow.service"
    stood_in = "[Service]\nType=simple\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sleep infinity\n"
    host.write("/etc/systemd/system/sglang-watchdog.service.d/test.conf", stood_in)
    host.write(unit, f"[Service]\nExecStart=/bin/sleep infinity\n{lasting}=/bin/sleep 60\n")
    host.write(f"{unit}.d/50-sglang-watchdog.conf", (UNITS / "server.conf").read_text())
    host.run("systemctl", "daemon-reload")
    if verb == "stop":
        host.run("systemctl", "start", "slow.service")
    host.run("systemctl", verb, "--no-block", "slow.service")
    wait_for(lambda: host.show("slow.service", "ActiveState") == state, 10, state)
    host.run("systemctl", "restart", "sglang-watchdog.service", timeout=20)
    assert host.show("slow.service", "ActiveState") == state
    host.run("systemctl", "stop", "--no-block", "slow.service")
    host.run("systemctl", "kill", "-s", "KILL", "slow.service", check=False)
    wait_for(lambda: host.show("slow.service", "ActiveState") in ("inactive", "failed"), 30, "it has ended")
    host.run("rm", "-r", unit, f"{unit}.d")


def test_a_restart_of_the_watchdog_leaves_a_stopped_server_stopped(host: Box) -> None:
    drop_in = "/etc/systemd/system/sglang.service.d/50-sglang-watchdog.conf"
    host.write(
        "/etc/systemd/system/sglang-watchdog.service.d/test.conf",
        "[Service]\nType=simple\nWatchdogSec=0\nExecStart=\nExecStart=/bin/sleep infinity\n",
    )
    host.write(drop_in, (UNITS / "server.conf").read_text())
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "sglang.service")
    host.run("systemctl", "restart", "sglang.service")
    wait_for(lambda: host.show("sglang-watchdog.service", "ActiveState") == "active", 10, "the server brings its watchdog")
    pid = host.show("sglang-watchdog.service", "MainPID")
    host.run("systemctl", "restart", "sglang.service")
    assert host.show("sglang-watchdog.service", "MainPID") == pid
    host.run("systemctl", "stop", "sglang.service")
    assert host.show("sglang-watchdog.service", "MainPID") == pid
    host.run("systemctl", "restart", "sglang-watchdog.service")
    assert host.show("sglang-watchdog.service", "ActiveState") == "active"
    assert host.show("sglang.service", "ActiveState") == "inactive"
