"""What the files of one server remember, read beside the event loop: a disk that does not answer must not hold up the daemon."""

from pathlib import Path
from typing import NamedTuple

from watchdog.baseline import BaselineFile, Kept
from watchdog.clock import Clock
from watchdog.state import Saved, StateFile
from watchdog.worker import Worker

LIMIT_S = 3.0
"""The daemon waits so long for these files, in seconds, and then begins to watch without them; they are read on."""


class Recall(NamedTuple):
    """What was read.

    Attributes:
        saved, trouble: of the state file, as `StateFile.load` says it.
        kept, wrong: of the baseline file, as `BaselineFile.load` says it.
        read: whether the files have been read; else there is no telling what stands in them.
    """

    saved: Saved
    trouble: str | None
    kept: Kept
    wrong: str | None
    read: bool = True


def state_file(home: Path, clock: Clock, unit: str = "") -> StateFile:
    """The state file of the server whose folder is `home`."""
    return StateFile(home / "state.json", clock, unit)


def baseline_file(home: Path) -> BaselineFile:
    """Its baseline file."""
    return BaselineFile(home / "baseline.json")


def recall(home: Path, clock: Clock, unit: str = "") -> Recall:
    """Read them. Blocks for as long as the disk does."""
    return Recall(*state_file(home, clock, unit).load(), *baseline_file(home).load())


def unread() -> Recall:
    """What is known before they were read."""
    return Recall(Saved(), None, Kept(), None, read=False)


async def recalled(home: Path, clock: Clock, unit: str) -> Recall:
    """Read them in a thread, for as long as it takes."""
    return await Worker("memory").call(lambda: recall(home, clock, unit), None)
