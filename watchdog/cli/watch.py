"""`watch`: how the servers are, live."""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from watchdog.cli import output, screen
from watchdog.cli.exits import OK, CommandError
from watchdog.cli.link import asked
from watchdog.cli.options import command, config_option, json_option, server_option
from watchdog.cli.panel import panel, refused
from watchdog.cli.words import limit
from watchdog.wording import gist

HOME_AND_CLEAR = "\x1b[H\x1b[J"
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's second screen without a cursor, and back: what was there before is there afterwards."""
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the command as they end any other, but not before the terminal has its own screen back."""


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "watch",
        "how the servers are, live",
        "Show what `status` shows, anew each second, until Ctrl-C. Where the output is no terminal, one line is printed when a "
        "server's sentence says something else, not for each new figure in it; with --json one object a line for each look. A "
        "daemon that does not answer is waited for.\n\n"
        "Exit status: 0 after Ctrl-C, 2 its output cannot be written, or nobody reads it any more.",
        "sglang-watchdog watch\nsglang-watchdog watch --interval 5 | tee watch.log",
    )
    config_option(p)
    server_option(p)
    p.add_argument("--interval", type=limit, default=1.0, metavar="TIME", help="between two looks, in seconds (default: 1)")
    json_option(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show it until interrupted."""
    output.stream()
    if args.json:
        return _objects(args)
    try:
        if not sys.stdout.isatty():
            return _lines(args)
        with _second_screen():
            return _live(args)
    except KeyboardInterrupt:
        return OK


class _EndedError(BaseException):
    """A signal came that ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def _second_screen() -> Iterator[None]:
    """The terminal's second screen, however the block ends."""

    def ended(number: int, _: object) -> None:
        raise _EndedError(number)

    before = {each: signal.getsignal(each) for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN}  # as with nohup
    number = None
    try:
        for each in before:
            signal.signal(each, ended)
        sys.stdout.write(OTHER_SCREEN)
        yield
    except _EndedError as e:
        number = e.number
    finally:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        try:
            sys.stdout.write(OWN_SCREEN)
            sys.stdout.flush()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    if number is not None:
        os.kill(os.getpid(), number)
        raise SystemExit(128 + number)  # it is held back


def _live(args: argparse.Namespace) -> int:
    while True:
        columns, on = screen.width(), screen.colours()
        try:
            answer = asked(args.config, {"command": "status", "server": args.server})
            text = "\n\n".join([panel(s, columns, on) for s in answer["servers"]] + refused(answer, columns, on))
        except CommandError as e:
            text = screen.paint(screen.plain(str(e)), "bad", on)
        clock = time.strftime("%H:%M:%S")
        sys.stdout.write(f"{HOME_AND_CLEAR}{text}\n\n{screen.paint(f'{clock}, Ctrl-C ends this', 'dim', on)}\n")
        sys.stdout.flush()
        time.sleep(args.interval)


def _objects(args: argparse.Namespace) -> int:
    """One JSON object a line for each look; "error" in it where the daemon cannot be asked."""
    try:
        while True:
            try:
                told = asked(args.config, {"command": "status", "server": args.server})
            except CommandError as e:
                told = {"error": str(e)}
            print(json.dumps(told), flush=True)
            time.sleep(args.interval)
    except KeyboardInterrupt:
        return OK


def _lines(args: argparse.Namespace) -> int:
    said: dict[str, str] = {}
    while True:
        try:
            answer = asked(args.config, {"command": "status", "server": args.server})
            now = {s["name"]: str(s["sentence"]) for s in answer["servers"]}
        except CommandError as e:
            now = {"sglang-watchdog watch": str(e)}
        for name, sentence in now.items():
            if said.get(name) != gist(sentence):
                print(f"{time.strftime('%H:%M:%S')} {screen.plain(name)}: {screen.plain(sentence)}", flush=True)
        said = {name: gist(sentence) for name, sentence in now.items()}
        time.sleep(args.interval)
