"""Watches one server for a while without a daemon: the daemon's sources and judges, but nothing is written and nothing done."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Observation
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.endpoint import EndpointSource
from watchdog.observe.engine_info import EngineInfoSource
from watchdog.observe.journal import JournalSource
from watchdog.observe.memory import CgroupSource, HostSource
from watchdog.observe.processes import ProcessSource
from watchdog.observe.source import Source
from watchdog.observe.unit import UnitSource
from watchdog.sources import Run, running
from watchdog.systemd import Bus
from watchdog.systemd import running as connected
from watchdog.view import server_view
from watchdog.watch import Watch

TICK_S = 0.5
HEALTH_S = 5.0
CHAT_S = 10.0
"""Somebody waits: probes come sooner than the daemon's, which has all day."""


class Onlooker:
    """One server, watched as long as `watching` is open."""

    def __init__(self, server: config.Server, whole: config.Config, nowhere: Path) -> None:
        """Prepare, without I/O.

        Args:
            server: which one.
            whole: the configuration.
            nowhere: a folder that is not there: no state of a daemon is read, none is written.
        """
        probing = msgspec.structs.replace(
            server.probe,
            health_interval_s=min(HEALTH_S, server.probe.health_interval_s),
            chat_interval_s=min(CHAT_S, server.probe.chat_interval_s),
        )
        server = msgspec.structs.replace(server, probe=probing, mode="observe")
        quiet = msgspec.structs.replace(
            whole,
            servers=[server],
            record=msgspec.structs.replace(whole.record, enabled=False),
            daemon=msgspec.structs.replace(whole.daemon, tick_s=TICK_S),
        )
        # The judges speak through the log; here nobody is to hear them.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self._clock = BootClock()
        self._sources = whole.sources
        self._watch = Watch(server, quiet, nowhere, self._clock, lambda *_: None)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator["Onlooker"]:
        """Look, until the block ends."""
        bus = Bus()
        async with connected(bus):
            tasks = [asyncio.create_task(running(self._runs(bus))), asyncio.create_task(self._tick())]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=3.0)

    def _runs(self, bus: Bus) -> list[Run]:
        target, clock, cgroups = self._watch.target, self._clock, Cgroups()
        wanted: list[Source] = [
            UnitSource(target, clock, bus),
            JournalSource(target, clock),
            ProcessSource(target, clock, self._sources, cgroups),
            CgroupSource(target, clock, self._sources, cgroups),
            HostSource(clock, self._sources),
            EngineInfoSource(target, clock, cgroups),
        ]
        if target.server.endpoint:
            wanted.append(EndpointSource(target, clock))
        return [Run(source, clock, self._take) for source in wanted]

    def _take(self, x: Observation) -> None:
        self._watch.take(x)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._watch.tick()

    def view(self) -> dict[str, Any]:
        """What the daemon would show of it."""
        return server_view(self._watch)
