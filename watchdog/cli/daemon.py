"""`run`: the daemon itself."""

import argparse
import asyncio
import contextlib
import ctypes
import os
import traceback
from pathlib import Path
from typing import Any, NoReturn

from watchdog import config, log
from watchdog.cli.exits import INTERNAL, OK, TAKEN
from watchdog.cli.options import command, config_option
from watchdog.single import TakenError

M_ARENA_MAX = -8  # malloc.h of glibc


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "run",
        "run the daemon (systemd does this)",
        "Run the daemon until SIGTERM or Ctrl-C. SIGHUP reads the configuration again.\n\n"
        "Exit status: 0 it was told to end, 75 another daemon is at work on the same state or runtime directory, 78 the "
        "configuration has faults.",
        "sglang-watchdog run --config ./sglang-watchdog.toml",
    )
    config_option(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    _one_arena()
    whole = config.load(Path(args.config))
    log.configure()
    from watchdog.daemon import Daemon  # noqa: PLC0415  # what only the daemon needs is not loaded for the other commands

    return asyncio.run(_run(Daemon(whole, Path(args.config))))


def _one_arena() -> None:
    """Let all threads allocate from one heap: ours live briefly, and glibc would give each a heap of its own (mallopt(3))."""
    with contextlib.suppress(AttributeError):  # a libc without it has no arenas either
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


async def _run(daemon: Any) -> NoReturn:
    try:
        await daemon.run()
        status = OK
    except TakenError:  # the daemon has told of it
        status = TAKEN
    except Exception as e:  # noqa: BLE001
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        message = f"{type(e).__name__}: {e} (at {where}); this is a fault of sglang-watchdog, please report it"
        log.get().critical("internal-fault", message=message)
        status = INTERNAL
    # Not through the interpreter's own end: a task or a thread that is stuck (a wedged driver, a dead disk) would hold us up.
    os._exit(status)
