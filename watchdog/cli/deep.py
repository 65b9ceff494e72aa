"""`verify --deep`: what it may cost, whether that is allowed, and its findings."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.cli import screen
from watchdog.cli.exits import CANNOT, CommandError
from watchdog.cli.link import state_dir
from watchdog.cli.words import limit

if TYPE_CHECKING:
    from watchdog.judge.facts.baseline import Baseline
    from watchdog.verify.deep.plan import Plan
    from watchdog.verify.findings import Item
    from watchdog.verify.gather import Gatherer
    from watchdog.verify.seen import Seen

MAX_TOKENS = 50_000
MAX_TIME_S = 120.0
Found = dict[str, "tuple[list[Item], float]"]


def add_options(p: argparse.ArgumentParser) -> None:
    """The options of the deep check."""
    p.add_argument("--deep", action="store_true", help="ask the server more: cache, host pool, speculation, a short load")
    p.add_argument("--yes", action="store_true", help="with --deep: do not ask before the server is loaded")
    p.add_argument("--force", action="store_true", help="with --deep: load a server too that is busy, or does not tell")
    p.add_argument(
        "--max-tokens",
        type=_count,
        metavar="N",
        help=f"with --deep: tokens of prompts and answers at most (default: {MAX_TOKENS})",
    )
    p.add_argument(
        "--max-time", type=limit, metavar="TIME", help="with --deep: how long it may take for each server (default: 2m)"
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:12]) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of tokens from 1 to 1000000000")
    return int(text)


def allowed(args: argparse.Namespace) -> None:
    """Whether the options fit together, and whether there is somebody to ask.

    Raises:
        CommandError: they do not, or there is nobody.
    """
    if not args.deep:
        given = [name for name in ("yes", "force", "max_tokens", "max_time") if getattr(args, name)]
        if given:
            raise CommandError(f"--{given[0].replace('_', '-')} belongs to --deep", CANNOT)
    elif not args.yes and not sys.stdin.isatty():
        raise CommandError("--deep loads the server, and there is nobody to ask: say --yes", CANNOT)


def checked(args: argparse.Namespace, gatherer: "Gatherer", seens: "list[Seen]") -> Found:
    """Ask a person, then each server, one after the other: its findings and how long they took, in seconds.

    Raises:
        CommandError: the person said no; no server was asked then.
    """
    import asyncio  # noqa: PLC0415  # loaded for this command only

    from watchdog.verify.deep.plan import Limits, plan  # noqa: PLC0415

    limits = Limits(tokens=args.max_tokens or MAX_TOKENS, seconds=args.max_time or MAX_TIME_S)
    plans = [(seen, plan(seen, limits)) for seen in seens if seen.server.endpoint]
    if not args.yes and any(each.refused is None for _, each in plans):
        ask([each for _, each in plans])
    return asyncio.run(_all(args, gatherer, plans))


def ask(plans: "list[Plan]") -> None:
    """Show what it would cost at most, and ask whether to go on.

    Raises:
        CommandError: the answer is no.
    """
    print("The deep check would ask for", file=sys.stderr)
    for line in (line for each in plans for line in each.words()):
        print(f"  {screen.plain(line)}", file=sys.stderr)
    print("Load the server? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was asked of the server", CANNOT)


async def _all(args: argparse.Namespace, gatherer: "Gatherer", plans: "list[tuple[Seen, Plan]]") -> Found:
    import functools  # noqa: PLC0415
    import random  # noqa: PLC0415

    from watchdog.clock import BootClock  # noqa: PLC0415
    from watchdog.verify.deep import findings  # noqa: PLC0415
    from watchdog.verify.deep.done import Done  # noqa: PLC0415
    from watchdog.verify.deep.run import Deep  # noqa: PLC0415

    found: Found = {}
    for seen, each in plans:
        done = Done()
        if each.refused is None:
            lines = functools.partial(gatherer.lines, seen)
            done = await Deep(seen, each, BootClock(), random.Random(), lines, force=args.force).run()
        found[seen.server.name] = findings.check(seen, each, done, _baseline(state_dir(args.config), seen)), done.took_s
    return found


def _baseline(folder: Path, seen: "Seen") -> "Baseline | None":
    """The learned baseline of this very deployment; None where there is none, or it may not be read."""
    import socket  # noqa: PLC0415

    import msgspec  # noqa: PLC0415

    from watchdog import regular  # noqa: PLC0415
    from watchdog.baseline import MAX_BYTES, Kept  # noqa: PLC0415
    from watchdog.judge.facts.baseline import identity_of  # noqa: PLC0415

    here = identity_of(seen.args, seen.version, socket.gethostname())
    try:
        kept = msgspec.json.decode(regular.read(folder / seen.server.name / "baseline.json", MAX_BYTES), type=Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return next((known for known in kept.baselines if not known.identity.differences(here)), None)
