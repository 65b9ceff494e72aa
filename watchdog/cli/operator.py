"""`pause`, `resume`, `acknowledge` and `repaired`: a person's word to the daemon."""

import argparse
from typing import Any

from watchdog.cli import screen
from watchdog.cli.exits import OK
from watchdog.cli.link import asked
from watchdog.cli.options import command, config_option, json_option, server_option
from watchdog.cli.words import seconds

EXIT = "\n\nExit status: 0 it is done, 2 the daemon cannot be asked."


def add(commands: Any) -> None:
    """Add the subcommands."""
    p = command(
        commands,
        "pause",
        "no restarts for a while",
        "Stand down: the daemon goes on watching and does nothing to the unit, until the time is over or until `resume`. The "
        f"pause survives a restart of the daemon. DURATION: 30m, 2h, 1d, 1h30m; without one, until `resume`.{EXIT}",
        'sglang-watchdog pause 2h --reason "new weights"',
    )
    p.add_argument(
        "duration", nargs="?", type=seconds, metavar="DURATION", help="how long, such as 30m, 2h, 1d (default: until resumed)"
    )
    _common(p, pause)
    p = command(commands, "resume", "end a pause", f"End a pause: the daemon may restart again.{EXIT}", "sglang-watchdog resume")
    _common(p, resume)
    p = command(
        commands,
        "acknowledge",
        "somebody looks at it: alerts need not be repeated",
        f"Say that a person knows of what is wrong.{EXIT}",
        'sglang-watchdog acknowledge --reason "on it"',
    )
    _common(p, acknowledge)
    p = command(
        commands,
        "repaired",
        "the cause is mended: what forbade restarts is forgotten",
        f"Say that the cause was mended (a GPU replaced, a disk freed): what latched a restart is lifted.{EXIT}",
        'sglang-watchdog repaired --server kimi --reason "GPU 3 replaced"',
    )
    _common(p, repaired)


def _common(p: argparse.ArgumentParser, run: Any) -> None:
    p.add_argument("--reason", metavar="TEXT", help="why, for the log and for `status` (at most 200 characters)")
    config_option(p)
    server_option(p)
    json_option(p)
    p.set_defaults(run=run)


def pause(args: argparse.Namespace) -> int:
    """Pause."""
    length = args.duration
    said = "until `resume`" if length is None else f"for {screen.span(length)}"
    return _tell(args, {"command": "pause", "seconds": length}, f"paused {said}")


def resume(args: argparse.Namespace) -> int:
    """Resume."""
    return _tell(args, {"command": "resume"}, "resumed")


def acknowledge(args: argparse.Namespace) -> int:
    """Acknowledge."""
    return _tell(args, {"command": "operator", "action": "acknowledge"}, "acknowledged")


def repaired(args: argparse.Namespace) -> int:
    """Declare as repaired."""
    return _tell(args, {"command": "operator", "action": "repaired"}, "noted as repaired")


def _tell(args: argparse.Namespace, request: dict[str, Any], said: str) -> int:
    answer = asked(args.config, {**request, "server": args.server, "reason": args.reason})
    if args.json:
        screen.print_json(answer)
    else:
        idle = set(answer["servers"]) - set(answer["were_paused"]) if request["command"] == "resume" else set()
        for word, names in (
            (said, [name for name in answer["servers"] if name not in idle]),
            ("was not paused", sorted(idle)),
        ):
            if names:
                print(f"{', '.join(map(screen.plain, names))}: {word}")
        if "warning" in answer:
            print(f"but {screen.plain(answer['warning'])}")
    return OK
