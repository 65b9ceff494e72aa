"""The box itself: what the other box tests lean on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.box.box import PROJECT, SCRIPT, Box, wait_for


def test_systemd_is_pid_1_and_well(box: Box) -> None:
    assert box.run("cat", "/proc/1/comm").stdout.strip() == "systemd"
    assert box.run("systemctl", "--failed", "--no-legend", "--plain").stdout == ""


def test_a_unit_runs_and_its_lines_are_in_the_journal(box: Box) -> None:
    box.unit("hello.service", "[Service]\nType=oneshot\nExecStart=/bin/echo 'good \"evening\"'\nRemainAfterExit=yes\n")
    box.run("systemctl", "start", "hello.service")
    assert box.show("hello.service", "ActiveState") == "active"
    wait_for(lambda: 'good "evening"' in box.journal("-u", "hello.service"), 5, "the unit's line in the journal")


def test_the_checkout_and_its_interpreter_are_seen_inside(box: Box) -> None:
    assert box.run(sys.executable, "-c", "import watchdog; print(watchdog.__file__)").stdout.strip() == str(
        PROJECT / "watchdog/__init__.py"
    )


def test_what_is_written_inside_stays_inside(box: Box) -> None:
    box.write("/etc/box-test/a file", "x")
    assert box.run("cat", "/etc/box-test/a file").stdout == "x"
    assert not Path("/etc/box-test").exists()


def test_places_outside_are_not_named_inside(box: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert str(tmp_path) not in box.run("env").stdout


def test_the_machine_is_out_of_reach(box: Box) -> None:
    assert box.run("hostname", "inside").returncode == 0
    assert os.uname().nodename != "inside"
    assert box.run("sh", "-c", "cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness", check=False).returncode != 0
    assert box.run("readlink", "/proc/self/cwd").stdout == "/\n"
    inside = box.run("ls", "/sys/class/net").stdout.split()
    assert "lo" in inside
    assert "eth0" not in inside


def test_a_failed_command_says_what_it_printed(box: Box) -> None:
    with pytest.raises(AssertionError, match=r"(?s)ended with 3.*the reason"):
        box.run("sh", "-c", "echo the reason; exit 3")


def test_it_ends_with_its_owner(tmp_path: Path) -> None:
    folder = PROJECT / ".cache" / f"box-owned-{os.getpid()}"
    with subprocess.Popen(["sleep", "60"]) as owner:
        subprocess.run([SCRIPT, "start", folder], check=True, timeout=60, env={**os.environ, "BOX_OWNER": str(owner.pid)})
        try:
            first = int((folder / "pid").read_text())
            owner.kill()
            wait_for(lambda: not folder.exists(), 10, "the box gone")
        finally:
            subprocess.run([SCRIPT, "stop", folder], check=False)
    assert not Path(f"/proc/{first}").exists()
