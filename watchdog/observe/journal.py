"""What the journal says of the server's unit, and what the kernel says (systemd.journal-fields(7))."""

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple

from watchdog.clock import Clock
from watchdog.observation import Kernel, Log
from watchdog.observe.journal_lines import PART_MIN_BYTES, Backlog, LongLines, shorten
from watchdog.observe.journal_reader import BATCH, Batch, JournalReader, Matches, boot_id, check_access
from watchdog.observe.source import Beat, Emit, Target
from watchdog.sglang.bulk import is_bulk

LATE_S = 1.0
"""A line's own time is told where it is older than this, in seconds."""

HEAD_LINES = 4000
HEAD_BYTES = 4 << 20
TAIL_LINES = 2000
TAIL_BYTES = 2 << 20
"""What is read at most of the beginning, and of the end, of a life that was going on before us. A start-up of eight ranks prints
about a thousand lines."""

LOOK = '"GET /'
"""In a line of the access log: health, metrics, models. What users ask for is POSTed."""
LOOKS = 4
"""More lines than this at once are more than looks."""

TARGET_LIMIT_S = 2.0
"""So long is waited at the start for the first look at the unit, which tells whether there is a life to learn about."""

KERNEL_LOOKBACK_S = 600.0
"""The kernel's lines of the last ten minutes are read at the start, within the bounds of a tail."""

_PRIORITIES: dict[bytes | None, int] = {str(n).encode(): n for n in range(8)}


class _Writer(NamedTuple):
    """Who wrote an entry, and of which life of the unit. `dropped`: so many messages journald says it dropped."""

    origin: str
    inv: str | None
    pid: int | None
    ident: str | None
    dropped: int | None = None


def unit_matches(unit: str, namespace: str = "") -> Matches:
    """What the unit printed, and what PID 1 and journald say of it.

    UNIT= and OBJECT_SYSTEMD_UNIT= can be set by any process, only fields with an underscore cannot.
    """
    journald = [f"_SYSTEMD_UNIT={name}" for name in _journald(namespace)]
    return (f"_SYSTEMD_UNIT={unit}",), ("_PID=1", f"UNIT={unit}"), (*journald, "_UID=0", f"OBJECT_SYSTEMD_UNIT={unit}")


def _journald(namespace: str) -> list[str]:
    """The units of journald. A namespace has its own, which speaks of the unit's output (systemd-journald.service(8))."""
    return ["systemd-journald.service"] + ([f"systemd-journald@{namespace}.service"] if namespace else [])


def life_matches(inv: str) -> Matches:
    """All that the unit printed, and PID 1 said of it, in one of its lives."""
    return (f"_SYSTEMD_INVOCATION_ID={inv}",), ("_PID=1", f"INVOCATION_ID={inv}")


