"""What every source is, and what the daemon lets sources know of the server that they look at."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from watchdog import config
from watchdog.observation import Observation

Emit = Callable[[Observation], None]
"""Hands one observation to the daemon. Never blocks, never raises; called from the event loop's thread only."""

Beat = Callable[[], None]
"""A sign of life: the source looked at its subject, whatever it saw. WATCHDOG=1 depends on it for mandatory sources."""


class Source(Protocol):
    """Looks at one part of the world until it is cancelled.

    The daemon runs `run` as a task. If it raises, the daemon logs the exception and starts `run` again after a pause that
    grows; so a source need not survive everything, but must be able to start anew, and must close what it opened when cancelled.

    Attributes:
        name: for logs, such as "journal" or "endpoint".
        mandatory: True if the daemon is blind without it, so that its silence must end in systemd's watchdog.
        period_s: it beats at least this often, in seconds, while it works.
    """

    name: str
    mandatory: bool
    period_s: float

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        ...


class Target:
    """One watched server, as far as sources need to know it.

    The unit source writes inv, main_pid, cgroup, active, since and known; the daemon writes the others; the other sources read.
    Who has written calls `tell`, so that who waits in `change` need not look again and again.

    Attributes:
        server: its configuration.
        inv: the InvocationID of its present life; None before the first.
        main_pid: its main process; None while there is none.
        cgroup: its ControlGroup, such as "/system.slice/sglang-kimi.service", or the one that the configuration names; "" while
            it has none.
        active: whether the unit is active or activating.
        since: the moment at which this life began (InactiveExitTimestamp); None if unknown.
        known: whether the unit has been looked at; until then the five before it say nothing.
        hold: why active probes that cost the server something are to be skipped now: "starting", "paused", "traffic"; None: ask.
        alone: False while requests of others are known to be in the engine.
        crowded: True while requests are known to wait in its queue, or were turned away of late: then traffic alone
            does not bring a canary that has been put off for long.
        args: its launch arguments, as far as they are known; they tell which model it has.
        closer: True for the first minutes after a restart, and while something looks ill: ask at a shorter interval.
    """

    def __init__(self, server: config.Server) -> None:
        self.server = server
        self.inv: str | None = None
        self.main_pid: int | None = None
        self.cgroup = ""
        self.active = False
        self.since: float | None = None
        self.known = False
        self.hold: str | None = None
        self.closer = False
        self.alone = True
        self.crowded = False
        self.args: Mapping[str, Any] = {}
        self._told = asyncio.Event()

    def tell(self) -> None:
        """Something was written: wake all who wait for it."""
        self._told.set()
        self._told = asyncio.Event()

    async def change(self, limit_s: float) -> None:
        """Wait until something is written, for at most `limit_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):  # wait_for loses a cancellation in Python 3.11
                await self._told.wait()
