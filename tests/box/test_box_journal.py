"""The journal source against a real journald: nothing lost, nothing twice, whatever happens to the journal."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.box import Box, wait_for

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
NO_RATE_LIMIT = "LogRateLimitIntervalSec=1\nLogRateLimitBurst=10000000\n"

COUNT = f"""[Service]
ExecStart={PYTHON} -uc 'import time\\nfor i in range(%d):\\n  print("line", i, flush=True)\\n  time.sleep(%g)\\ntime.sleep(600)'
{NO_RATE_LIMIT}"""


class Follower:
    """A JournalSource (or KernelSource) at work inside the box."""

    def __init__(self, box: Box, out: Path, *args: str) -> None:
        self.out = out
        with out.open("w") as file:
            self.process = box.popen(
                *("env", f"PYTHONPATH={ROOT}", PYTHON, "-m", "tests.box.journal_follow", *args),
                stdin=-1,  # subprocess.PIPE: closed, it ends the follower
                stdout=file,
            )
        self.until(lambda: self.seen("ready") or self.seen("error"), "ready")

    def lines(self) -> list[dict[str, Any]]:
        whole = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.split("\n") if line]

    def seen(self, key: str) -> list[Any]:
        return [line[key] for line in self.lines() if key in line]

    def messages(self, origin: str = "server") -> list[str]:
        return [x["message"] for x in self.lines() if x.get("kind") == "log" and x.get("from", "server") == origin]

    def until(self, what: Callable[[], object], said: str, limit: float = 20) -> None:
        wait_for(what, limit, said)

    def end(self) -> dict[str, Any]:
        """Stop it; what it said at its end."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        assert self.process.wait(20) == 0
        return self.lines()[-1]


@pytest.fixture
def follow(box: Box, tmp_path: Path) -> Iterator[Callable[..., Follower]]:
    begun: list[Follower] = []

    def start(*args: str) -> Follower:
        follower = Follower(box, tmp_path / f"out{len(begun)}", *args)
        begun.append(follower)
        return follower

    yield start
    for follower in begun:
        follower.end()


def inv(box: Box, unit: str) -> str:
    return box.show(unit, "InvocationID")


def counted(n: int) -> list[str]:
    return [f"line {i}" for i in range(n)]


def test_history_and_what_follows_meet_without_a_seam(box: Box, follow: Callable[..., Follower]) -> None:
    box.unit("seam.service", COUNT % (400, 0.005))
    box.run("systemctl", "start", "seam.service")
    life = inv(box, "seam.service")
    wait_for(lambda: "line 250" in box.journal("-u", "seam.service"), 10)
    follower = follow("seam.service", "--inv", life)
    follower.until(lambda: "line 399" in follower.messages(), "the last line")
    assert [m for m in follower.messages() if m.startswith("line")] == counted(400)
    assert "Started seam.service." in follower.messages("systemd")
    logs = [x for x in follower.lines() if x.get("message", "").startswith("line")]
    assert {x["inv"] for x in logs} == {life}
    assert {x["priority"] for x in logs} == {6}
    assert {type(x["pid"]) for x in logs} == {int}
    assert {x["ident"] for x in logs} == {Path(PYTHON).name}
    assert logs[0]["t"] - logs[0]["at"] > 0.4
    assert "at" not in logs[-1]
    box.run("systemctl", "stop", "seam.service")
    follower.until(lambda: any("Stopped" in m for m in follower.messages("systemd")), "PID 1's word")
    assert follower.end()["healthy"]


