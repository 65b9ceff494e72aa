"""`standin`: the stand-in server."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Add the subcommand; its own options are parsed by the stand-in."""
    p = commands.add_parser("standin", help="run a stand-in SGLang server with faults to order", add_help=False)
    p.add_argument("rest", nargs=argparse.REMAINDER)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Hand everything over to the stand-in."""
    return handed_over(args.rest)


def handed_over(rest: list[str]) -> int:
    """Run the stand-in with its own arguments."""
    from watchdog.standin import main  # noqa: PLC0415  # its server is not loaded for the other commands

    return main(rest)
