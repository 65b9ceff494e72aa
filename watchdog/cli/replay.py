"""`replay`: judge a flight record again."""

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from watchdog import config, regular
from watchdog.cli import output
from watchdog.cli.exits import CANNOT, OK, CommandError
from watchdog.cli.options import command, file_name
from watchdog.cli.screen import plain
from watchdog.judge.timeline import timeline
from watchdog.replay import Record, RecordError, replay, settings_of
from watchdog.state import MAX_BYTES, Saved


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "replay",
        "judge a flight record again",
        "Run the judges over a flight record (docs/flight-record.md) and print what they would have decided: JSON lines, or a "
        "timeline for people.\n\n"
        "Exit status: 0 the record could be read, whatever was decided, 2 it could not, or not be used, 78 the "
        "file of --config has faults.",
        "sglang-watchdog replay night.jsonl.gz --timeline\n"
        "sglang-watchdog replay night.jsonl.gz --timeline --config stricter.toml",
    )
    p.add_argument(
        "record",
        type=file_name,
        metavar="FILE",
        help="a flight record, plain or packed by gzip, whatever its name, or /dev/stdin",
    )
    p.add_argument(
        "--config", type=file_name, metavar="FILE", help="judge with the settings of this file, laid over the record's own"
    )
    p.add_argument(
        "--state",
        type=file_name,
        metavar="FILE",
        help="begin with the budget and what was learned of this state file (default: with none)",
    )
    p.add_argument("--timeline", action="store_true", help="print lines for people instead of JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the events; 0 if the record could be read, whatever was decided."""
    output.stream()
    try:
        record = Record(Path(args.record))
        settings = settings_of(record.header, args.config and config.read(Path(args.config)), args.config or "")
        saved = _saved(args.state, record.header.started)
        lines = replay(record, settings, saved.ledger if saved else None, saved.learned if saved else None)
        out = sys.stdout
        if args.timeline:
            for text in timeline(lines, record.header.started):
                out.write(plain(text) + "\n")
        else:
            for line in lines:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
    except RecordError as e:
        raise CommandError(str(e), CANNOT) from e
    for doubt in record.doubts:
        print(f"sglang-watchdog replay: {doubt}", file=sys.stderr)
    for why, number in record.skipped.reasons.items():
        print(f"sglang-watchdog replay: skipped: {why} (first at line {number})", file=sys.stderr)
    return OK


def _saved(path: str | None, started: str) -> Saved | None:
    if path is None:
        return None
    try:
        saved = msgspec.json.decode(regular.read(Path(path), MAX_BYTES), type=Saved)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else e
        raise CommandError(f"{path} cannot be used as state: {why}") from e
    if not started:
        raise CommandError("--state: the record does not say when it began (started), so the state does not fit it")
    begun = datetime.fromisoformat(started).timestamp()
    saved.shift(saved.wall - begun - saved.now)
    return saved
