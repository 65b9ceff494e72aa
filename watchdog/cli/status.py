"""`status` and `explain`: how the servers are, and why, from the daemon."""

import argparse
from typing import Any

from watchdog.cli import screen
from watchdog.cli.exits import FAILED, OK
from watchdog.cli.explained import explained, restart
from watchdog.cli.link import asked
from watchdog.cli.options import command, config_option, file_name, json_option, server_option
from watchdog.cli.panel import ill, panel, refused


def add(commands: Any) -> None:
    """Add the subcommands."""
    p = command(
        commands,
        "status",
        "how the servers are, from the daemon",
        "Ask the daemon how its servers are: ten lines for each. Colours only on a terminal, and not where NO_COLOR is set.\n\n"
        "Exit status: 0 all are well, 1 something is wrong or a server does not serve (yet), 2 the daemon cannot be asked.",
        "sglang-watchdog status\nsglang-watchdog status --json | jq '.servers[] | {name, well, sentence}'",
    )
    config_option(p)
    server_option(p)
    json_option(p)
    p.set_defaults(run=run)
    p = command(
        commands,
        "explain",
        "why: the phase, each condition with its evidence, what would have to change",
        "Ask the daemon why it holds what it holds: the phase, each condition with its evidence, what forbids a restart, and "
        "what would have to change. With --record, judge a flight record up to a moment and say the same of that; "
        "with --at alone, the daemon's own flight record of that moment is taken.\n\n"
        "TIME is a moment such as 2026-01-14T02:30:00Z, or seconds since the record's start such as +1800.\n\n"
        "Exit status: 0 it was told, 2 the daemon cannot be asked or the record cannot be read.",
        "sglang-watchdog explain --server kimi\nsglang-watchdog explain --record night.jsonl.gz --at 2026-01-14T02:30:00Z",
    )
    p.add_argument("--record", type=file_name, metavar="FILE", help="a flight record instead of the daemon")
    p.add_argument("--at", metavar="TIME", help="the moment (default: now, or the end of the record)")
    config_option(p)
    server_option(p)
    json_option(p)
    p.set_defaults(run=explain)


def run(args: argparse.Namespace) -> int:
    """Print how they are."""
    answer = asked(args.config, {"command": "status", "server": args.server})
    servers = answer["servers"]
    if args.json:
        screen.print_json(answer)
    else:
        on, columns = screen.colours(), screen.width()
        print("\n\n".join([panel(s, columns, on) for s in servers] + refused(answer, columns, on)))
    return FAILED if any(ill(s) for s in servers) else OK


def explain(args: argparse.Namespace) -> int:
    """Print why."""
    if args.record is not None or args.at is not None:
        from watchdog.cli.past import explain_past  # noqa: PLC0415  # the judges are not loaded to ask the daemon

        return explain_past(args)
    answer = asked(args.config, {"command": "explain", "server": args.server})
    if args.json:
        servers = [{"name": s["name"], "why": restart(s), "conditions": s["conditions"]} for s in answer["servers"]]
        screen.print_json({"servers": servers})
    else:
        print("\n\n".join(explained(s, screen.colours()) for s in answer["servers"]))
    return OK
