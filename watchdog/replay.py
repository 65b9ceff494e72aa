"""Replay a flight record through the judges (docs/flight-record.md): what would have been decided, and when."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from watchdog import config
from watchdog.judge.engine import Engine, Settings
from watchdog.judge.explain import explain
from watchdog.judge.facts.learned import Learned
from watchdog.judge.ledger import Ledger
from watchdog.judge.verdict import Action, Severity
from watchdog.observation import KINDS, Header, Observation, decode


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
        self._lines = self._read()
        first = next(self._lines, None)
        if first is None:
            raise RecordError(f"{path} is empty; a flight record begins with a header line")
        try:
            self.header = msgspec.json.decode(first[1], type=Header)
        except msgspec.DecodeError as e:
            raise RecordError(f"{path}, line 1: is no header of a flight record ({e})") from e
        if self.header.version != 1:
            raise RecordError(f"{path}, line 1: version {self.header.version} is not known; this program reads version 1")

    def _read(self) -> Iterator[tuple[int, bytes]]:
        try:
            with gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb") as f:
                for number, line in enumerate(f, 1):
                    if line.strip():
                        yield number, line
        except (EOFError, zlib.error):
            self.skipped.add(0, "the file is cut; its end is lost")
        except gzip.BadGzipFile as e:
            raise RecordError(f"{self.path}: is no gzip file ({e})") from e
        except OSError as e:
            raise RecordError(f"{self.path}: cannot be read ({e.strerror or e})") from e

    def __iter__(self) -> Iterator[Observation]:
        """The observations in order; what cannot be used is counted in `skipped`."""
        last = float("-inf")
        for number, line in self._lines:
            try:
                x = decode(line)
            except msgspec.ValidationError as e:
                self.skipped.add(number, self._why(line, e))
                continue
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.skipped.add(number, "no JSON (a cut line)")
                continue
            if not x.t >= last:
                self.skipped.add(number, "goes back in time")
                continue
            last = x.t
            yield x

    @staticmethod
    def _why(line: bytes, e: msgspec.ValidationError) -> str:
        try:
            kind = msgspec.json.decode(line, type=dict[str, Any]).get("kind")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "no JSON object"
        return f"unknown kind {kind!r}"[:80] if kind not in KINDS else f"{kind}: {e}"[:120]


def settings_of(header: Header, table: dict[str, Any] | None = None) -> Settings:
    """The settings that a record is judged with: the defaults, the header's, then those of `table`.

    Raises:
        config.ConfigError: the header or the table has a key or value that is not allowed.
    """
    merged: dict[str, Any] = {}
    for layer in (header.config, table or {}):
        for key, value in layer.items():
            old = merged.get(key)
            merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    parsed = config.parse(merged, "the record's config", need_servers=False)
    own = next((s for s in parsed.servers if s.name == header.server), None)
    judge, restart = (own.judge, own.restart) if own is not None else (parsed.judge, parsed.restart)
    return Settings(judge=judge, restart=restart, tick_s=parsed.daemon.tick_s)


def engine_of(record: Record, settings: Settings, ledger: Ledger | None = None, learned: Learned | None = None) -> Engine:
    """The engine that judges a record."""
    return Engine(settings, ledger, learned, mid_life=record.header.history == "mid-life")


def explained_at(record: Record, settings: Settings, t: float) -> dict[str, Any]:
    """What was held at the moment `t` of a record, and why (judge/explain.py); at its end, if it ends before."""
    engine = engine_of(record, settings)
    last = 0.0
    for x in record:
        if x.t > t:
            break
        last = x.t
        for _ in engine.observe(x):
            pass
    else:
        t = last
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
    for x in record:
        count += 1
        last = x.t
        for event in engine.observe(x):
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
