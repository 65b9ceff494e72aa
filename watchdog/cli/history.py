"""`history`: restarts, incidents and decisions, from the daemon and from its folder."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from watchdog.asking import ControlError, ask
from watchdog.cli import screen
from watchdog.cli.exits import CANNOT, OK, CommandError
from watchdog.cli.link import runtime_dir, state_dir
from watchdog.cli.options import command, config_option, json_option, server_option

MOST = 50
LONGEST = 16 << 20
HEAD = ("when", "server", "what", "text")


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "history",
        "restarts, incidents and decisions",
        "List what was decided and done, oldest first: the daemon's diary (as long as it runs), the restarts that it remembers "
        "over its own restarts, and the incident bundles on disk. Without a daemon: what is on disk.\n\n"
        "Exit status: 0 it was told, 2 neither the daemon nor its folder can be read.",
        "sglang-watchdog history --server kimi --lines 20",
    )
    config_option(p)
    server_option(p)
    p.add_argument("--lines", type=_count, default=MOST, metavar="N", help="at most so many, the newest (default: %(default)s)")
    json_option(p)
    p.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= 1_000_000 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no whole number from 1 to 1000000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    home = state_dir(args.config)
    entries, why = diary(args)
    try:
        names = [p.name for p in home.iterdir() if p.is_dir() and args.server in (None, p.name)]
    except OSError as e:
        if why is not None:
            raise CommandError(f"{why}; and {home} cannot be read ({e.strerror})", CANNOT) from e
        names = []
    if not names and why is not None and args.server is not None:
        raise CommandError(f"nothing is known of a server {screen.plain(args.server)!r}; {why}", CANNOT)
    for name in names:
        known = {(e["at"][:19], e["server"]) for e in entries if e["what"] in ("intent", "would")}
        entries += [e for e in ordered(home / name, name) if (e["at"][:19], name) not in known]
        entries += bundles(home / name / "incidents", name)
    entries = sorted(entries, key=lambda e: str(e["at"]))[-args.lines :]
    if args.json:
        screen.print_json({"entries": entries, "daemon": why is None})
        return OK
    if not entries:
        print("nothing was decided yet" if why is None else f"nothing is on disk; {screen.plain(why)}")
        return OK
    rows = [(screen.moment(e["at"]), e["server"], e["what"], e["text"]) for e in entries]
    print(screen.table(rows, HEAD, screen.width(), on=screen.colours()))
    return OK


def diary(args: argparse.Namespace) -> tuple[list[dict[str, Any]], str | None]:
    """The daemon's diary, and why it could not be asked."""
    request = {"command": "status"} | ({"server": args.server} if args.server else {})
    try:
        answer = ask(runtime_dir(args.config), request)
    except ControlError as e:
        return [], str(e)
    return [
        {"at": e["at"], "server": s["name"], "what": e["what"], "text": e["text"], "reason": e["reason"]}
        for s in answer["servers"]
        for e in s["diary"]
    ], None


def ordered(folder: Path, server: str) -> list[dict[str, Any]]:
    """The restarts in a state file (watchdog/state.py); moments are carried over with the wall clock of its writing."""
    try:
        with (folder / "state.json").open("rb") as file:
            saved = json.loads(file.read(LONGEST))
        written, now = datetime.fromtimestamp(saved["wall"], UTC), float(saved["now"])
        found = []
        for r in saved["ledger"].get("restarts", []):
            at = (written + timedelta(seconds=float(r["t"]) - now)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            word = "would have restarted" if r.get("dry") else "restart ordered"
            proven = "; the life after it was verified" if r.get("proven") else ""
            found.append(
                {
                    "at": at,
                    "server": server,
                    "what": "restart",
                    "text": f"{word} for {r['reason']}{proven}",
                    "reason": r["reason"],
                }
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return []  # what cannot be read is no reason not to tell the rest; the daemon itself says so in the journal
    return found


def bundles(folder: Path, server: str) -> list[dict[str, Any]]:
    """The incident bundles on disk."""
    from watchdog.cli.incident import listed  # noqa: PLC0415

    return [
        {"at": b.at, "server": server, "what": "bundle", "text": f"{b.reason}: {b.path}", "reason": b.reason}
        for b in listed(folder, server)
    ]
