"""`replay`: judge a flight record again."""

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from watchdog.cli.exits import CANNOT, OK, CommandError
from watchdog.replay import Record, RecordError, replay, settings_of


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = commands.add_parser(
        "replay",
        help="judge a flight record again",
        description="Run the judges over a flight record (docs/flight-record.md) and print what they would have decided, as JSON lines.",
    )
    p.add_argument("record", metavar="FILE", help="a flight record: .jsonl or .jsonl.gz")
    p.add_argument("--config", metavar="FILE", help="judge with the settings of this file, laid over the record's own")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the events; 0 if the record could be read, whatever was decided."""
    try:
        record = Record(Path(args.record))
        settings = settings_of(record.header, _table(args.config))
        out = sys.stdout
        for line in replay(record, settings):
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    except RecordError as e:
        raise CommandError(str(e), CANNOT) from e
    for why, number in record.skipped.reasons.items():
        print(f"sglang-watchdog replay: skipped: {why} (first at line {number})", file=sys.stderr)
    return OK


def _table(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise CommandError(f"{path} cannot be read as configuration: {e}") from e
