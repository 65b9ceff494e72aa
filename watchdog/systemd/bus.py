"""systemd's manager on the system bus: units, jobs, and what the host is about to do."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from watchdog.systemd import state
from watchdog.systemd.connection import PROPERTIES, RESYNC, Connection, Match, Signal, Subscription
from watchdog.systemd.errors import BUS_ERROR, CallFailedError, SystemdError
from watchdog.systemd.state import UnitState

SYSTEMD = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
JOB = "org.freedesktop.systemd1.Job"
LOGIN = "org.freedesktop.login1"
LOGIN_PATH = "/org/freedesktop/login1"
LOGIN_MANAGER = "org.freedesktop.login1.Manager"

CALL_LIMIT_S = 10.0
OWN_JOBS_KEPT = 100


class UnitSummary(NamedTuple):
    """One unit of `Bus.list_units`."""

    name: str
    load_state: str
    active_state: str


class Bus:
    """systemd as this program needs it: one connection, shared by all that speak with it.

    `run` must run as a task; without a connection every call raises BusUnavailableError at once. All methods belong to
    the event loop's thread.
    """

    def __init__(self, address: str | None = None, *, call_limit_s: float = CALL_LIMIT_S) -> None:
        """Prepare, without I/O.

        Args:
            address: the D-Bus address; None for the system bus.
            call_limit_s: the deadline of each call, in seconds.
        """
        self._connection = Connection(address, SYSTEMD, (LOGIN,), self._greet, call_limit_s)
        self._connection.listen(self._on_prepare, Match(LOGIN, LOGIN_MANAGER, "PrepareForShutdown", LOGIN_PATH))
        self._system_state: str | None = None
        self._preparing_shutdown = False
        self._own_jobs: dict[str, str] = {}

    async def run(self) -> None:
        """Keep the connection; runs until it is cancelled."""
        await self._connection.run()

    @property
    def connected(self) -> bool:
        """Whether there is a connection, and systemd at its other end."""
        return self._connection.connected

    @property
    def trouble(self) -> str | None:
        """Why there is no connection, for people; None while there is one."""
        return self._connection.trouble

    async def until_connected(self, limit_s: float) -> bool:
        """Wait for at most `limit_s` seconds; whether there is a connection."""
        return await self._connection.until_connected(limit_s)

    @property
    def shutting_down(self) -> bool | None:
        """Whether the host goes down, as far as was last seen (`look_at_host`, logind's signal); None if never seen."""
        if self._preparing_shutdown:
            return True
        return None if self._system_state is None else self._system_state == "stopping"

    async def look_at_host(self) -> None:
        """Read Manager.SystemState, which sends no signal of its own: "stopping" once shutdown.target has a job.

        Raises:
            SystemdError: it could not be read.
        """
        got = await self._get(SYSTEMD, MANAGER_PATH, MANAGER, "SystemState")
        self._system_state = got if isinstance(got, str) else None

    async def _greet(self) -> None:
        try:
            await self._manager("Subscribe")
        except CallFailedError as e:
            if not e.name.endswith(".AlreadySubscribed"):
                raise
        await self.look_at_host()
        self._preparing_shutdown = False
        with contextlib.suppress(SystemdError):  # a host without logind
            self._preparing_shutdown = await self._get(LOGIN, LOGIN_PATH, LOGIN_MANAGER, "PreparingForShutdown") is True

    def _on_prepare(self, signal: Signal) -> None:
        if signal is not RESYNC and signal.body:
            self._preparing_shutdown = signal.body[0] is True

    async def _get(self, name: str, path: str, interface: str, prop: str) -> Any:
        reply = await self._connection.call(name, path, PROPERTIES, "Get", "ss", interface, prop)
        return reply[0] if reply else None

    async def _manager(self, member: str, signature: str = "", *body: Any) -> list[Any]:
        return await self._connection.call(SYSTEMD, MANAGER_PATH, MANAGER, member, signature, *body)

    async def load(self, unit: str) -> str:
        """The object path of a unit, which is loaded for it; a unit that does not exist has one too ("not-found").

        Raises:
            SystemdError: systemd could not be asked, or the name is none.
        """
        return str((await self._manager("LoadUnit", "s", unit))[0])

    async def state(self, path: str) -> UnitState:
        """All that we want to know of the unit at `path`, at one moment.

        Raises:
            SystemdError: it could not be read.
        """
        return state.parse(await self.properties(path))

    async def properties(self, path: str) -> dict[str, Any]:
        """All properties of the unit at `path` under systemd's own names (org.freedesktop.systemd1(5)).

        Raises:
            SystemdError: they could not be read.
        """
        reply = await self._connection.call(SYSTEMD, path, PROPERTIES, "GetAll", "s", "")
        return reply[0] if reply and isinstance(reply[0], dict) else {}

    async def list_units(self, units: list[str]) -> list[UnitSummary]:
        """LoadState and ActiveState of several units in one call.

        Raises:
            SystemdError: they could not be read.
        """
        reply = await self._manager("ListUnitsByNames", "as", units)
        return [UnitSummary(row[0], row[2], row[3]) for row in reply[0]]

    def watch(self, *paths: str) -> AbstractAsyncContextManager[Subscription]:
        """Signals about the units at these paths: PropertiesChanged, JobNew, JobRemoved, Reloading.

        Not UnitNew and UnitRemoved: to look at a unit that is not loaded makes systemd load it and unload it again, and who looks
        when told of that looks for ever.
        """
        matches = [Match(SYSTEMD, MANAGER, "Reloading", MANAGER_PATH)]
        for path in paths:
            unit = unit_of(path)
            matches.append(Match(SYSTEMD, PROPERTIES, "PropertiesChanged", path))
            matches += [Match(SYSTEMD, MANAGER, member, MANAGER_PATH, (2, unit)) for member in ("JobNew", "JobRemoved")]
        return self._connection.subscribed(*matches)

    async def job_type(self, job: str) -> str | None:
        """What a job does ("start", "restart" …); None if it is over. A restart turns into a "start" once the stop is done.

        Raises:
            SystemdError: it could not be read.
        """
        if job in self._own_jobs:
            return self._own_jobs[job]
        try:
            got = await self._get(SYSTEMD, job, JOB, "JobType")
        except CallFailedError as e:
            if e.name in (BUS_ERROR + "UnknownObject", BUS_ERROR + "UnknownMethod", BUS_ERROR + "UnknownInterface"):
                return None
            raise
        return got if isinstance(got, str) else None

    def is_own(self, job: str) -> bool:
        """Whether this daemon began the job. Job ids are not used twice before a reboot, so a new connection changes nothing."""
        return job in self._own_jobs

    def own(self, job: str, kind: str) -> None:
        """Remember a job as begun by this daemon."""
        self._own_jobs[job] = kind
        while len(self._own_jobs) > OWN_JOBS_KEPT:
            del self._own_jobs[next(iter(self._own_jobs))]

    async def restart(self, unit: str, mode: str = "fail") -> str:
        """RestartUnit: the object path of the job, which is remembered as our own.

        Raises:
            SystemdError: it was refused or not answered.
        """
        job = str((await self._manager("RestartUnit", "ss", unit, mode))[0])
        self.own(job, "restart")
        return job

    async def reset_failed(self, unit: str) -> None:
        """ResetFailedUnit: forget a failure, NRestarts and the count of the start limit, of an active unit too.

        Raises:
            SystemdError: it was refused or not answered.
        """
        await self._manager("ResetFailedUnit", "s", unit)

    async def kill(self, unit: str, whom: str, signal: int) -> None:
        """KillUnit: send a signal to processes of the unit.

        Args:
            unit: its name.
            whom: "main", "control" or "all" (the whole control group).
            signal: the signal's number.

        Raises:
            SystemdError: it was refused or not answered.
        """
        await self._manager("KillUnit", "ssi", unit, whom, signal)


@contextlib.asynccontextmanager
async def running(bus: Bus) -> AsyncIterator[Bus]:
    """`bus` with its task, for as long as the block lasts: for commands that need systemd only once."""
    task = asyncio.create_task(bus.run())
    try:
        yield bus
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def unit_of(path: str) -> str:
    """The name of the unit at an object path: `_xx` stands for the byte 0xxx (sd_bus_path_encode(3))."""
    return re.sub("_([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), path.rpartition("/")[2])