def test_an_inactive_unit_is_read_from_now_on_and_through_its_lives(box: Box, follow: Callable[..., Follower]) -> None:
    box.unit("lives.service", "[Service]\nExecStart=/bin/sh -c 'echo this is $INVOCATION_ID; exec sleep 600'\n")
    never = follow("never-ran.service")
    box.run("systemctl", "restart", "lives.service")
    box.run("systemctl", "stop", "lives.service")
    follower = follow("lives.service")
    lives = []
    for _ in range(3):
        box.run("systemctl", "restart", "lives.service")
        lives.append(inv(box, "lives.service"))
    follower.until(lambda: f"this is {lives[-1]}" in follower.messages(), "the third life")
    logs = [x for x in follower.lines() if x.get("message", "").startswith("this is")]
    assert [x["message"] for x in logs] == [f"this is {life}" for life in lives]
    assert [x["inv"] for x in logs] == lives
    started = [x for x in follower.lines() if x.get("message") == "Started lives.service."]
    assert [(x["inv"], x["from"], x["pid"]) for x in started] == [(life, "systemd", 1) for life in lives]
    box.unit("never-ran.service", "[Service]\nExecStart=/bin/sh -c 'echo first; exec sleep 600'\n")
    box.run("systemctl", "start", "never-ran.service")
    never.until(lambda: never.messages() == ["first"], "the first line of a unit that had never logged")


@pytest.mark.parametrize("renew_s", ["0.7", "300"])
def test_rotation_vacuum_and_restarts_of_journald_lose_nothing(box: Box, follow: Callable[..., Follower], renew_s: str) -> None:
    box.unit("turned.service", COUNT % (500, 0.005))
    box.run("systemctl", "stop", "turned.service")
    box.run("systemctl", "reset-failed", "systemd-journald.service")
    follower = follow("turned.service", "--renew", renew_s)
    box.run("systemctl", "start", "turned.service")
    for i in range(6):
        time.sleep(0.3)
        box.run("journalctl", "--rotate")
        box.run("journalctl", "--vacuum-files=2")
        if i in (2, 4):
            box.run("systemctl", "restart", "systemd-journald.service")
    follower.until(lambda: "line 499" in follower.messages(), "the last line")
    time.sleep(0.3)
    assert Counter(m for m in follower.messages() if m.startswith("line")) == Counter(counted(500))
    left_open = box.run("sh", "-c", "ls -l /proc/$(pgrep -f journal_follow)/fd | grep deleted || true").stdout
    assert ".journal" not in left_open
    follower.end()


def test_a_journal_that_is_emptied_under_the_reader_does_not_end_it(box: Box, follow: Callable[..., Follower]) -> None:
    """The archives are cut short while they are mapped, as a vacuum does where holes cannot be punched, and then removed.

    What was not read yet of an archive that was just rotated is gone then.
    """
    box.unit("emptied.service", COUNT % (500, 0.005))
    follower = follow("emptied.service")
    box.run("systemctl", "start", "emptied.service")
    archives = "/var/log/journal/*/system@*.journal"
    for _ in range(8):
        time.sleep(0.2)
        box.run("sh", "-c", f"journalctl --rotate; sleep 0.1; truncate -s 0 {archives}; sleep 0.1; rm {archives}")
    follower.until(lambda: "line 499" in follower.messages(), "the last line")
    numbers = [int(m.split()[1]) for m in follower.messages() if m.startswith("line")]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 400
    assert follower.end()["healthy"]


def test_a_long_life_is_read_at_both_ends_and_a_flood_keeps_the_loop_free(box: Box, follow: Callable[..., Follower]) -> None:
    box.unit("flood.service", COUNT % (12_000, 0))
    box.run("systemctl", "start", "flood.service")
    wait_for(lambda: "line 11999" in box.journal("-u", "flood.service", "-n", "5"), 30)
    began = time.monotonic()
    follower = follow("flood.service", "--inv", inv(box, "flood.service"))
    follower.until(lambda: "line 11999" in follower.messages(), "the last line")
    assert time.monotonic() - began < 10
    numbers = [int(m.split()[1]) for m in follower.messages() if m.startswith("line")]
    assert numbers == sorted(set(numbers))
    assert numbers[:3900] == list(range(3900))
    assert numbers[-1900:] == list(range(12_000 - 1900, 12_000))
    assert len(numbers) < 7000
    box.run("systemctl", "restart", "flood.service")
    follower.until(lambda: follower.messages().count("line 11999") == 2, "the flood", limit=30)
    numbers = [int(m.split()[1]) for m in follower.messages()[len(numbers) :] if m.startswith("line")]
    assert numbers == list(range(12_000))
    end = follower.end()
    assert end["dropped"] == 0
    assert end["worst_lag_s"] < 0.5
    box.run("systemctl", "stop", "flood.service")


