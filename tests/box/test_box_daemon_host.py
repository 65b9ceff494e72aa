"""The daemon as it is shipped: without privileges, behind polkit; and on a host that goes down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, HOST, Server, Watchdog

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "units"
RULES = "/etc/polkit-1/rules.d/50-sglang-watchdog.rules"
LONG = 60.0

SHIPPED = Server("sglang", 32001, restart="budget = 3")
GOING = Server("going", 32002, unit="DefaultDependencies=no\nIgnoreOnIsolate=yes")
BLOCKER = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecStop=/bin/sleep 25\n"


@pytest.fixture(scope="module")
def dog(box: Box) -> Iterator[Watchdog]:
    """The shipped unit, user and sandbox, with the daemon from this checkout."""
    box.write("/usr/lib/sysusers.d/sglang-watchdog.conf", (UNITS / "sglang-watchdog.sysusers").read_text())
    box.run("systemd-sysusers")
    box.let_others_in()
    SHIPPED.install(box)
    dog = Watchdog(box, "sglang-watchdog", [SHIPPED])
    box.write("/etc/systemd/system/sglang-watchdog.service", (UNITS / "sglang-watchdog.service").read_text())
    box.write(
        "/etc/systemd/system/sglang-watchdog.service.d/test.conf",
        f"[Service]\nProtectHome=no\nPrivateTmp=no\nExecStart=\nExecStart={COMMAND} run --config /etc/wd/sglang-watchdog.toml\n",
    )
    box.run("rm", "-f", RULES)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", SHIPPED.unit)
    box.run("systemctl", "start", dog.unit)
    wait_for(lambda: dog.view("sglang").get("verified"), LONG, f"verified\n{dog.told()}")
    yield dog


def test_without_the_rule_it_says_so_at_once_and_withholds(dog: Watchdog) -> None:
    box = dog.box
    pid = box.show(dog.unit, "MainPID")
    assert box.run("stat", "-c", "%U", f"/proc/{pid}").stdout.strip() == "sglang-watchdog"
    told = dog.until(LONG, action="alert", reason="MayNotRestart")
    assert "polkit rule" in told["advice"]
    life = box.show(SHIPPED.unit, "InvocationID")
    SHIPPED.fault(box, "kill-scheduler")
    withheld = dog.until(LONG, action="withhold", reason="MayNotRestart")
    assert "polkit" in withheld["message"]
    assert "Gone from the unit" in withheld["evidence"], "it says what called for the restart"
    assert not dog.entries(event="acted")
    assert box.show(SHIPPED.unit, "InvocationID") == life


def test_with_the_rule_it_restarts_without_being_started_anew(dog: Watchdog) -> None:
    box = dog.box
    life = box.show(SHIPPED.unit, "InvocationID")
    box.write(RULES, (UNITS / "sglang-watchdog.rules").read_text())
    dog.until(LONG, event="verified", reason="ProcessGone", server="sglang")
    assert box.show(SHIPPED.unit, "InvocationID") != life
    assert box.show(dog.unit, "NRestarts") == "0"
    folder = box.run("stat", "-c", "%U %a", "/var/lib/sglang-watchdog").stdout.strip()
    assert folder == "sglang-watchdog 750"
    assert box.run("stat", "-c", "%U %a", "/run/sglang-watchdog/control.sock").stdout.strip() == "sglang-watchdog 600"


def test_a_rule_that_goes_costs_no_restart_and_its_return_brings_one(dog: Watchdog) -> None:
    box = dog.box
    life, spent = box.show(SHIPPED.unit, "InvocationID"), dog.view("sglang")["budget"]["spent"]
    box.run("rm", RULES)
    SHIPPED.fault(box, "kill-scheduler")
    refused = dog.until(LONG, event="acted", result="refused")
    assert "polkit rule" in refused["message"]
    dog.until(LONG, event="intent", action="withhold", reason="MayNotRestart")
    view = dog.view("sglang")
    assert (view["budget"]["spent"], "MayNotRestart" in view["alerts"]) == (spent, True)
    assert "RestartRefused" not in view["alerts"]
    told = dog.ask("explain", server="sglang")["servers"][0]["why"]["restart"]
    assert any("Withheld (MayNotRestart)" in line for line in told)
    assert any("came to nothing before it was begun" in line and "does not count" in line for line in told)
    box.write(RULES, (UNITS / "sglang-watchdog.rules").read_text())
    wait_for(lambda: box.show(SHIPPED.unit, "InvocationID") != life, LONG, f"a new life\n{dog.told()}")
    wait_for(lambda: dog.view("sglang").get("verified"), LONG, "it serves")
    assert dog.view("sglang")["budget"]["spent"] == spent + 1
    assert len(dog.entries(event="acted", result="refused")) == 1


def test_a_second_daemon_on_the_same_directories_does_not_start(dog: Watchdog) -> None:
    box = dog.box
    pid, since = box.show(dog.unit, "MainPID"), len(dog.entries())
    second = box.run(COMMAND, "run", "--config", "/etc/wd/sglang-watchdog.toml", check=False)
    assert second.returncode == 75, second.stderr
    assert f"another sglang-watchdog (PID {pid}) has " in second.stderr
    assert box.show(dog.unit, "MainPID") == pid
    assert dog.view("sglang")["verified"]
    assert not [entry for entry in dog.entries()[since:] if entry.get("priority", "6") < "4"]


def test_a_unit_that_is_masked_is_not_restarted_until_it_is_unmasked(dog: Watchdog) -> None:
    box = dog.box
    life = box.show(SHIPPED.unit, "InvocationID")
    file = f"/etc/systemd/system/{SHIPPED.unit}"
    box.run("mv", file, "/run/aside")
    box.run("systemctl", "mask", SHIPPED.unit)
    SHIPPED.fault(box, "kill-scheduler")
    withheld = dog.until(LONG, event="intent", action="withhold", reason="UnitMissing")
    assert "unmask" in withheld["advice"]
    box.run("systemctl", "unmask", SHIPPED.unit)
    box.run("mv", "/run/aside", file)
    box.run("systemctl", "daemon-reload")
    wait_for(lambda: box.show(SHIPPED.unit, "InvocationID") != life, LONG, f"a new life\n{dog.told()}")
    wait_for(lambda: dog.view("sglang").get("verified"), LONG, "it serves")


def test_host_that_goes_down_is_left_to_go_down(dog: Watchdog) -> None:
    """Last, since it ends the box: server and watchdog outlive the others, as where the server drains for long."""
    box = dog.box
    box.run("systemctl", "stop", dog.unit)
    GOING.install(box)
    going = Watchdog(box, "wgoing", [GOING])
    going.write(going.config.replace(HOST, f"{HOST}unit_interval_s = 1\n"))
    for unit in (going.unit, "dbus.service", "dbus.socket"):  # without a bus nothing could be done anyway
        box.write(f"/etc/systemd/system/{unit}.d/stay.conf", "[Unit]\nDefaultDependencies=no\nIgnoreOnIsolate=yes\n")
    box.write("/etc/systemd/system/blocker.service", BLOCKER)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "blocker.service", GOING.unit, going.unit)
    wait_for(lambda: going.view("going").get("verified"), LONG, f"verified\n{going.told()}")
    life = box.show(GOING.unit, "InvocationID")
    box.run("systemctl", "poweroff", "--no-block")
    wait_for(lambda: box.run("systemctl", "is-system-running", check=False).stdout.strip() == "stopping", 10, "it goes down")
    GOING.fault(box, "kill-scheduler")
    wait_for(lambda: "ProcessesPresent" in going.view("going").get("wrong", []), 15, f"it sees the fault\n{going.told()}")
    view = wait_for(lambda: (v := going.view("going"))["stand_down"] and v, 10, "it stands down")
    assert view["stand_down"] == "the host is going down"
    assert not [e for e in going.entries(event="acted") if e["result"] in ("begun", "done")]
    assert box.show(GOING.unit, "InvocationID") == life
