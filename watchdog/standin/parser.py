"""How the stand-in reads its command line."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, and end with status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and lines as they are written."""


def port(text: str) -> int:
    """A TCP port.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no port from 0 to 65535")
    return int(text)
