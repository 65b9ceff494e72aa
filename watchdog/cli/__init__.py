"""The command `sglang-watchdog`: one module for each group of subcommands, each thin, and loaded only when it is needed."""

import argparse
import importlib
import os
import sys

from watchdog import __version__
from watchdog.cli.exits import INTERNAL, INTERRUPTED, OK, USAGE, CommandError
from watchdog.cli.options import Parser
from watchdog.cli.screen import plain

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


def parser(first: str | None = None) -> argparse.ArgumentParser:
    """The command line: the whole of it, or only the group of the subcommand `first`, where there is one of that name."""
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
    """Run one command; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows another
    if argv[:1] == ["standin"]:
        # argparse hands no leading option to a REMAINDER, and the stand-in has options of its own.
        from watchdog.cli import standin  # noqa: PLC0415

        args = argparse.Namespace(command="standin", rest=argv[1:], run=standin.run)
    else:
        args = parser(argv[0] if argv else None).parse_args(argv)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
    except CommandError as e:
        _say(args.command, str(e))
        return e.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who reads us is gone; nothing to complain about
        return OK
    except Exception as e:  # noqa: BLE001  # people get a sentence, never a traceback
        return _told(args.command, e)
    return status


def _told(command: str, error: Exception) -> int:
    """Say what went wrong that no command expected."""
    import traceback  # noqa: PLC0415

    from watchdog import config  # noqa: PLC0415

    if isinstance(error, config.ConfigError):
        for fault in error.faults:
            _say(command, f"{error.source}: {fault}")
        return USAGE
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119
    _say(command, f"{type(error).__name__}: {error} (at {where}); this is a fault of sglang-watchdog, please report it")
    return INTERNAL


def _say(command: str, message: str) -> None:
    print(f"sglang-watchdog {command}: {plain(message)}", file=sys.stderr)


def entry() -> None:
    """The console script."""
    sys.exit(main())
