"""The flight recorder: each observation, in memory for the last hour and on disk in a ring (docs/flight-record.md)."""

import contextlib
import gzip
import shutil
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from watchdog import regular
from watchdog.clock import Clock, rfc3339
from watchdog.config import Recording
from watchdog.observation import Header, Observation, encode

SEGMENT = 8 * 1024**2
"""A segment of the ring is closed and compressed when it has so many bytes."""
FLUSH_S = 2.0
PENDING = 4 * 1024**2
"""At most so many bytes wait for a disk that does not take them; what is more is dropped and counted."""
BLOCK = 256 * 1024
"""What is kept in memory is packed in blocks of so many bytes."""
ENTRY = 128
"""Bytes that an observation in memory takes besides its text: the objects around it."""


class Block(msgspec.Struct, frozen=True):
    """Some observations, packed: the moments of the first and the last, and their lines compressed with zlib."""

    since: float
    until: float
    data: bytes


class Recorder:
    """Takes observations in at once; what touches the disk is done by `flush`, from a thread.

    Attributes:
        dropped: how many observations did not get to the disk.
        trouble: why the disk does not take them; None while it does.
        history: what a record that begins now says of what came before it ("mid-life" while the server serves).
    """

    def __init__(self, folder: Path, header: Header, settings: Recording, clock: Clock) -> None:
        self._folder = folder
        self._header = header
        self._settings = settings
        self._clock = clock
        self._packed: deque[Block] = deque()
        self._packed_bytes = 0
        self._memory: list[tuple[float, bytes]] = []
        self._memory_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._handed: list[bytes] = []
        self._segment: Path | None = None
        self._segment_bytes = 0
        self._renew = False
        self.dropped = 0
        self.trouble: str | None = None
        self.history: str | None = None

    def reconfigure(self, header: Header, settings: Recording) -> None:
        """Go on with other settings; another header begins a new segment, since what is on disk keeps its own."""
        self._settings = settings
        if header != self._header:
            self._header = header
            self._renew = True

    def take(self, x: Observation) -> None:
        """Keep one observation."""
        line = encode(x)
        self._memory.append((x.t, line))
        self._memory_bytes += len(line) + ENTRY
        if self._memory_bytes > BLOCK:
            self._pack()
        oldest = x.t - self._settings.memory_s
        limit = self._settings.memory_mib * 1024**2
        while self._packed and (self._packed[0].until < oldest or self._packed_bytes > limit):
            self._packed_bytes -= len(self._packed.popleft().data)
        if not self._settings.enabled:
            return
        if self._pending_bytes > PENDING:
            self.dropped += 1
            return
        self._pending.append(line)
        self._pending_bytes += len(line) + 1

    def _pack(self) -> None:
        """Keep what is in memory so far in a tenth of the room; takes about 2 ms."""
        text = b"\n".join(line for _, line in self._memory)
        block = Block(since=self._memory[0][0], until=self._memory[-1][0], data=zlib.compress(text, 1))
        self._packed.append(block)
        self._packed_bytes += len(block.data)
        self._memory.clear()
        self._memory_bytes = 0

    def lines(self, since: float = float("-inf"), until: float | None = None) -> list[bytes]:
        """The record in memory from `since` to `until`, and at most a block more: a header line, then the observations."""
        newest = self._memory[-1][0] if self._memory else self._packed[-1].until if self._packed else 0.0
        since = max(since, newest - self._settings.memory_s)
        kept = [line for b in self._packed if b.until >= since for line in zlib.decompress(b.data).split(b"\n")]
        oldest = self._packed[0].since if self._packed else self._memory[0][0] if self._memory else since
        header = self._begun_now(self.history if since > oldest else None)
        end = float("inf") if until is None else until
        return [
            encode(msgspec.structs.replace(header, until=until)),
            *kept,
            *(line for t, line in self._memory if since <= t <= end),
        ]

    def pending(self) -> Callable[[], None] | None:
        """What is to be done on disk, as a function for a thread; None if there is nothing to do."""
        if not self._pending:
            return None
        self._handed, self._pending, self._pending_bytes = self._pending, [], 0
        lines = self._handed
        return lambda: self._write(lines)

    def put_off(self, why: str) -> None:
        """What `pending` gave last was never begun: it waits on."""
        self._pending[:0] = self._handed
        self._pending_bytes += sum(len(line) + 1 for line in self._handed)
        self._handed = []
        self.trouble = why

    def _write(self, lines: list[bytes]) -> None:
        self._handed = []
        try:
            if self._segment is None or self._segment_bytes > SEGMENT or self._renew:
                self._renew = False
                self._next_segment()
            assert self._segment is not None
            with self._segment.open("ab") as f:
                data = b"\n".join(lines) + b"\n"
                f.write(data)
            self._segment_bytes += len(data)
            self.trouble = None
        except OSError as e:
            self.dropped += len(lines)
            self.trouble = f"{self._folder}: {e.strerror or e}"
            self._segment = None

    def _next_segment(self) -> None:
        """Close what is open, compress what is closed, make room, begin anew."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for plain in self._folder.glob("*.jsonl"):
            packed = plain.with_name(plain.name + ".gz")
            with regular.opened(plain) as source, gzip.open(packed, "wb", compresslevel=5) as target:
                shutil.copyfileobj(source, target)
            plain.unlink()
        self._prune()
        name = f"{self._clock.wall(self._clock.now()):%Y%m%dT%H%M%S.%f}.jsonl"
        self._segment = self._folder / name
        self._segment.write_bytes(encode(self._begun_now(self.history)) + b"\n")
        self._segment_bytes = 0

    def _begun_now(self, history: str | None) -> Header:
        """The header of a record that begins now; the wall clock may have been set since the daemon's start."""
        return msgspec.structs.replace(self._header, started=rfc3339(self._clock.wall(0.0)), history=history)

    def _prune(self) -> None:
        limit = self._settings.disk_mib * 1024**2 - SEGMENT
        files = sorted(self._folder.glob("*.jsonl*"))
        sizes = {f: f.stat().st_size for f in files}
        total = sum(sizes.values())
        for f in files:
            if total <= max(limit, 0):
                break
            with contextlib.suppress(OSError):
                f.unlink()
                total -= sizes[f]
