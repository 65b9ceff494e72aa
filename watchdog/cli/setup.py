"""`setup`: the way from an installed program to a watched server."""

import argparse
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchdog.cli.exits import CANNOT, FAILED, OK, CommandError
from watchdog.cli.options import command

if TYPE_CHECKING:
    from watchdog.setup.guide import Proposal, Wanted
    from watchdog.setup.plan import Manifest


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "setup",
        "set up the service on this host",
        "Look at the servers' units and processes, and write what watching them needs: a commented configuration, the service\n"
        "and its user (unless a package brought them), the polkit rule for these units, and a drop-in for each server's unit\n"
        "with the reason for each line. Shows all of it and asks first. No server is restarted: a drop-in counts from its next\n"
        "start. Files that a person wrote or changed stay. --undo takes all back. Run it again for another server.\n\n"
        "Exit status: 0 it is set up, 1 it is, but a permission is missing, 2 it is not.",
        "sglang-watchdog setup --unit sglang-kimi.service --dry-run\n"
        "sglang-watchdog setup --unit sglang-a --unit sglang-b --key-file sglang-a=/etc/sglang/a.key --yes\n"
        "sglang-watchdog setup --undo",
    )
    p.add_argument(
        "--unit", action="append", default=[], metavar="UNIT", help="a server's unit; repeatable (default: the only one)"
    )
    for option, what in (
        ("--url", "where its API is (default: from its arguments)"),
        ("--name", "its short name (default: from its unit)"),
        ("--key-file", "a file with its API key, for root alone; it becomes a systemd credential"),
    ):
        p.add_argument(option, action="append", default=[], metavar="[UNIT=]VALUE", help=f"{what}; UNIT= where there are several")
    p.add_argument("--mode", choices=("observe", "alert", "act"), help="what the daemon may do (default: as before, else act)")
    p.add_argument(
        "--no-server-drop-in",
        action="store_false",
        dest="server_drop_in",
        default=None,
        help="leave the servers' units as they are, also in later runs",
    )
    p.add_argument("--server-drop-in", action="store_true", default=None, help="write their drop-ins again (default: as before)")
    p.add_argument(
        "--stacks",
        action="store_true",
        help="install the stacks helper too: it may read the servers' processes, so that evidence shows where they hang",
    )
    p.add_argument("--no-start", action="store_true", help="do not enable and start the service")
    p.add_argument(
        "--replace", action="store_true", help="replace files that a person wrote or changed, too; they are kept for --undo"
    )
    p.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    p.add_argument("--undo", action="store_true", help="take back what setup wrote")
    p.add_argument("--yes", action="store_true", help="do not ask")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Set up, or take it back."""
    from watchdog.config import ConfigError  # noqa: PLC0415  # loaded for this command only
    from watchdog.setup.guide import SetupError  # noqa: PLC0415
    from watchdog.setup.plan import Manifest  # noqa: PLC0415

    try:
        manifest = Manifest()
        return _undo(args, manifest) if args.undo else _setup(args, manifest)
    except SetupError as e:
        raise CommandError(str(e), CANNOT) from e
    except OSError as e:
        raise CommandError(f"{e.filename}: {e.strerror}; run it as root", CANNOT) from e
    except ConfigError as e:
        raise CommandError(f"the proposed configuration would have faults: {e}", CANNOT) from e


def _setup(args: argparse.Namespace, manifest: "Manifest") -> int:
    import asyncio  # noqa: PLC0415

    from watchdog.setup import guide  # noqa: PLC0415

    wanted = _wanted(args)
    proposal = asyncio.run(guide.propose(wanted, manifest))
    _show(proposal, wanted, manifest)
    if args.dry_run:
        return OK
    _as_root()
    if not args.yes and not _asked("Do this?"):
        raise CommandError("nothing was done", CANNOT)
    guide.apply(proposal, wanted, manifest, print)
    wrong = guide.check([found.unit for found in proposal.found])
    for sentence in wrong:
        print(f"warning: {sentence}")
    if not wrong:
        print("its user may read the journal and the configuration, and may restart these units")
    print("`sglang-watchdog setup --undo` takes all of this back.\n", flush=True)
    _verify()
    return FAILED if wrong else OK


def _wanted(args: argparse.Namespace) -> "Wanted":
    from watchdog.setup.guide import Wanted, full  # noqa: PLC0415

    units = list(dict.fromkeys(full(unit) for unit in args.unit))
    return Wanted(
        units=units,
        urls=_by_unit("--url", args.url, units),
        names=_by_unit("--name", args.name, units),
        keys=_by_unit("--key-file", args.key_file, units),
        mode=args.mode,
        server_drop_ins=args.server_drop_in,
        start=not args.no_start,
        replace=args.replace,
        stacks=args.stacks,
    )


def _by_unit(option: str, values: list[str], units: list[str]) -> dict[str, str]:
    """`UNIT=VALUE` by unit; a plain VALUE belongs to the only unit, which is "" where setup is to find it by itself."""
    from watchdog.setup.guide import full  # noqa: PLC0415

    found = {}
    for value in values:
        unit, equals, rest = value.partition("=")
        if equals and "/" not in unit and (full(unit) in units or not units):
            found[full(unit)] = rest
        elif len(units) <= 1:
            found["".join(units)] = value
        else:
            raise CommandError(f"{option} {value}: say for which unit: {option} UNIT={value}", CANNOT)
    return found


def _show(proposal: "Proposal", wanted: "Wanted", manifest: "Manifest") -> None:
    from watchdog.setup.plan import changes  # noqa: PLC0415

    write, stay = changes(proposal.files, manifest, replace=wanted.replace)
    for found in proposal.found:
        print(
            f"{found.unit}: taken from its {found.told_by}"
            if found.told_by != "nothing"
            else f"{found.unit}: no SGLang seen in it"
        )
    for file in write:
        print(f"\nwill write {file.path} ({file.why}):")
        print(textwrap.indent(file.text.rstrip(), "  | ", lambda _: True))
    for file, state in stay:
        print(f"\nleaves {file.path} ({file.why}): {state}" + (", --replace would replace it" if state != "as it is" else ""))
    if wanted.stacks:
        print("\nwill enable and start sglang-watchdog-stacks.socket")
    if wanted.start:
        print("\nwill enable and (re)start sglang-watchdog.service; no server is restarted")
    for remark in proposal.remarks:
        print(f"\nnote: {remark}")
    print(flush=True)


def _undo(args: argparse.Namespace, manifest: "Manifest") -> int:
    from watchdog.setup import guide  # noqa: PLC0415

    if not manifest.entries:
        raise CommandError("setup has written nothing here that could be taken back", CANNOT)
    print("will stop and disable sglang-watchdog.service and its stacks helper,")
    print("and restore or remove what is still as setup wrote it:")
    for path in manifest.entries:
        print(f"  {path}")
    print("will leave /var/lib/sglang-watchdog (records and state) and the user sglang-watchdog", flush=True)
    if args.dry_run:
        return OK
    _as_root()
    if not args.yes and not _asked("Do this?"):
        raise CommandError("nothing was done", CANNOT)
    guide.undo(manifest, print)
    return OK


def _as_root() -> None:
    if os.geteuid() != 0:
        raise CommandError("this needs root; --dry-run does not", CANNOT)


def _asked(question: str) -> bool:
    if not sys.stdin.isatty():
        raise CommandError("there is nobody to ask: say --yes, or look first with --dry-run", CANNOT)
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D is no yes
        print()
        return False


def _verify() -> None:
    """What a person would do next; a server that is just starting is no fault of the set-up."""
    program = Path(sys.argv[0])
    words = [str(program)] if program.name == "sglang-watchdog" else [sys.executable, "-m", "watchdog"]
    subprocess.run([*words, "verify"], check=False)