def test_messages_that_journald_dropped_are_told(box: Box, follow: Callable[..., Follower]) -> None:
    script = 'for i in range(3000): print("line", i, flush=True)\\nimport time\\ntime.sleep(2.5)\\nprint("after", flush=True)'
    box.unit(
        "limited.service",
        f"[Service]\nExecStart={PYTHON} -uc '{script.replace('for', 'for', 1)}'\nType=exec\n"
        "LogRateLimitIntervalSec=2\nLogRateLimitBurst=50\n",
    )
    follower = follow("limited.service")
    box.run("systemctl", "start", "limited.service")
    life = inv(box, "limited.service")
    follower.until(lambda: "after" in follower.messages(), "the line after the limit")
    [notice] = [x for x in follower.lines() if x.get("from") == "journald"]
    assert notice["dropped"] == 3000 - len([m for m in follower.messages() if m.startswith("line")])
    assert notice["dropped"] > 1000
    assert notice["inv"] == life
    assert "limited.service" in notice["message"]


def test_forged_fields_do_not_get_through(box: Box, follow: Callable[..., Follower]) -> None:
    box.unit("true.service", "[Service]\nExecStart=/bin/sh -c 'echo true; exec sleep 600'\n")
    follower = follow("true.service")
    forged = (
        "from systemd import journal\n"
        "journal.send('forged', UNIT='true.service', INVOCATION_ID='0' * 32, SYSLOG_IDENTIFIER='systemd')\n"
        "journal.send('forged', OBJECT_SYSTEMD_UNIT='true.service', N_DROPPED='9', SYSLOG_IDENTIFIER='systemd-journald')\n"
        "journal.send('forged', **{'_SYSTEMD_UNIT': 'true.service', '_PID': '1'}, UNIT='true.service')\n"
        "batch = '[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 3, #token: 9, forged'\n"
        "journal.send(batch, UNIT='true.service')\n"
        "journal.send(batch, OBJECT_SYSTEMD_UNIT='true.service')\n"
    )
    box.run("systemctl", "start", "true.service")
    follower.until(lambda: "true" in follower.messages(), "the true line")
    box.run(PYTHON, "-c", forged)
    box.run("systemctl", "restart", "true.service")
    follower.until(lambda: follower.messages().count("true") == 2, "the true line again")
    assert box.journal().count("forged") == 5
    assert [x for x in follower.lines() if "forged" in x.get("message", "")] == []


def test_lines_of_any_length_and_content(box: Box, follow: Callable[..., Follower]) -> None:
    script = r"""
import os, sys
w = lambda b: os.write(1, b) == len(b) or sys.exit(1)
def all(b):
    while b:
        b = b[os.write(1, b):]
all(b"LONG-BEGINS" + b"x" * 120000 + b"LONG-ENDS\n")
all(b"\xff\xfe invalid \x80\n")
all(b"\x1b[31mred\x1b[0m \x07bell\n")
all(b"before NUL\x00after NUL\n")
all(b"1," * 600000 + b"MEGA-ENDS\n")
all(b"short\n")
all(b"no newline " + b"y" * 50000)
"""
    box.write("/opt/odd.py", script)
    box.unit("odd.service", f"[Service]\nType=oneshot\nExecStart={PYTHON} /opt/odd.py\n{NO_RATE_LIMIT}")
    follower = follow("odd.service")
    box.run("systemctl", "start", "odd.service")
    follower.until(lambda: any(m.startswith("no newline") for m in follower.messages()), "the last line")
    messages = follower.messages()
    long, invalid, colour = messages[:3]
    assert long.startswith("LONG-BEGINSxxx")
    assert long.endswith("xxxLONG-ENDS")
    assert "[111828 bytes left out]" in long
    assert invalid == "�� invalid �"
    assert colour == "\x1b[31mred\x1b[0m \x07bell"
    assert "before NUL" in messages[3]
    mega = next(m for m in messages if m.endswith("MEGA-ENDS"))
    assert mega.startswith("1,1,1,")
    assert [m for m in messages if "1,1," in m] == [mega]
    assert "short" in messages
    assert all(len(m) < 9000 for m in messages)


