"""`history`: incidents and decisions, from the daemon and from its folder."""

import argparse
import json
import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from watchdog import regular
from watchdog.asking import ControlError, ask
from watchdog.cli import screen
from watchdog.cli.exits import CANNOT, OK, CommandError
from watchdog.cli.link import kept, runtime_dir, state_dir, unreadable
from watchdog.cli.options import command, config_option, json_option, server_option
from watchdog.clock import rfc3339
from watchdog.wording import span

MOST = 50
HEAD = ("when", "server", "what", "text")
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
Told = dict[str, Any]


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "history",
        "incidents and decisions",
        "Tell, oldest first, what went wrong: when it began and ended, its cause, what was done, what it cost. Then what was "
        "decided and done: the daemon's diary (as long as it runs) and the restarts that it remembers. Incidents outlive the "
        "daemon; without one, what is on disk is told.\n\n"
        "Exit status: 0 it was told, 2 neither the daemon nor its folder can be read, or not all of what lies there: the rest is "
        "told then.",
        "sglang-watchdog history --server kimi --lines 20",
    )
    config_option(p)
    server_option(p)
    p.add_argument(
        "--lines", type=_count, default=MOST, metavar="N", help="at most so many of each, the newest (default: %(default)s)"
    )
    json_option(p)
    p.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= 1_000_000 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no whole number from 1 to 1000000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    servers, why = asked(args)
    try:
        folders = kept(args.config, args.server)
    except OSError as e:
        if why is not None:
            raise CommandError(f"{why}; and {unreadable(state_dir(args.config), e)}", CANNOT) from e
        folders = []
    if not folders and why is not None and args.server is not None:
        raise CommandError(f"nothing is known of a server {screen.plain(args.server)!r}; {why}", CANNOT)
    decisions = [entry for view in servers for entry in diary(view)]
    incidents = [{"server": view["name"], **i} for view in servers for i in view.get("incidents", ())]
    unread: list[str] = []
    for folder in folders:
        name, saved, at = folder.name, *state(folder, unread)
        if at is not None:
            known = {(e["at"][:19], e["server"]) for e in decisions if e["what"] in ("intent", "would")}
            decisions += [e for e in ordered(saved, at, name) if (e["at"][:19], name) not in known]
            if name not in {view["name"] for view in servers}:
                incidents += remembered(saved, at, name)
        told = {bundle for i in incidents if i["server"] == name for bundle in i["bundles"]}
        incidents += [b for b in bundles(folder / "incidents", name, unread) if not told.intersection(b["bundles"])]
    incidents = sorted(incidents, key=lambda i: str(i["begun_at"]))[-args.lines :]
    decisions = sorted(decisions, key=lambda e: str(e["at"]))[-args.lines :]
    if args.json:
        screen.print_json({"incidents": incidents, "decisions": decisions, "daemon": why is None})
    elif incidents or decisions or not unread:
        print("\n".join(page(incidents, decisions, why, screen.width(), screen.colours())))
    if unread:
        raise CommandError("; ".join([*([why] if why else []), *unread]), CANNOT)
    return OK


def page(incidents: list[Told], decisions: list[Told], why: str | None, columns: int, on: bool) -> Iterator[str]:
    """The text for people: incidents, then decisions."""
    if not incidents and not decisions:
        yield "nothing was decided yet" if why is None else f"nothing is on disk; {screen.plain(why)}"
        return
    yield screen.paint("Incidents", "strong", on) if incidents else "There was no incident."
    for incident in incidents:
        yield from shown(incident, columns, on)
    if decisions:
        yield ""
        yield screen.paint("Decisions", "strong", on)
        rows = [(screen.moment(e["at"]), e["server"], e["what"], e["text"]) for e in decisions]
        yield screen.table(rows, HEAD, columns, on=on)


