"""The box itself: what the other box tests lean on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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


BOOT = f"""
import secrets, sys
sys.path.insert(0, {str(PROJECT)!r})
from tests.box.box import Box
secrets.token_hex = lambda _: sys.argv[1]
with Box():
    print("it came up", flush=True)
    sys.stdin.read()
"""


def outer(folder: Path) -> str:
    """The process that holds the box, as soon as there is one."""
    try:
        return (folder / "outer").read_text().strip()
    except FileNotFoundError:
        return ""


def first(folder: Path) -> str:
    """PID 1 of the box, seen from outside, as soon as it is systemd."""
    if not outer(folder):
        return ""
    pids = subprocess.run(["pgrep", "-P", outer(folder), "-x", "systemd"], capture_output=True, text=True, check=False).stdout
    return pids.strip()


def left(folder: Path) -> str:
    """What there is of a box: its folder, its cgroup, its processes outside."""
    cgroups = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"]
    places = [folder, *(Path(each) / f"box-{folder.name}" for each in cgroups)]
    processes = subprocess.run(["pgrep", "-fa", f"{folder}$|{folder} "], capture_output=True, text=True, check=False).stdout
    return "".join(f"{place}\n" for place in places if place.exists()) + processes


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("when", [Path.exists, outer, first], ids=["folder", "outer", "systemd"])
def test_whoever_is_ended_while_it_boots_leaves_nothing(when: Callable[[Path], object], how: signal.Signals) -> None:
    """A ^C reaches the whole group of processes; SIGKILL ends the owner alone, who can do nothing about it."""
    folder = PROJECT / ".cache" / f"box-ended-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", BOOT, folder.name.removeprefix("box-")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as owner:
        end = time.monotonic() + 30
        while not when(folder):
            assert time.monotonic() < end
        if how is signal.SIGINT:
            os.killpg(owner.pid, how)
        else:
            owner.send_signal(how)
    try:
        wait_for(lambda: not left(folder), 20, "nothing left of it")
    finally:
        subprocess.run([SCRIPT, "stop", folder], check=False)


def test_a_folder_in_which_nothing_has_begun_is_removed_too(tmp_path: Path) -> None:
    folder = tmp_path / "box"
    folder.mkdir()
    subprocess.run([SCRIPT, "stop", folder], check=True, timeout=20)
    assert not folder.exists()


def test_a_box_that_does_not_come_up_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    folder = PROJECT / ".cache" / f"box-failed-{os.getpid()}"
    failed = subprocess.run(
        [SCRIPT, "start", folder],
        check=False,
        timeout=90,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BOX_OWNER": str(os.getpid()), "BOX_ROOT": str(tmp_path / "none")},
    )
    assert failed.returncode == 1
    assert "box: it did not come up:" in failed.stderr and "none" in failed.stderr
    wait_for(lambda: not left(folder), 20, "nothing left of it")
