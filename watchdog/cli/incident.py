"""`incident`: the bundles that were saved before anything was done about a fault."""

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from watchdog import regular
from watchdog.act.bundle_names import SUMMARY, named
from watchdog.cli import output, screen
from watchdog.cli.exits import CANNOT, FAILED, OK, CommandError
from watchdog.cli.link import kept, state_dir, unreadable
from watchdog.cli.options import command, config_option, json_option, server_option

HEAD = ("name", "server", "size", "reason")
LONGEST = 4 << 20
LATEST = "latest"


class Bundle(NamedTuple):
    """One bundle on disk.

    Attributes:
        at: when the decision was taken, RFC 3339 in UTC.
        size: bytes of its files.
    """

    name: str
    server: str
    path: Path
    at: str
    reason: str
    size: int


def add(commands: Any) -> None:
    """Add the subcommand with its own."""
    p = command(
        commands,
        "incident",
        "list, show and export incident bundles",
        "Work with incident bundles: what could be seen of a sick server, saved before anything was done about it. The daemon "
        "need not run. `sglang-watchdog incident show --help` tells of one of them.\n\n"
        "Exit status: 0 done, 1 there is no such bundle, 2 the folder cannot be read or the file not be written.",
        "sglang-watchdog incident list\nsglang-watchdog incident show latest\n"
        "sglang-watchdog incident export latest --output /tmp",
    )
    verbs = p.add_subparsers(dest="verb", metavar="VERB", required=True)
    each = command(verbs, "list", "list the bundles", "List the bundles, oldest first.", "sglang-watchdog incident list --json")
    _common(each, list_all)
    each = command(
        verbs,
        "show",
        "print the summary of a bundle",
        "Print a bundle's one-page summary in Markdown, which can be pasted into a bug report, and where its files lie.",
        "sglang-watchdog incident show latest",
    )
    _which(each)
    _common(each, show)
    each = command(
        verbs,
        "export",
        "pack a bundle into one file",
        "Pack a bundle into a .tar.gz. Keys and prompts were left out when it was saved; look into it before you send it anyway.",
        "sglang-watchdog incident export latest --output /tmp/incident.tar.gz",
    )
    _which(each)
    each.add_argument("--output", metavar="FILE", default=".", help="a file, a folder, or - for standard output (default: here)")
    _common(each, export)


def _which(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", metavar="NAME", help="a bundle's name, the beginning of one, or “latest”")


def _common(p: argparse.ArgumentParser, run: Any) -> None:
    config_option(p)
    server_option(p)
    json_option(p)
    p.set_defaults(run=run)


def listed(folder: Path, server: str) -> list[Bundle]:
    """The bundles in a folder, oldest first; empty where there is none.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    found = []
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for entry in entries:
        each = named(entry.name)
        if each is not None and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):  # the daemon clears old ones away meanwhile
                sizes = [file.stat(follow_symlinks=False).st_size for file in os.scandir(entry.path)]
                found.append(Bundle(entry.name, server, Path(entry.path), each.at, each.reason, sum(sizes)))
    return sorted(found)


def everywhere(args: argparse.Namespace) -> list[Bundle]:
    """The bundles of all servers, or of one.

    Raises:
        CommandError: the folder cannot be read.
    """
    try:
        return sorted(b for folder in kept(args.config, args.server) for b in listed(folder / "incidents", folder.name))
    except OSError as e:
        raise unreadable(state_dir(args.config), e) from e


def one(args: argparse.Namespace) -> Bundle:
    """The bundle that was named.

    Raises:
        CommandError: there is none of this name, or several.
    """
    bundles = everywhere(args)
    if args.name == LATEST and bundles:
        return bundles[-1]
    exact = [b for b in bundles if b.name == args.name] or [b for b in bundles if args.name and b.name.startswith(args.name)]
    said = screen.plain(args.name[:80])
    if args.name == LATEST and not exact:
        raise CommandError(f"there is no bundle yet{f' of {args.server}' if args.server else ''}", FAILED)
    if not exact:
        raise CommandError(f"there is no bundle {said!r}; `sglang-watchdog incident list` has their names", FAILED)
    if len(exact) > 1:
        raise CommandError(f"{len(exact)} bundles begin with {said!r}: write more of the name, or name the --server", FAILED)
    return exact[0]


def list_all(args: argparse.Namespace) -> int:
    """List them."""
    bundles = everywhere(args)
    if args.json:
        screen.print_json({"bundles": [{**b._asdict(), "path": str(b.path)} for b in bundles]})
    elif not bundles:
        print("there are no bundles: nothing has happened yet")
    else:
        rows = [(b.name, b.server, f"{b.size / 1024:.0f} KiB", b.reason) for b in bundles]
        print(screen.table(rows, HEAD, screen.width(), on=screen.colours()))
    return OK


def show(args: argparse.Namespace) -> int:
    """Print the summary of one."""
    bundle = one(args)
    try:
        text = regular.read(bundle.path / SUMMARY, LONGEST).decode("utf-8", "replace")
        files = sorted(entry.name for entry in os.scandir(bundle.path))
    except OSError as e:
        raise CommandError(f"{bundle.path} cannot be read ({e.strerror})", CANNOT) from e
    if args.json:
        screen.print_json({**bundle._asdict(), "path": str(bundle.path), "summary": text, "files": files})
        return OK
    print("\n".join(screen.plain(line) for line in text.splitlines()))
    print(f"\nThe files lie in {bundle.path}")
    return OK


def export(args: argparse.Namespace) -> int:
    """Pack one."""
    from watchdog.web import archive  # noqa: PLC0415  # for this command only

    bundle = one(args)
    if args.output == "-" and args.json:
        raise CommandError("--json and --output - both want the standard output: leave one of them out", CANNOT)
    target = Path(args.output)
    try:
        packed = b"".join(archive.pack(bundle.path.parent, bundle.name))
        if args.output == "-":
            output.stream()
            sys.stdout.buffer.write(packed)
            return OK
        if target.is_dir():
            target /= f"{bundle.server}-{bundle.name}.tar.gz"
        # Only for the person who exports it, and never over a file that is there.
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(packed)
    except FileExistsError as e:
        raise CommandError(f"{screen.plain(str(target))} is there already: name another file with --output", CANNOT) from e
    except (OSError, ValueError) as e:
        raise CommandError(f"the bundle cannot be exported: {screen.plain(str(e))}", CANNOT) from e
    if args.json:
        screen.print_json({"file": str(target), "size": len(packed)})
    else:
        print(f"{target} ({len(packed) / 1024:.0f} KiB)")
    return OK
