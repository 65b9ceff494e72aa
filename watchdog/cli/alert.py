"""`alert`: proves the channels on which alerts go out."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchdog.cli import screen
from watchdog.cli.exits import FAILED, OK, CommandError
from watchdog.cli.options import command, config_option, json_option, loaded

if TYPE_CHECKING:
    from watchdog.act.alerts import Result

JOURNAL = Path("/run/systemd/journal/socket")
HEAD = ("result", "channel", "seconds", "detail")


def add(commands: Any) -> None:
    """Add the subcommand with its own."""
    p = command(
        commands,
        "alert",
        "send a test alert through the channels",
        "Work with alerts; `sglang-watchdog alert test --help` tells how to prove the channels.",
        "sglang-watchdog alert test",
    )
    verbs = p.add_subparsers(dest="verb", metavar="VERB", required=True)
    each = command(
        verbs,
        "test",
        "send a test alert",
        "Send a message that says that it is a test through each channel that is configured, and say what came of it. The daemon "
        "need not run. Secrets in systemd credentials of the daemon are found as root.\n\n"
        "Exit status: 0 all configured channels took it, 1 one did not, 2 there is no such channel.",
        "sglang-watchdog alert test --channel webhook",
    )
    each.add_argument("--channel", default="", metavar="NAME", help="journal, webhook, alertmanager or apprise (default: all)")
    config_option(each)
    json_option(each)
    each.set_defaults(run=test)


def _true(result: "Result") -> "Result":
    """What was said to the journal went to standard error on a host without one."""
    if result.channel != "journal" or JOURNAL.exists():
        return result
    import msgspec  # noqa: PLC0415

    detail = f"There is no journal on this host ({JOURNAL} is missing): the line went to standard error."
    return msgspec.structs.replace(result, ok=None, detail=detail)


def test(args: argparse.Namespace) -> int:
    """Send it, and print the results."""
    import asyncio  # noqa: PLC0415  # loaded for this command only

    from watchdog import log  # noqa: PLC0415
    from watchdog.act.alerts import CHANNELS, Alerter  # noqa: PLC0415
    from watchdog.cli.credentials import resolved  # noqa: PLC0415
    from watchdog.clock import BootClock  # noqa: PLC0415

    whole = resolved(loaded(args.config))
    if args.channel and args.channel not in CHANNELS:
        raise CommandError(f"there is no channel {screen.plain(args.channel)!r}; there are {', '.join(CHANNELS)}")
    log.configure(to_journal=JOURNAL.exists())
    state = Path(os.environ.get("STATE_DIRECTORY", "").split(":")[0] or whole.daemon.state_dir)
    alerter = Alerter(whole.alert, whole.servers, whole.daemon.mode, state=state, clock=BootClock(), log=log.get())
    results = [_true(each) for each in asyncio.run(alerter.test(args.channel))]
    if args.json:
        import msgspec  # noqa: PLC0415

        screen.print_json({"results": msgspec.to_builtins(results)})
    else:
        words = {True: "ok", False: "bad", None: "not there"}
        rows = [(words[r.ok], r.channel, f"{r.seconds:.2f}", r.detail) for r in results]
        kinds = [words[r.ok] for r in results]
        print(screen.table(rows, HEAD, screen.width(), kinds, screen.colours()))
    return FAILED if any(r.ok is False for r in results) else OK
