"""Replay a flight record through the judges (docs/flight-record.md): what would have been decided, and when."""

import gzip
import io
import math
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from watchdog import config, regular
from watchdog.judge.engine import Engine, Settings
from watchdog.judge.explain import explain
from watchdog.judge.facts.learned import Learned
from watchdog.judge.ledger import Ledger
from watchdog.judge.verdict import Action, Event, Severity
from watchdog.observation import KINDS, Header, Observation, decode

MAX_LINE_BYTES = 16 << 20
DAY_S = 86400.0
MAX_JUMP_S = 31 * DAY_S  # the judges tick through every gap: one without a bound would have no end
EARLIEST_S = -10 * 365 * DAY_S
LATEST_FIRST_S = 100 * 365 * DAY_S  # far beyond it, a tick is too small to move a float
MAX_VAIN_BYTES = 256 << 20
"""So much without an observation is read, and no more: a pipe may have no end."""
LEAST_LINE_BYTES = 64
"""A shorter line counts as so much: it takes as long."""
EARLIEST_YEAR, LATEST_YEAR = 1970, 2999
GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # RecursionError: nested too deeply


def moment_of(started: str) -> str:
    """A header's `started` with its zone, which is UTC where none is written; "" where it is not known.

    Raises:
        ValueError: it is no moment, or none of the years 1970 to 2999; the message says so.
    """
    if not started:
        return ""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError as e:
        raise ValueError("it is written like 2026-01-14T02:00:00Z") from e
    if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
        raise ValueError(f"its year is not within {EARLIEST_YEAR} and {LATEST_YEAR}")
    return started if moment.tzinfo is not None else f"{moment.isoformat()}Z"


class RecordError(Exception):
    """A record that cannot be read; the message names the file, the line and the cure."""


class Skipped(msgspec.Struct):
    """What a reader left out: how many lines, and why, each reason once with the first line that had it."""

    count: int = 0
    reasons: dict[str, int] = {}

    def add(self, line: int, why: str) -> None:
        """Count one line."""
        self.count += 1
        self.reasons.setdefault(why, line)


class Record:
    """One flight record, read line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = Skipped()
        self.doubts: list[str] = []
        """What is wrong with the header and does not keep the record from being judged."""
        self._begun = False
        self._vain = 0
        self._lines = self._read()
        first = next(self._lines, None)
        if self.skipped.count:
            raise RecordError(f"{path}, line 1: cannot be read ({next(iter(self.skipped.reasons))})")
        if first is None:
            raise RecordError(f"{path} is empty; a flight record begins with a header line")
        self._begun = True
        self.header = self._header(*first)

    def _header(self, number: int, line: bytes) -> Header:
        where = f"{self.path}, line {number}"
        try:
            header = msgspec.json.decode(line, type=Header)
            written = msgspec.json.decode(line, type=dict[str, Any])
        except RecursionError as e:
            raise RecordError(f"{where}: is no header of a flight record (nested too deeply)") from e
        except NOT_JSON as e:
            raise RecordError(f"{where}: is no header of a flight record ({e})") from e
        if "record" not in written:
            raise RecordError(f'{where}: is no header of a flight record ("record": "flight" is missing)')
        if header.version != 1:
            raise RecordError(f"{where}: version {header.version} is not known; this program reads version 1")
        try:
            moment = moment_of(header.started)
        except ValueError as e:
            moment = ""
            self.doubts.append(f"{where}: started {header.started[:40]!r} is no moment ({e}): times are told in seconds alone")
        return msgspec.structs.replace(header, started=moment)

    def _read(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers."""
        number = 0
        try:
            with regular.opened(self.path, pipe=True) as raw:
                source = self._unpacked(raw)
                while line := source.readline(MAX_LINE_BYTES + 1):
                    number += 1
                    self._spend(len(line), number)
                    if len(line) > MAX_LINE_BYTES:
                        self._too_long(number)
                        while line and not line.endswith(b"\n"):
                            line = source.readline(1 << 20)
                            self._spend(len(line), number)
                    elif not line.isspace():
                        yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.skipped.add(number, f"the file is cut or damaged after line {number}")
        except OSError as e:
            raise RecordError(f"{self.path}: cannot be read ({e.strerror or e})") from e

    def _spend(self, size: int, number: int) -> None:
        self._vain += max(size, LEAST_LINE_BYTES)
        if self._vain > MAX_VAIN_BYTES:
            why = f"{MAX_VAIN_BYTES >> 20} MiB without an observation"
            raise RecordError(f"{self.path}, line {number}: is no flight record ({why})")

    def _too_long(self, number: int) -> None:
        why = f"too long (more than {MAX_LINE_BYTES >> 20} MiB)"
        if not self._begun:
            raise RecordError(f"{self.path}, line {number}: cannot be read ({why})")
        self.skipped.add(number, why)

    def _unpacked(self, raw: io.BufferedReader) -> gzip.GzipFile | io.BufferedReader:
        """The file by what it begins with, whatever its name is."""
        begins, called_so = raw.peek(2)[:2], self.path.suffix == ".gz"
        if called_so and not GZIP_MAGIC.startswith(begins):
            raise RecordError(f"{self.path}: is no gzip file, although its name ends in .gz; unpack or rename it")
        return gzip.GzipFile(fileobj=raw) if called_so or begins == GZIP_MAGIC else raw

    def __iter__(self) -> Iterator[Observation]:
        """The observations in order; what cannot be used is counted in `skipped`."""
        last: float | None = None
        for number, line in self._lines:
            try:
                x = decode(line)
            except msgspec.ValidationError as e:
                self.skipped.add(number, self._why(line, e))
                continue
            except RecursionError:
                self.skipped.add(number, "nested too deeply")
                continue
            except NOT_JSON:
                self.skipped.add(number, "no JSON (a cut line)")
                continue
            if wrong := _wrong_time(x.t, last):
                self.skipped.add(number, wrong)
                continue
            last = x.t
            self._vain = 0
            yield x

    @staticmethod
    def _why(line: bytes, e: msgspec.ValidationError) -> str:
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
        except RecursionError:
            return "nested too deeply"
        except NOT_JSON:
            return "no JSON object"
        if "record" in found:
            return "a second header: two records in one file"
        kind = found.get("kind")
        known = isinstance(kind, str) and kind in KINDS
        return f"{kind}: {e}"[:120] if known else f"unknown kind {kind!r}"[:80]