def shown(i: Told, columns: int, on: bool) -> Iterator[str]:
    """One incident: a head, its cause, what was done."""
    cost = "how it ended is not known"
    if i["ended_at"] is not None:
        cost = f"{i['outcome']}, {span(i['took_s'])}"
    elif i["took_s"] is None and i["done"]:
        cost = "not over yet"
    head = f"{screen.moment(i['begun_at'])}  {i['server']}  {i['reason']}"
    kind = "ok" if i["ended_at"] is not None else "odd"
    yield ""
    yield screen.paint(screen.plain(head), kind, on)
    for line in (
        *([i["cause"]] if i["cause"] else []),
        *(f"{screen.moment(d['at'])[-8:]} {d['text']}" for d in i["done"]),
        f"Cost: {cost}",
        *(f"Bundle: {bundle}" for bundle in i["bundles"]),
    ):
        yield from textwrap.wrap(
            screen.plain(line), columns, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )


def asked(args: argparse.Namespace) -> tuple[list[Told], str | None]:
    """What the daemon tells of its servers, and why it could not be asked."""
    request = {"command": "status"} | ({"server": args.server} if args.server else {})
    try:
        servers: list[Told] = ask(runtime_dir(args.config), request)["servers"]
    except ControlError as e:
        return [], str(e)
    return servers, None


def diary(view: Told) -> list[Told]:
    """The decisions in the daemon's diary; conditions belong to `explain`."""
    return [
        {"at": e["at"], "server": view["name"], "what": e["what"], "text": e["text"], "reason": e["reason"]}
        for e in view["diary"]
        if e["what"] != "condition"
    ]


def state(folder: Path, unread: list[str]) -> tuple[Told, Callable[[float], str] | None]:
    """A state file (watchdog/state.py), and what turns its moments into RFC 3339 by the wall clock of its writing.

    What cannot be read is no reason not to tell the rest. The daemon itself says in the journal what is damaged; what only we may
    not read is noted in `unread`.
    """
    from watchdog.state import MAX_BYTES  # noqa: PLC0415  # it loads the judges

    try:
        saved = json.loads(regular.read(folder / "state.json", MAX_BYTES))
        written, now = datetime.fromtimestamp(saved["wall"], UTC), float(saved["now"])
    except PermissionError as e:
        unread.append(str(unreadable(folder, e)))
        return {}, None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}, None

    def at(t: float) -> str:
        return rfc3339(written + timedelta(seconds=float(t) - now))

    return saved, at


def ordered(saved: Told, at: Callable[[float], str], server: str) -> list[Told]:
    """The restarts in a state file."""
    found = []
    try:
        for r in saved.get("ledger", {}).get("restarts", []):
            word = "would have restarted" if r.get("dry") else "restart ordered"
            text = f"{word} for {r['reason']}{'; the life after it was verified' if r.get('proven') else ''}"
            found.append({"at": at(r["t"]), "server": server, "what": "restart", "text": text, "reason": r["reason"]})
    except DAMAGED:
        return []
    return found


def remembered(saved: Told, at: Callable[[float], str], server: str) -> list[Told]:
    """The incidents in a state file, as the daemon's view has them (watchdog/view.py)."""
    found = []
    try:
        for i in saved.get("incidents", []):
            ended = i.get("ended")
            found.append(
                {
                    "server": server,
                    "begun_at": at(i["begun"]),
                    "ended_at": None if ended is None else at(ended),
                    "took_s": None if ended is None else round(ended - i["begun"], 1),
                    "reason": str(i["reason"]),
                    "cause": str(i["cause"]),
                    "done": [{"at": at(d["t"]), "text": str(d["text"])} for d in i.get("deeds", [])],
                    "restarts": int(i.get("restarts", 0)),
                    "outcome": str(i.get("outcome", "")),
                    "bundles": [str(bundle) for bundle in i.get("bundles", [])],
                }
            )
    except DAMAGED:
        return []
    return found


def bundles(folder: Path, server: str, unread: list[str]) -> list[Told]:
    """The incident bundles on disk, as incidents of which no more is known; a folder that cannot be read is noted in `unread`."""
    from watchdog.cli.incident import listed  # noqa: PLC0415

    try:
        found = listed(folder, server)
    except OSError as e:
        unread.append(str(unreadable(folder, e)))
        return []
    unknown: Told = {"ended_at": None, "took_s": None, "cause": "", "done": [], "restarts": 0, "outcome": ""}
    return [{"server": server, "begun_at": b.at, "reason": b.reason, **unknown, "bundles": [b.name]} for b in found]
