"""The units that the server leans on (nvidia-fabricmanager.service and the like)."""

import asyncio

from watchdog.clock import Clock
from watchdog.observation import Deps
from watchdog.observe.source import Beat, Emit
from watchdog.systemd import Bus, SystemdError

RETRY_S = 1.0
INTERVAL_S = 60.0


class DepsSource:
    """Emits `Deps` at the first look and on each change of a unit's ActiveState.

    Units that are not installed, or that a person masked, are left out.
    """

    name = "deps"
    mandatory = False

    def __init__(self, units: list[str], clock: Clock, bus: Bus, interval_s: float = INTERVAL_S) -> None:
        """Prepare, without I/O.

        Args:
            units: names of units (sources.deps of the configuration).
            clock: tells the moments of the observations.
            bus: the shared client; its `run` is somebody else's task.
            interval_s: between two looks where no signal asks for one, in seconds.
        """
        self._units = units
        self._clock = clock
        self._bus = bus
        self._interval_s = interval_s
        self.period_s = interval_s + 30.0
        self._said: dict[str, str] | None = None

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        while True:
            beat()
            try:
                paths = [await self._bus.load(unit) for unit in self._units]
                async with self._bus.watch(*paths) as signals:
                    while True:
                        await self._look(emit)
                        beat()
                        await signals.next(self._interval_s)
            except SystemdError:
                await asyncio.sleep(RETRY_S)
                await self._bus.until_connected(self._interval_s)

    async def _look(self, emit: Emit) -> None:
        found = await self._bus.list_units(self._units)
        units = {unit.name: unit.active_state for unit in found if unit.load_state not in ("not-found", "masked")}
        if units != self._said:
            self._said = units
            emit(Deps(t=self._clock.now(), units=units))
