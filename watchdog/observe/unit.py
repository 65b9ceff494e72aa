"""The server's unit and its jobs, as systemd tells them over D-Bus."""

import asyncio
from collections import deque

import msgspec

from watchdog import config
from watchdog.clock import Clock
from watchdog.observation import Job, Unit
from watchdog.observe.source import Beat, Emit, Target
from watchdog.systemd import RESYNC, Bus, Signal, Subscription, SystemdError, UnitState, updated

RETRY_S = 0.5
RECONNECT_S = 5.0
OVER = 100
AUTO_RESTART_SLACK_S = 0.05
"""systemd's timers may fire this much before what their start and their length say (AccuracySec= of PID 1 is below it)."""


class UnitSource:
    """Emits `Unit` on each change and at least every `interval_s`, `Job` for each job; keeps the Target up to date.

    A unit that does not exist is an observation (load_state "not-found"). While systemd cannot be asked, a `Unit` without
    values says so; the Target keeps what was last known.
    """

    name = "unit"
    mandatory = True

    def __init__(self, target: Target, clock: Clock, bus: Bus, interval_s: float = config.Sources().unit_interval_s) -> None:
        """Prepare, without I/O.

        Args:
            target: the server; its inv, main_pid, cgroup, active and since are written here.
            clock: tells the moments of the observations.
            bus: the shared client; its `run` is somebody else's task.
            interval_s: between two full looks, in seconds.
        """
        self._target = target
        self._clock = clock
        self._bus = bus
        self._interval_s = interval_s
        self.period_s = interval_s + 30.0  # three calls of one look may each take their full deadline
        self._state: UnitState | None = None
        self._jobs: dict[str, tuple[str, bool, bool]] = {}
        self._over: deque[str] = deque(maxlen=OVER)
        """Jobs that have ended: a state that was read before that still shows them. systemd never gives a job's path again."""
        self._said: Unit | None = None
        self._blind = False

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        while True:
            beat()
            try:
                path = await self._bus.load(self._target.server.unit)
                async with self._bus.watch(path) as signals:
                    await self._follow(path, signals, emit, beat)
            except SystemdError:
                if self._blind:  # a bus or a systemd that only begins anew is back before the second try
                    self._say(Unit(t=self._clock.now(), inv=self._target.inv), emit)
                self._blind = True
                await asyncio.sleep(RETRY_S)
                await self._bus.until_connected(min(self._interval_s, RECONNECT_S))

    async def _follow(self, path: str, signals: Subscription, emit: Emit, beat: Beat) -> None:
        """Look, wait for a signal or for the next look; ends when the unit's path must be asked for anew."""
        known = set(self._jobs)
        while True:
            await self._bus.look_at_host()
            state = await self._bus.state(path)
            told = await signals.next(0)
            if not await self._fold(path, told, emit):
                return
            await self._see(path, state, emit)
            for job in known & self._jobs.keys() - {state.job}:
                self._ended(job, None, emit)  # it ended while we heard nothing
            # A job that this look does not show is over if the next one does not show it either.
            known = self._jobs.keys() - {state.job}
            self._blind = False
            beat()
            # What came while the state was read may be newer than the state: then look again at once.
            if not told and not await self._fold(path, await signals.next(self._interval_s), emit):
                return

    async def _fold(self, path: str, told: list[Signal], emit: Emit) -> bool:
        """Take in some signals; False when others were missed or the unit's file was read anew."""
        for signal in told:
            if signal is RESYNC or (signal.member == "Reloading" and signal.body[:1] == [False]):
                return False
            if signal.member == "JobNew" and len(signal.body) == 3:
                await self._begun(path, str(signal.body[1]), emit)
            elif signal.member == "JobRemoved" and len(signal.body) == 4:
                self._ended(str(signal.body[1]), str(signal.body[3]), emit)
            elif signal.member == "PropertiesChanged" and len(signal.body) == 3 and self._state is not None:
                self._state = updated(self._state, signal.body[1])
        return True

    async def _see(self, path: str, state: UnitState, emit: Emit) -> None:
        if state.job is not None:
            await self._begun(path, state.job, emit)
        self._state = state
        since = None if state.inactive_exit_at is None else self._clock.at_monotonic(state.inactive_exit_at)
        target = self._target
        if state.invocation is not None:  # systemd forgets both with a unit that it unloads; the last life stays the last
            if state.waits_for_restart:  # systemd counts that as an activation: since then, this life has ended
                since = target.since if target.inv == state.invocation else None
            target.inv, target.since = state.invocation, since
        target.main_pid = state.main_pid
        target.cgroup = target.server.cgroup or state.control_group or ""
        target.active = state.up
        target.known = True
        target.tell()
        unit = Unit(
            t=self._clock.now(),
            inv=target.inv,
            load_state=state.load_state,
            active_state=state.active_state,
            sub_state=state.sub_state,
            result=state.result,
            main_pid=state.main_pid,
            exec_main_status=state.exec_main_status,
            exec_main_code=state.exec_main_code,
            n_restarts=state.n_restarts,
            since=None if target.since is None else round(target.since, 3),
            start_limit_burst=state.start_limit_burst,
            start_limit_interval_s=state.start_limit_interval_s,
            restart=state.restart,
            timeout_start_s=state.timeout_start_s,
            timeout_stop_s=state.timeout_stop_s,
            watchdog_s=state.watchdog_s,
        )
        self._say(unit, emit)

    def _say(self, unit: Unit, emit: Emit) -> None:
        said = self._said
        if said is not None and unit.t - said.t < self._interval_s and msgspec.structs.replace(said, t=unit.t) == unit:
            return
        self._said = unit
        emit(unit)

    async def _begun(self, path: str, job: str, emit: Emit) -> None:
        if job in self._jobs or job in self._over:
            return
        kind = await self._bus.job_type(job)
        if kind is None and self._state is not None:  # it is over already: what it did shows in the unit
            kind = deed(self._state, await self._bus.state(path))
        elif kind == "start" and self._state is not None and self._state.up:
            kind = "restart"  # its stop is done, which turned it into a start; a start does nothing to a unit that is up
        # The reply to our own RestartUnit comes after JobNew, but before the answer to the question above.
        mine = self._bus.is_own(job)
        auto = not mine and kind in ("restart", "start") and self._restart_is_due()
        self._jobs[job] = (kind or "", mine, auto)
        emit(Job(t=self._clock.now(), inv=self._target.inv, phase="new", job=kind or "", mine=mine, auto=auto))

    def _ended(self, job: str, result: str | None, emit: Emit) -> None:
        kind, mine, auto = self._jobs.pop(job, ("", False, False))
        self._over.append(job)
        mine = mine or self._bus.is_own(job)
        emit(Job(t=self._clock.now(), inv=self._target.inv, phase="removed", job=kind, result=result, mine=mine, auto=auto))

    def _restart_is_due(self) -> bool:
        """Whether systemd's Restart= timer has run out: a job before that was begun by somebody else."""
        state = self._state
        if state is None or not state.waits_for_restart:
            return False
        if state.state_change_at is None or state.restart_s is None:
            return True
        return self._clock.running() >= state.state_change_at + state.restart_s - AUTO_RESTART_SLACK_S


def deed(before: UnitState, after: UnitState) -> str | None:
    """What kind of job led from one state to the other; None if it cannot be told.

    A job on a process that starts or ends at once is over before its type can be asked for (seen with systemd 252).
    """
    new_life = after.invocation is not None and after.invocation != before.invocation
    if after.up and new_life:
        return "restart" if before.up else "start"
    if not after.up and before.up:
        return "stop"
    return "start" if new_life else None
