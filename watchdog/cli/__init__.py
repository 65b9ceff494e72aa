"""The command `sglang-watchdog`: one module for each group of subcommands, each thin, and loaded only when it is needed.

Even `argparse` is loaded only in `main`: whoever presses Ctrl-C meanwhile gets a status, not a traceback.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from watchdog import __version__
from watchdog.cli.exits import INTERNAL, INTERRUPTED, USAGE, CommandError

if TYPE_CHECKING:
    import argparse

GROUPS: dict[str, tuple[str, ...]] = {
    "daemon": ("run",),
    "setup": ("setup",),
    "verify": ("verify",),
    "wait": ("wait",),
    "status": ("status", "explain"),
    "watch": ("watch",),
    "history": ("history",),
    "operator": ("pause", "resume", "acknowledge", "repaired"),
    "check_config": ("check-config",),
    "baseline": ("baseline",),
    "incident": ("incident",),
    "alert": ("alert",),
    "replay": ("replay",),
    "standin": ("standin",),
}
"""Module → its subcommands, in the order of the help."""


def parser(first: str | None = None) -> "argparse.ArgumentParser":
    """The command line: the whole of it, or only the group of the subcommand `first`, where there is one of that name."""
    from watchdog.cli.options import Parser  # noqa: PLC0415

    top = Parser(
        prog="sglang-watchdog",
        description="Watches SGLang servers under systemd: tells hung from busy, and restarts only when a restart helps.",
        epilog="Each COMMAND has a --help with an example. Exit statuses are listed in docs/exit-codes.md.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"sglang-watchdog {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = [name for name, members in GROUPS.items() if first in members]
    for name in wanted or GROUPS:
        importlib.import_module(f"watchdog.cli.{name}").add(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status.

    Raises:
        SystemExit: its help was asked for, or it was used wrongly.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            return _done(argv)
        finally:
            sys.stdout.flush()  # what cannot be written must show here, where it can be told
    except CommandError as e:
        if str(e):
            _say(argv, str(e))
        return e.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as e:  # noqa: BLE001  # people get a sentence, never a traceback
        return _told(argv, e)


def _done(argv: list[str]) -> int:
    if argv[:1] == ["standin"]:
        # argparse hands no leading option to a REMAINDER, and the stand-in has options of its own.
        from watchdog.cli import standin  # noqa: PLC0415

        return standin.handed_over(argv[1:])
    args = parser(argv[0] if argv else None).parse_args(argv)
    return int(args.run(args))


def _told(argv: list[str], error: Exception) -> int:
    """Say what went wrong that no command expected."""
    import traceback  # noqa: PLC0415

    from watchdog import config  # noqa: PLC0415

    if isinstance(error, config.ConfigError):
        for fault in error.faults:
            _say(argv, f"{error.source}: {fault}")
        return USAGE
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119
    _say(argv, f"{type(error).__name__}: {error} (at {where}); this is a fault of sglang-watchdog, please report it")
    return INTERNAL


def _say(argv: list[str], message: str) -> None:
    from watchdog.cli.screen import plain  # noqa: PLC0415

    known = argv[:1] if any(argv[:1] == [name] for members in GROUPS.values() for name in members) else []
    print(f"{' '.join(['sglang-watchdog', *known])}: {plain(message)}", file=sys.stderr)


def entry() -> None:
    """The console script."""
    try:
        from watchdog.cli import output  # noqa: PLC0415

        output.install()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(main())
