"""Faults to order: a directory in which each file is a fault, with its settings as JSON.

A fault lasts as long as its file, or for its `seconds`; the faults that happen once take their file away. A start of the server
clears the directory, so that a restart cures, except for faults that were ordered with `sticky=1`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from watchdog.standin.parser import Parser

DEFAULT_DIR = "/tmp/sglang-standin-faults"

FAULTS = {
    "hang": "the scheduler is stuck in its next forward pass, /health 503 after its limit (where=loop: at once, even if idle)",
    "hang-behind-200": "the same, while /health says 200, as a shallow health check does",
    "stall-detokenizer": "the detokenizer stands still: nothing is answered, yet the scheduler works on",
    "busy": "long prompts without end: /health 503 at times, batch lines go on, requests end (step=S seconds a pass)",
    "crawl": "every pass takes longer (factor=50)",
    "kill-scheduler": "SIGKILL to a scheduler (rank=0), once",
    "kill-detokenizer": "SIGKILL to the detokenizer, once",
    "exit-0": "the scheduler exits with status 0, once; SGLang never notices",
    "exception": "an exception in the scheduler, once (text=…)",
    "oom": "GPU out of memory in the scheduler, once",
    "cuda-error": "a CUDA error in the scheduler, once",
    "garbage": "answers are nonsense (mode=bang '!!!!', mode=repeat one word, mode=control characters)",
    "empty": "answers have no content, behind a 200",
    "reset-streams": "connections are cut in the middle of an answer (after=2 chunks)",
    "slow-first-byte": "answers begin late (seconds_late=5)",
    "queue-full": "new requests get 503 'The request queue is full.'; /health stays 200",
    "ignore-sigterm": "SIGTERM is not heard",
    "log-flood": "harmless lines (lines=500 a second)",
    "leak": "a scheduler's memory grows (mb=10 a second, rank=0)",
    "shrink-pool": "a part of the host pool of every rank is given back, once (fraction=0.5)",
    "damaged-host-pool": "prompts that come back from the host pool are answered with nonsense",
    "evict": "all that the GPU caches goes to the host pool, once",
    "freeze": "the parent stands still: connections open, no answers",
    "metrics-off": "/metrics is 404",
    "metrics-garbage": "/metrics answers nonsense",
}

Settings = dict[str, Any]


class Faults:
    """What is ordered now, as one process of the server sees it."""

    def __init__(self, directory: Path | None) -> None:
        self._dir = directory
        self._seen: dict[str, int] = {}

    def prepare(self) -> None:
        """Make the directory and clear it, but for sticky faults; for the parent, before it forks."""
        if self._dir is None:
            return
        self._dir.mkdir(parents=True, exist_ok=True)
        for name in FAULTS:
            settings = self.active(name)
            if settings is not None and not settings.get("sticky"):
                (self._dir / name).unlink(missing_ok=True)

    def active(self, name: str) -> Settings | None:
        """The settings of a fault that holds now, else None."""
        if self._dir is None:
            return None
        path = self._dir / name
        try:
            settings = json.loads(path.read_text())
            ordered = path.stat().st_mtime
        except (OSError, ValueError):
            return None
        if not isinstance(settings, dict):
            return None
        seconds = settings.get("seconds")
        if isinstance(seconds, int | float) and time.time() > ordered + seconds:
            return None
        return settings

    def take(self, name: str) -> Settings | None:
        """The settings of a fault that happens once: taken by the process that carries it out, but for sticky ones."""
        settings = self.active(name)
        if settings is None or self._dir is None:
            return None
        path = self._dir / name
        if settings.get("sticky"):
            changed = path.stat().st_mtime_ns
            if self._seen.get(name) == changed:
                return None
            self._seen[name] = changed
        else:
            path.unlink(missing_ok=True)
        return settings

    def changed(self, name: str) -> Settings | None:
        """The settings of a fault that each rank carries out once, without taking it away: None if seen before."""
        settings = self.active(name)
        if settings is None or self._dir is None:
            return None
        changed = (self._dir / name).stat().st_mtime_ns
        if self._seen.get(name) == changed:
            return None
        self._seen[name] = changed
        return settings


def write(directory: Path, name: str, settings: Settings) -> None:
    """Order a fault.

    Raises:
        ValueError: no such fault.
        OSError: the directory cannot be written.
    """
    if name not in FAULTS:
        raise ValueError(f"no fault {name!r}; known are {', '.join(sorted(FAULTS))}, clear")
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f".{name}.{os.getpid()}"
    with part.open("x") as file:  # whatever lies there already, such as a link of somebody else's, is not written into
        file.write(json.dumps(settings))
    part.rename(directory / name)


def clear(directory: Path, name: str | None = None) -> None:
    """End one fault, or all."""
    for known in [name] if name else FAULTS:
        (directory / known).unlink(missing_ok=True)


def order(argv: Sequence[str]) -> int:
    """The command `fault`: 0 if the fault is ordered, 2 if it cannot be."""
    listing = "\n".join(f"  {name:18} {text}" for name, text in FAULTS.items())
    parser = Parser(
        prog="sglang-watchdog standin fault",
        description="Order a fault of a running stand-in server.",
        epilog=f"faults:\n{listing}\n  {'clear':18} end all faults, or the one named by `clear NAME`\n\n"
        "Every fault takes seconds=S (how long it lasts) and sticky=1 (it is still there after a restart of the server).\n\n"
        "example:\n  sglang-watchdog standin fault hang seconds=60",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fault-dir", type=Path, default=Path(os.environ.get("STANDIN_FAULT_DIR", DEFAULT_DIR)), metavar="DIR")
    parser.add_argument("name", metavar="NAME", help="the fault, or clear")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of the fault")
    args = parser.parse_args(argv)
    try:
        if args.name == "clear":
            clear(args.fault_dir, args.settings[0] if args.settings else None)
        else:
            write(args.fault_dir, args.name, dict(map(_setting, args.settings)))
    except (OSError, ValueError) as error:
        print(f"fault: {error}", file=sys.stderr)  # noqa: T201 (a command speaks to its terminal)
        return 2
    return 0


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