def test_a_unit_with_a_journal_of_its_own(box: Box, follow: Callable[..., Follower]) -> None:
    unit = "[Service]\nExecStart=/bin/sh -c 'sleep 0.3; echo apart; exec sleep 600'\nLogNamespace=apart\n"
    box.unit("apart.service", unit)
    early = follow("apart.service", "--namespace", "apart")
    box.run("systemctl", "start", "apart.service")
    early.until(lambda: "apart" in early.messages(), "a line of a namespace that did not exist when we began")
    assert "Started apart.service." in early.messages("systemd")
    late = follow("apart.service", "--namespace", "apart", "--inv", inv(box, "apart.service"))
    late.until(lambda: "apart" in late.messages(), "history")
    assert "Started apart.service." in late.messages("systemd")
    wrong = follow("apart.service", "--namespace", "wrong", "--inv", inv(box, "apart.service"))
    wrong.until(lambda: wrong.seen("error"), "the error, which may come after what PID 1 said")
    assert "set journal_namespace to the LogNamespace=" in wrong.seen("error")[0]


def test_rights(box: Box, follow: Callable[..., Follower]) -> None:
    on_the_way = {folder for path in (PYTHON, os.path.realpath(PYTHON), ROOT / "tests") for folder in Path(path).parents}
    box.run("chmod", "o+x", *map(str, on_the_way))
    box.unit("seen.service", "[Service]\nExecStart=/bin/sh -c 'echo seen; exec sleep 600'\n")
    refused = follow("seen.service", "--nobody")
    assert "into the group systemd-journal" in refused.seen("error")[0]
    assert not refused.end()["healthy"]
    allowed = follow("seen.service", "--nobody", "--group", "systemd-journal")
    box.run("systemctl", "start", "seen.service")
    allowed.until(lambda: "seen" in allowed.messages(), "the line")


def test_the_kernel_log(box: Box, follow: Callable[..., Follower]) -> None:
    """A pipe stands in for /dev/kmsg: journald reads the kernel's records from it and marks them as the kernel's."""
    hold = "mkfifo /dev/pipe && exec 3<>/dev/pipe && mv /dev/pipe /dev/kmsg && exec sleep 600"
    box.unit("kmsg.service", f"[Service]\nExecStart=/bin/sh -c '{hold}'\n")
    box.run("systemctl", "start", "kmsg.service")
    wait_for(lambda: box.run("test", "-p", "/dev/kmsg", check=False).returncode == 0, 5)
    box.run("systemctl", "restart", "systemd-journald.service")

    def kernel_says(number: int, text: str) -> None:
        box.run("sh", "-c", f'printf "4,{number},1000,-;%s\\n" "$1" > /dev/kmsg', "sh", text)

    kernel_says(1, "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")
    wait_for(lambda: "Xid" in box.journal("-k"), 5)
    time.sleep(1.2)
    follower = follow("any.service", "--kernel")
    kernel_says(2, "Out of memory: Killed process 4242 (sglang::schedul)")
    box.run(PYTHON, "-c", "from systemd import journal; journal.send('forged', _TRANSPORT='kernel')")
    follower.until(lambda: len(follower.seen("message")) >= 2, "both lines")
    xid, oom = [x for x in follower.lines() if x.get("kind") == "kernel"]
    assert xid["message"].startswith("NVRM: Xid")
    assert xid["t"] - xid["at"] > 1
    assert xid["priority"] == 4
    assert oom["message"] == "Out of memory: Killed process 4242 (sglang::schedul)"
    assert "at" not in oom


def test_no_journal_at_all(box: Box, follow: Callable[..., Follower]) -> None:
    box.write("/etc/systemd/journald.conf.d/none.conf", "[Journal]\nStorage=none\n")
    box.run("systemctl", "restart", "systemd-journald.service")
    box.run("sh", "-c", "rm -rf /var/log/journal/* /run/log/journal/*")
    follower = follow("any.service")
    assert "set Storage= in journald.conf" in follower.seen("error")[0]
    assert not follower.end()["healthy"]
