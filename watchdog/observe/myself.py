"""The daemon about itself: did its loop run, can it reach itself, and are its senses there?

A daemon that was suspended, stopped (SIGSTOP) or starved has seen nothing while it did not run; deadlines that passed in that
time prove nothing. The control probe is a request to a listener of our own on loopback: when it fails, failed requests to the
server say nothing about the server.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable

import msgspec

from watchdog.clock import Clock
from watchdog.observation import Self
from watchdog.observe.source import Beat, Emit

INTERVAL_S = 30.0
STEP_S = 1.0
"""Between two looks at the clock."""

GAP_S = 1.0
"""A step that is late by more than this is time in which we did not run."""

LONG_GAP_S = 5.0
"""After such a gap it is said at once."""

CONTROL_LIMIT_S = 2.0


class Senses(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon knows of its other sources; the fields of `Self` with the same names. None: unknown."""

    journal_ok: bool | None = None
    bus_ok: bool | None = None
    nvml_ok: bool | None = None
    dropped: int = 0
    shutting_down: bool | None = None
    may_restart: bool | None = None
    fallen: list[str] = []


class SelfSource:
    """Emits `Self` at each interval, at once after a gap of more than 5 s, and when `look_now` is called."""

    name = "self"
    mandatory = False

    def __init__(
        self, clock: Clock, senses: Callable[[], Senses], interval_s: float = INTERVAL_S, step_s: float = STEP_S
    ) -> None:
        """Prepare, without I/O.

        Args:
            clock: tells the moments, with and without suspended time.
            senses: tells the state of the other sources; called for each observation.
            interval_s: between two observations, in seconds.
            step_s: between two looks at the clock, in seconds.
        """
        self._clock = clock
        self._senses = senses
        self._interval_s = interval_s
        self._step_s = step_s
        self._lag_s = 0.0
        self._paused_s = 0.0
        self._wanted = asyncio.Event()
        self.period_s = step_s + CONTROL_LIMIT_S

    def look_now(self) -> None:
        """Say it at once: a sense was lost or found, or the host goes down."""
        self._wanted.set()

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        async with Loopback() as loopback:
            due = self._clock.running()
            while True:
                beat()
                if self._wanted.is_set() or self._paused_s > LONG_GAP_S or self._clock.running() >= due:
                    self._wanted.clear()
                    due = self._clock.running() + self._interval_s
                    await self._say(emit, loopback)
                await self._step()

    async def _say(self, emit: Emit, loopback: "Loopback") -> None:
        begun = self._clock.now(), self._clock.running()
        answered = await loopback.ask()
        # A gap within the control probe counts as well, and then the probe's failure proves nothing.
        gap_s = self._count(*begun, CONTROL_LIMIT_S)
        control_probe = "ok" if answered else None if gap_s > GAP_S else "failed"
        senses = self._senses()
        lag_s, paused_s = round(self._lag_s, 4), round(self._paused_s, 3)
        self._lag_s = self._paused_s = 0.0
        emit(
            Self(
                t=self._clock.now(),
                loop_lag_s=lag_s,
                paused_s=paused_s,
                control_probe=control_probe,
                **msgspec.structs.asdict(senses),
            )
        )

    async def _step(self) -> None:
        """Wait for a moment, and count how late we woke."""
        begun = self._clock.now(), self._clock.running()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._step_s):  # wait_for loses a cancellation in Python 3.11
                await self._wanted.wait()
        self._count(*begun, self._step_s)

    def _count(self, now: float, running: float, expected_s: float) -> float:
        """Count what lies between then and now beyond what was expected: as lag, and if it is long as a pause."""
        gap_s = self._clock.now() - now - expected_s
        self._lag_s = max(self._lag_s, self._clock.running() - running - expected_s)
        if gap_s > GAP_S:
            self._paused_s += gap_s
        return gap_s


class Loopback:
    """A listener of our own on loopback that sends back what it gets, and its client."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._address = ("", 0)

    async def __aenter__(self) -> "Loopback":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def ask(self) -> bool:
        """Whether a request came back within its deadline."""
        word = secrets.token_hex(8).encode() + b"\n"
        try:
            async with asyncio.timeout(CONTROL_LIMIT_S):
                if self._server is None:  # also where it could not be had before: no descriptor left, no loopback
                    self._server = await asyncio.start_server(_echo, "127.0.0.1", 0)
                    self._address = self._server.sockets[0].getsockname()
                reader, writer = await asyncio.open_connection(*self._address)
                try:
                    writer.write(word)
                    return await reader.readline() == word
                finally:
                    writer.close()
        except (OSError, ValueError):
            return False


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(CONTROL_LIMIT_S):
            writer.write(await reader.readline())
            await writer.drain()
    writer.close()
