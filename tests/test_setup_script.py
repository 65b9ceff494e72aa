"""packaging/setup.sh, with an interpreter that only plays what is asked of it: no package is fetched."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = """#!/bin/bash
cd "$CLONE"
case "$*" in
  --version) echo Python 3.12.1 ;;
  "-m venv "*) echo venv >>said; mkdir -p .venv/bin; cp "$0" .venv/bin/python; waits=venv ;;
  *requirements-dev*) echo dependencies >>said; waits=dependencies ;;
esac
if [ -p hold ] && [ "$waits" = "$(cat until)" ]; then
  echo $$ >child
  echo begun >hold
  read -r _ <go
fi
"""
INPUTS = ("packaging/setup.sh", "packaging/requirements-build.txt", "packaging/requirements-dev.txt", "pyproject.toml")


class Clone:
    """What setup.sh reads of a clone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "packaging").mkdir(parents=True)
        for name in (
            "packaging/setup.sh",
            "packaging/requirements-build.txt",
            "packaging/requirements-dev.txt",
            "pyproject.toml",
        ):
            shutil.copy(ROOT / name, root / name)
        (root / "python").write_text(PYTHON)
        (root / "python").chmod(0o755)

    def begin(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.root / "packaging/setup.sh"],
            env={
                **os.environ,
                "CLONE": str(self.root),
                "PATH": f"{self.root}:{os.environ['PATH']}",
                "PYTHON": "python",
                "SYSTEM_PACKAGES": "present",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self) -> str:
        with self.begin() as p:
            told, said = p.communicate(timeout=30)
        assert (p.returncode, said) == (0, "")
        return told

    @contextmanager
    def held(self, step: str) -> "Iterator[subprocess.Popen[str]]":
        """A run that has come to a step and waits there."""
        (self.root / "until").write_text(step)
        os.mkfifo(self.root / "hold")
        os.mkfifo(self.root / "go")
        with self.begin() as p:
            assert (self.root / "hold").read_text() == "begun\n"
            (self.root / "hold").unlink()
            yield p
        (self.root / "go").unlink()

    def steps(self) -> list[str]:
        """What was made since the last time that this was asked."""
        said = self.root / "said"
        steps = said.read_text().split() if said.exists() else []
        said.unlink(missing_ok=True)
        return steps


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "a b")


def gone(pid: int) -> bool:
    """Whether a process has ended, as init looks after it sooner or later."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_it_is_made_once(clone: Clone) -> None:
    assert clone.run().endswith("setup: ready; the command is .venv/bin/sglang-watchdog\n")
    assert clone.steps() == ["venv", "dependencies"]
    assert clone.run() == ""
    with (clone.root / "pyproject.toml").open("a") as file:
        file.write("# another\n")
    clone.run()
    assert clone.steps() == ["dependencies"], "a whole environment is brought up to date, not made anew"


@pytest.mark.parametrize("step", ["venv", "dependencies"])
@pytest.mark.parametrize("made_before", [False, True])
def test_after_a_run_that_was_interrupted_it_is_made_anew(clone: Clone, step: str, *, made_before: bool) -> None:
    if made_before:
        clone.run()
        with (clone.root / "pyproject.toml").open("a") as file:
            file.write("# another\n")
        if step == "venv":
            (clone.root / ".venv/bin/python").unlink()
    with clone.held(step) as p:
        os.killpg(p.pid, signal.SIGINT)  # as a terminal does
        _, said = p.communicate(timeout=30)
    assert (p.returncode, said) == (130, "setup: interrupted; the next run begins anew\n")
    assert gone(int((clone.root / "child").read_text())), "nothing goes on behind one's back"
    clone.steps()

    clone.run()

    assert clone.steps() == ["venv", "dependencies"]


def test_a_run_that_was_killed_leaves_no_environment_that_looks_whole(clone: Clone) -> None:
    with clone.held("dependencies") as p:
        p.kill()
        os.kill(int((clone.root / "child").read_text()), signal.SIGKILL)
        p.communicate(timeout=30)
    clone.steps()
    assert clone.run().endswith("setup: ready; the command is .venv/bin/sglang-watchdog\n")
    assert clone.steps() == ["venv", "dependencies"]


def test_the_second_of_two_at_once_says_that_it_waits(clone: Clone) -> None:
    with clone.held("venv") as first, clone.begin() as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "setup: another run makes the environment of this clone; waiting for it\n"
        (clone.root / "go").write_text("\n")
        first.communicate(timeout=30)
        assert (second.communicate(timeout=30)[0], first.returncode, second.returncode) == ("", 0, 0)
    assert clone.steps() == ["venv", "dependencies"]
