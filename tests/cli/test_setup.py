"""What `setup` does with the answer to its question."""

from argparse import Namespace
from pathlib import Path

import pytest

from watchdog.cli import setup
from watchdog.cli.exits import CANNOT, CommandError
from watchdog.setup import guide
from watchdog.setup.plan import File, Manifest


class Keyboard:
    """Standard input at a terminal; None is Ctrl-D."""

    def __init__(self, line: str | None) -> None:
        self.line = line

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return "" if self.line is None else self.line


@pytest.mark.parametrize("answer", [None, "\n", "n\n", "what?\n"])
def test_nothing_is_done_without_a_yes(answer: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest(tmp_path / "setup")
    manifest.write(File(path=tmp_path / "file", text="ours\n", why="a test"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.stdin", Keyboard(answer))
    monkeypatch.setattr(guide, "undo", lambda *_: pytest.fail("it was done"))

    with pytest.raises(CommandError, match="nothing was done") as caught:
        setup._undo(Namespace(dry_run=False, yes=False), manifest)

    assert caught.value.status == CANNOT


def test_a_yes_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("Yes\n"))
    assert setup._asked("Do this?")