class JournalSource:
    """The journal of the server's unit.

    Where the unit lives already when the daemon starts, the beginning and the end of this life are read first.

    Attributes:
        namespace: the journal namespace that it reads; "" is the system's own.
        dropped: lines that were left out because we were too far behind, or because they could not be read.
    """

    name = "journal"
    mandatory = True
    period_s = 10.0

    def __init__(self, target: Target, clock: Clock, before: "JournalSource | None" = None) -> None:
        """Make it.

        Args:
            target: the server.
            clock: tells the time.
            before: the source that read the same journal until now: this one goes on where that one ended.
        """
        server = target.server
        self.namespace = server.journal_namespace
        self.dropped = 0
        self._target = target
        self._clock = clock
        self._unit = server.unit.encode()
        self._journald = [name.encode() for name in _journald(self.namespace)]
        self._reader = JournalReader(clock, unit_matches(server.unit, self.namespace), self.namespace)
        self._long = LongLines()
        self._backlog = Backlog()
        self._began: float | None = None
        self._size = 0
        self._ok = False
        if before is not None and before._began is not None and before.namespace == self.namespace:
            self._began, self.dropped = before._began, before.dropped
            self._reader.continue_after(before._reader)

    def healthy(self) -> bool:
        """Whether the journal can be read at present."""
        return self._ok

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Read the journal for ever.

        Raises:
            JournalError: it cannot be read; the message names the cure.
            OSError: reading failed; started again, it goes on where it was.
        """
        try:
            with self._reader.opened():
                self._ok = True
                if self._began is None:
                    self._began = self._clock.now()
                    await self._learn(emit, beat)
                if self.namespace and self._target.active:
                    check_access(self.namespace)
                await self._reader.follow(lambda: self._read(emit), beat, self.period_s / 2)
        finally:
            self._ok = False

    async def _learn(self, emit: Emit, beat: Beat) -> None:
        """Go back to the beginning of the life that is going on, and read it as far as the bounds allow."""
        waited_until = self._clock.now() + TARGET_LIMIT_S
        while self._target.inv is None and (left := waited_until - self._clock.now()) > 0:
            await self._target.change(left)
        if not self._target.active or self._target.inv is None:
            return
        first = self._reader.first_of(life_matches(self._target.inv))
        if first is None:
            self._reader.resume()
            return
        self._reader.go(first)
        lines = 0
        while lines < HEAD_LINES and self._size < HEAD_BYTES:
            count = self._read(emit).entries
            beat()
            if count < BATCH:
                return
            lines += count
            await asyncio.sleep(0)
        oldest, met = self._reader.first_of_last(TAIL_LINES, TAIL_BYTES, self._reader.monotonic_us())
        if met or oldest is None:
            self._reader.resume()
        else:
            self._reader.go(oldest)

    def _read(self, emit: Emit) -> Batch:
        """Hand out one batch."""
        logs: list[Log] = []
        try:
            # To hand out each line as it is read costs a tenth more: it needs the processor's caches for both, again and again.
            count = self._take(logs.append)
        finally:
            for log in logs:
                emit(log)
        # That somebody looked at the server, as we do all the time, is no sign that more is to come.
        return Batch(count, count > LOOKS or not all(LOOK in log.message for log in logs))

    def _take(self, emit: Callable[[Log], None]) -> int:
        """Read one batch; of lines that come in bulk the message only, after its first line."""
        reader, t, count, late = self._reader, self._clock.now(), 0, True
        written, spares = reader.written, self._backlog.spares
        began = math.inf if self._began is None else self._began
        cut = self._long.open
        writers: dict[bytes, _Writer] = {}
        life: str | None = None
        size = 0
        for get in reader.entries():
            count += 1
            try:
                message = get("MESSAGE").rstrip(b"\n")  # podman's journald driver (conmon 2.1) leaves it
                at = written() if late else t
                late = t - at > LATE_S
                # What was written before we began is bounded already.
                if late and at > began and spares(message, at, t - at):
                    self.dropped += 1
                    continue
                if life is not None and not cut and len(message) < PART_MIN_BYTES and is_bulk(message):
                    # The unit's own: nobody else's entries match and look so. Every field costs a fifth of the whole time.
                    size += len(message)
                    emit(Log(t=t, inv=life, message=message.decode("utf-8", "replace"), at=at if late else None))
                    continue
                pid = reader.field("_PID") or b""
                writer = writers.get(pid)
                if writer is None:
                    writer = self._writer(pid)
                    if writer is None:
                        continue
                    if writer.origin == "server":
                        # A process has one unit and one name, at least for as long as a batch takes.
                        writers[pid] = writer
                priority = reader.field("PRIORITY")
            except KeyError:
                continue  # an entry without a message
            except OSError:
                self.dropped += 1  # damaged, or compressed in a way that this libsystemd does not know
                continue
            # One life's lines follow each other until PID 1 speaks of another.
            life = writer.inv if writer.origin == "server" else None
            size += len(message)
            log = Log(
                t=t,
                inv=writer.inv,
                message=shorten(message),
                pid=writer.pid,
                ident=writer.ident,
                priority=_PRIORITIES.get(priority),
                origin=writer.origin,
                at=at if late else None,
                dropped=writer.dropped,
            )
            if cut or len(message) >= PART_MIN_BYTES:
                self._join(log, message, emit)
            else:
                emit(log)
        self._size += size
        if cut:
            for log in self._long.overdue(t):
                emit(log)
        return count

    def _writer(self, pid: bytes) -> _Writer | None:
        """Who wrote the present entry; None if it only pretends to be about the unit."""
        field = self._reader.field
        unit, ident, number = field("_SYSTEMD_UNIT"), _text(field("SYSLOG_IDENTIFIER")), _number(pid)
        if unit == self._unit:
            return _Writer("server", _text(field("_SYSTEMD_INVOCATION_ID")), number, ident)
        if pid == b"1":
            return _Writer("systemd", _text(field("INVOCATION_ID")), number, ident)
        if unit in self._journald and field("_UID") == b"0":
            dropped = _number(field("N_DROPPED") or b"")
            return _Writer("journald", _text(field("OBJECT_SYSTEMD_INVOCATION_ID")), number, ident, dropped)
        return None

    def _join(self, log: Log, message: bytes, emit: Callable[[Log], None]) -> None:
        """Hand out the line that this entry completes; nothing if the line goes on."""
        field = self._reader.field
        stream, more = field("_STREAM_ID"), field("_LINE_BREAK") == b"line-max"
        container = field("CONTAINER_ID_FULL") if stream is None else None
        if container is not None:
            # podman's journald driver splits lines of more than 8 KiB; it tells a container's two streams by their priority.
            stream, more = container + (field("PRIORITY") or b""), field("CONTAINER_PARTIAL_MESSAGE") == b"true"
        whole = log if stream is None else self._long.add(log, message, stream, more)
        if whole is not None:
            emit(whole)


class KernelSource:
    """The kernel log, one for the whole host.

    At the start it looks back ten minutes, so that what ended the server just before is seen.

    Attributes:
        dropped: lines that could not be read.
    """

    name = "kernel"
    mandatory = False
    period_s = 10.0

    def __init__(self, clock: Clock, before: "KernelSource | None" = None) -> None:
        """Make it; `before` is the source that read until now: this one goes on where that one ended."""
        self.dropped = 0
        self._clock = clock
        self._reader = JournalReader(clock, (("_TRANSPORT=kernel", f"_BOOT_ID={boot_id()}"),))
        self._begun = False
        self._ok = False
        if before is not None and before._begun:
            self._begun, self.dropped = True, before.dropped
            self._reader.continue_after(before._reader)

    def healthy(self) -> bool:
        """Whether the kernel log can be read at present."""
        return self._ok

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Read the kernel log for ever.

        Raises:
            JournalError: it cannot be read; the message names the cure.
            OSError: reading failed; started again, it goes on where it was.
        """
        try:
            with self._reader.opened():
                if not self._begun:
                    self._look_back()
                    self._begun = True
                self._ok = True
                await self._reader.follow(lambda: self._read(emit), beat, self.period_s / 2)
        finally:
            self._ok = False

    def _look_back(self) -> None:
        after_us = int((self._clock.running() - KERNEL_LOOKBACK_S) * 1e6)
        oldest, _ = self._reader.first_of_last(TAIL_LINES, TAIL_BYTES, after_us)
        if oldest is None:
            self._reader.resume()
        else:
            self._reader.go(oldest)

    def _read(self, emit: Emit) -> Batch:
        reader, t, count, late = self._reader, self._clock.now(), 0, True
        for get in reader.entries():
            count += 1
            try:
                message = get("MESSAGE")
                priority = _PRIORITIES.get(reader.field("PRIORITY"))
                at = reader.written() if late else t
            except KeyError:
                continue
            except OSError:
                self.dropped += 1
                continue
            late = t - at > LATE_S
            emit(Kernel(t=t, message=shorten(message), priority=priority, at=at if late else None))
        return Batch(count, lively=count > 0)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() else None
