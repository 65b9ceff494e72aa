"""`run`: the daemon itself."""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from watchdog import config, log
from watchdog.cli.options import config_option


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = commands.add_parser(
        "run",
        help="run the daemon (systemd does this)",
        description="Run the daemon until SIGTERM. SIGHUP reads the configuration again.",
    )
    config_option(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    whole = config.load(Path(args.config))
    log.configure()
    from watchdog.daemon import Daemon  # noqa: PLC0415  # what only the daemon needs is not loaded for the other commands

    asyncio.run(_run(Daemon(whole, Path(args.config))))
    # A thread that is stuck in the kernel (a wedged driver, a dead disk) must not keep us from ending.
    os._exit(0)


async def _run(daemon: Any) -> None:
    await daemon.run()
