"""Options that several commands have."""

import argparse
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from watchdog.cli.screen import plain

if TYPE_CHECKING:
    from watchdog.config import Config, Server

HELP_WIDTH = 78
DEFAULT_CONFIG = "/etc/sglang-watchdog/sglang-watchdog.toml"


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, and end with status 2."""
        self.exit(2, f"{self.prog}: {plain(message)}; see {self.prog} --help\n")


def command(commands: Any, name: str, summary: str, text: str, example: str) -> argparse.ArgumentParser:
    """Add a subcommand whose help ends with an example.

    Args:
        commands: what `add_subparsers` returned.
        name: of the subcommand.
        summary: half a line for the list of commands.
        text: what it does and how it exits.
        example: one or several command lines.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description="\n\n".join(textwrap.fill(part, HELP_WIDTH) for part in text.split("\n\n")),
        epilog="example:\n" + "\n".join(f"  {line}" for line in example.splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def file_name(text: str) -> str:
    """The name of a file: none that a script's empty variable made.

    Raises:
        argparse.ArgumentTypeError: it is empty.
    """
    if not text:
        raise argparse.ArgumentTypeError("the name of a file is empty")
    return text


def config_option(p: argparse.ArgumentParser) -> None:
    """`--config FILE`."""
    p.add_argument(
        "--config", type=file_name, metavar="FILE", default=DEFAULT_CONFIG, help="the configuration file (default: %(default)s)"
    )


def json_option(p: argparse.ArgumentParser) -> None:
    """`--json`."""
    p.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def server_option(p: argparse.ArgumentParser, *, all_by_default: bool = True) -> None:
    """`--server NAME`."""
    meant = "all" if all_by_default else "the only one"
    p.add_argument("--server", metavar="NAME", help=f"the name of a watched server (default: {meant})")


def loaded(path: str) -> "Config":
    """The whole configuration.

    Raises:
        config.ConfigError: it has faults; `main` prints them all.
    """
    from pathlib import Path  # noqa: PLC0415  # most commands need no configuration, and start faster without

    from watchdog import config  # noqa: PLC0415

    return config.load(Path(path))


def chosen(whole: "Config", name: str | None) -> "list[Server]":
    """The servers that a command is about.

    Raises:
        CommandError: no server has this name.
    """
    from watchdog.cli.exits import CommandError  # noqa: PLC0415

    found = [s for s in whole.servers if name in (None, s.name)]
    if not found:
        raise CommandError(f"no server {plain(str(name))!r} is configured; there are {', '.join(s.name for s in whole.servers)}")
    return found
