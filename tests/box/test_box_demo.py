"""The demo, ended before its time: one line says so, and nothing of it is left. To its end it is run by `make demo`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.box.box import PROJECT, wait_for

BOOTING = "booting a private systemd"


@contextmanager
def demo() -> "Iterator[subprocess.Popen[str]]":
    """It has begun to boot; in the end nothing of its box is left, however it ended."""
    with subprocess.Popen(
        [sys.executable, PROJECT / "packaging/demo.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as p:
        assert p.stdout is not None
        assert BOOTING in p.stdout.readline()
        yield p
    wait_for(lambda: not keeper(p.pid), 20, "the keeper of its box has done its work")


def keeper(owner: int) -> str:
    """The process that holds the box of another."""
    return subprocess.run(["pgrep", "-f", f"__keep .* {owner}$"], capture_output=True, text=True, check=False).stdout


def test_interrupted_while_it_boots() -> None:
    with demo() as p:
        os.killpg(p.pid, signal.SIGINT)
        _, said = p.communicate(timeout=30)
    assert p.returncode == 130
    assert said == "demo: interrupted; its systemd has ended, with all in it\n"


def test_interrupted_again_and_again() -> None:
    with demo() as p:
        assert p.stdout is not None
        assert "sglang-watchdog.service is ready" in p.stdout.readline()
        while p.poll() is None:
            os.killpg(p.pid, signal.SIGINT)
        _, said = p.communicate(timeout=30)
    assert p.returncode == 130
    assert said == "demo: interrupted; its systemd has ended, with all in it\n"


def test_nobody_reads_on() -> None:
    with demo() as p:
        assert p.stdout is not None and p.stderr is not None
        p.stdout.close()
        said = p.stderr.read()
        assert p.wait(timeout=30) == 1
    assert said == "demo: nobody reads its output any more; its systemd has ended, with all in it\n"


def test_where_no_systemd_can_be_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_ROOT", "/nowhere")
    with demo() as p:
        _, said = p.communicate(timeout=90)
    assert p.returncode == 1
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("demo: the private systemd did not come up (see above): it needs root")
