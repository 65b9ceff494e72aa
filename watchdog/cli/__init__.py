"""The command `sglang-watchdog`: one module for each group of subcommands, each thin."""

import argparse
import os
import sys

from watchdog import __version__, config
from watchdog.cli import daemon, standin
from watchdog.cli import replay as replaying
from watchdog.cli.exits import OK, USAGE, CommandError

GROUPS = (daemon, replaying, standin)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="sglang-watchdog",
        description="Watches SGLang servers under systemd: tells hung from busy, and restarts only when a restart helps.",
        epilog="Exit statuses are listed in docs/exit-codes.md.",
    )
    top.add_argument("--version", action="version", version=f"sglang-watchdog {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for group in GROUPS:
        group.add(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    # argparse hands no leading option to a REMAINDER, and the stand-in has options of its own.
    args = (
        argparse.Namespace(command="standin", rest=argv[1:], run=standin.run)
        if argv[:1] == ["standin"]
        else parser().parse_args(argv)
    )
    try:
        return int(args.run(args))
    except CommandError as e:
        print(f"sglang-watchdog {args.command}: {e}", file=sys.stderr)
        return e.status
    except config.ConfigError as e:
        for fault in e.faults:
            print(f"sglang-watchdog {args.command}: {e.source}: {fault}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who reads us is gone; nothing to complain about
        return OK


def entry() -> None:
    """The console script."""
    sys.exit(main())
