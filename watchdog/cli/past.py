"""`explain` of a past moment: from a flight record, judged again up to then."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from watchdog.cli import screen
from watchdog.cli.exits import CANNOT, OK, CommandError
from watchdog.cli.link import kept, state_dir, unreadable
from watchdog.judge.explain import text
from watchdog.replay import Record, RecordError, explained_at, settings_of


def explain_past(args: argparse.Namespace) -> int:
    """Print why, at a moment of a record."""
    try:
        record = Record(Path(args.record)) if args.record is not None else _kept(args)
        at = float("inf") if args.at is None else _moment(args.at, record.header.started)
        why = explained_at(record, settings_of(record.header), at)
    except RecordError as e:
        raise CommandError(str(e), CANNOT) from e
    if args.json:
        screen.print_json(why)
    else:
        print("\n".join(screen.plain(line) for line in text(why).splitlines()))
    return OK


def _kept(args: argparse.Namespace) -> Record:
    """The segment of the daemon's own flight record that holds the moment."""
    wanted = _moment(args.at, "1970-01-01T00:00:00Z")
    try:
        flights = {folder.name: found for folder in kept(args.config, args.server) if (found := _segments(folder / "flight"))}
    except OSError as e:
        raise unreadable(state_dir(args.config), e) from e
    if len(flights) > 1:
        raise CommandError(f"name one server with --server: {', '.join(flights)}", CANNOT)
    begun = [f for segments in flights.values() for f in segments if (t := _begin(f)) is not None and t <= wanted]
    if not begun:
        whose = f"{screen.plain(args.server)!r} at {args.at}" if args.server else args.at
        raise CommandError(f"no flight record of {whose} is kept below {state_dir(args.config)}", CANNOT)
    return Record(begun[-1])


def _segments(folder: Path) -> list[Path]:
    """The files of a flight record, oldest first; none where there is no such folder."""
    try:
        return sorted(file for file in folder.iterdir() if ".jsonl" in file.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _begin(file: Path) -> float | None:
    try:
        return datetime.strptime(file.name.split(".jsonl")[0], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _moment(at: str, started: str) -> float:
    """Seconds since the record's start."""
    try:
        if at.startswith("+"):
            return float(at)
        moment = datetime.fromisoformat(at)
        if not started:
            raise CommandError(f"--at {at}: the record does not say when it began (started); write +1800 for seconds", CANNOT)
        zero = datetime.fromisoformat(started)
    except ValueError as e:
        raise CommandError(
            f"--at {at}: is no moment; write 2026-01-14T02:30:00Z, or +1800 for seconds since the start", CANNOT
        ) from e
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - zero).total_seconds()