def _wrong_time(t: float, last: float | None) -> str:
    """Why an observation at `t` cannot follow one at `last` (None: it is the first); "" if it can."""
    if not math.isfinite(t):
        return "t is no finite number"
    if last is None:
        return "" if EARLIEST_S <= t <= LATEST_FIRST_S else "t is too far from the start of the record"
    if t < last:
        return "goes back in time"
    return f"jumps by {(t - last) / DAY_S:.6g} days" if t - last > MAX_JUMP_S else ""


def settings_of(header: Header, table: dict[str, Any] | None = None, source: str = "") -> Settings:
    """The settings that a record is judged with: the defaults, the header's, then those of `table`.

    Args:
        header: of the record.
        table: of a configuration file.
        source: the name of that file, for messages.

    Raises:
        RecordError: the header has a key or value that is not allowed.
        config.ConfigError: the table has one.
    """
    merged: dict[str, Any] = {}
    for layer in (header.config, table or {}):
        for key, value in layer.items():
            old = merged.get(key)
            merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    try:
        parsed = config.parse(merged, source, need_servers=False)
    except config.ConfigError as e:
        own_faults = e.faults if table is None else _faults(header.config)
        if own_faults:
            said = " | ".join(map(str, own_faults))
            raise RecordError(f"the record's header cannot be used: in its config, {said}") from e
        raise
    own = next((s for s in parsed.servers if s.name == header.server), None)
    judge, restart = (own.judge, own.restart) if own is not None else (parsed.judge, parsed.restart)
    return Settings(judge=judge, restart=restart, tick_s=parsed.daemon.tick_s)


def _faults(table: dict[str, Any]) -> list[config.Fault]:
    try:
        config.parse(table, need_servers=False)
    except config.ConfigError as e:
        return e.faults
    return []


def config_of(settings: Settings) -> dict[str, Any]:
    """What a header says of the settings: those that are not the defaults, so that a later version can read it."""
    found = {
        "daemon": _changed(config.Daemon(tick_s=settings.tick_s)),
        "judge": _changed(settings.judge),
        "restart": _changed(settings.restart),
    }
    return {table: keys for table, keys in found.items() if keys}


def _changed(section: config.Section) -> dict[str, Any]:
    usual = msgspec.to_builtins(type(section)())
    return {key: value for key, value in msgspec.to_builtins(section).items() if value != usual[key]}


def engine_of(record: Record, settings: Settings, ledger: Ledger | None = None, learned: Learned | None = None) -> Engine:
    """The engine that judges a record."""
    return Engine(settings, ledger, learned, mid_life=record.header.history == "mid-life")


def explained_at(record: Record, settings: Settings, t: float) -> dict[str, Any]:
    """What was held at the moment `t` of a record, and why (judge/explain.py); at its end, if it ends before.

    Raises:
        RecordError: it begins only after that moment.
    """
    engine = engine_of(record, settings)
    last: float | None = None
    for x in record:
        if x.t > t:
            if last is None:
                raise RecordError(
                    f"{record.path}: holds nothing of that moment: it begins at {_told(x.t, record.header.started)}"
                )
            break
        last = x.t
        for _ in engine.observe(x):
            pass
    else:
        t = _end(record, last or 0.0)
    for _ in engine.tick(t):
        pass
    return explain(engine, t)


def replay(
    record: Record, settings: Settings, ledger: Ledger | None = None, learned: Learned | None = None
) -> Iterator[dict[str, Any]]:
    """The lines that a replay prints, the end event last."""
    engine = engine_of(record, settings, ledger, learned)
    count = restarts = alerts = 0
    last = 0.0

    def events() -> Iterator[Event]:
        nonlocal count, last
        for x in record:
            count += 1
            last = x.t
            yield from engine.observe(x)
        if count and record.header.until is not None:
            last = _end(record, last)
            yield from engine.tick(last)

    for event in events():
        if event.intent is not None:
            restarts += event.intent.action is Action.RESTART
            alerts += event.intent.action is Action.ALERT and event.intent.severity is not Severity.INFO
        yield event.as_line()
    yield {
        "event": "end",
        "t": round(last, 3),
        "observations": count,
        "skipped": record.skipped.count,
        "restarts": restarts,
        "alerts": alerts,
    }


def _told(t: float, started: str) -> str:
    """A moment of a record, for people."""
    return (
        f"{datetime.fromisoformat(started).astimezone(UTC) + timedelta(seconds=t):%Y-%m-%dT%H:%M:%SZ}"
        if started
        else f"{t:+.0f} s"
    )


def _end(record: Record, last: float) -> float:
    """The moment to which a record is judged: its last observation's, or the one at which it was cut, if that is near."""
    until = record.header.until
    if until is None:
        return last
    if wrong := _wrong_time(until, last):
        record.doubts.append(f"{record.path}, line 1: until {until:g} is not used: after the last t, {last:g}, it {wrong}")
        return last
    return until
