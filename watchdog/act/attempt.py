"""A restart job under way: waited for, ended by force where its stop takes too long, and told in one sentence."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from watchdog.act.stop import Stop
from watchdog.clock import Clock
from watchdog.systemd import Bus, Subscription, SystemdError, UnitState
from watchdog.wording import span

LOOK_S = 30.0
LOOK_AT_ENGINE_S = 5.0
"""While it stops, whether its engine is gone is looked at so often."""
RETRY_S = 1.0
KILL_LIMIT_S = 120.0
START_LIMIT_S = 3600.0
JOB_RESULTS = {
    "failed": "the new start failed",
    "canceled": "somebody else's job replaced the restart",
    "timeout": "the job ran into its own time limit (JobTimeoutSec=)",
    "dependency": "a unit that it requires could not be started",
    "skipped": "systemd had nothing to do",
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a restart.

    Attributes:
        result: the job's result ("done", "failed", "canceled", "timeout", "dependency", "skipped"), or "refused" (nothing was
            done), or "unknown" (it was begun, and its end could not be seen).
        message: one sentence for people.
        stand_down: a person, or the host, wants it otherwise: do not try again by yourself.
        denied: the right was missing (polkit), and nothing was done.
        killed: SIGKILL was sent to the unit's processes.
        stop_s: how long the stop took, in seconds; None if it was not seen.
        start_s: how long the start took (until systemd calls the unit active), in seconds; None if it was not seen.
        inv: the InvocationID of the new life; None without one.
    """

    result: str
    message: str
    stand_down: bool = False
    denied: bool = False
    killed: bool = False
    stop_s: float | None = None
    start_s: float | None = None
    inv: str | None = None


class _Phase(Enum):
    STOP = "stop"
    KILL = "kill"
    START = "start"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a restart job of ours is followed.

    Attributes:
        stop_s: a stop that lasts longer, in seconds from its beginning, is ended with SIGKILL.
        kill_s: how long the processes may take to go after SIGKILL, in seconds.
        start_s: how long the start job may take, in seconds (Type=notify units with long start-ups).
        gone: whether no engine process is left: then the stop is ended sooner; None where nobody can tell.
        closing: whether the log says that it waits for connections to close: then, once the engine is gone, it is ended sooner
            still; None where nobody can tell.
        may_kill: whether SIGKILL may be sent now; while it may not, the stop is waited for without end.
        told: given the stop when it has begun, and after each turn of it.
    """

    stop_s: float
    kill_s: float = KILL_LIMIT_S
    start_s: float = START_LIMIT_S
    gone: Callable[[], bool] | None = None
    closing: Callable[[], bool] | None = None
    may_kill: Callable[[], bool] = lambda: True
    told: Callable[[Stop], None] | None = None


@dataclass(kw_only=True)
class Attempt:
    """A restart job of ours under way.

    Attributes:
        path: the unit's object path.
        job: the job's object path.
        before: the unit as it was before the job.
        signals: a subscription that was there before the job.
        began: a moment before the job was ordered, in seconds on CLOCK_MONOTONIC.
        terms: how it is followed.
    """

    bus: Bus
    unit: str
    path: str
    job: str
    before: UnitState
    clock: Clock
    signals: Subscription
    began: float
    terms: Terms

    def __post_init__(self) -> None:
        self._stop = Stop(began=self.began, end_at=self.began + self.terms.stop_s, may_kill=self.terms.may_kill)
        self._kill_refused: str | None = None

    async def follow(self) -> Outcome:
        """Wait for the job's end; end the stop by force where it takes too long."""
        terms, kill_s = self.terms, self.terms.kill_s
        phase, deadline = _Phase.STOP, self._stop.end_at
        self._tell()
        while True:
            looks = phase is _Phase.STOP and terms.gone is not None and self._stop.closing_at is None
            result = await self._result(min(LOOK_AT_ENGINE_S if looks else LOOK_S, deadline - self.clock.running()))
            state = await self._read()
            if result is None and state is not None and state.job != self.job:
                result = await self._result(0)  # it may have come between the wait and the look
                if result is None:
                    return self._missed(state)
            if result is not None:
                return self._finished(result, state)
            if phase is not _Phase.START and state is not None and self._stopped(state):
                phase, deadline = _Phase.START, self.clock.running() + terms.start_s
            elif looks and self._hastened():
                kill_s += deadline - self._stop.end_at  # pinned memory is unpinned by then, whichever way it ends
                deadline = self._stop.end_at
                self._tell()
            if self.clock.running() < deadline:
                continue
            if state is None:  # the bus is away, and systemd goes on without it
                deadline = self.clock.running() + RETRY_S
            elif phase is _Phase.STOP and state.active_state == "deactivating" and not terms.may_kill():
                deadline = self.clock.running() + LOOK_S
            elif phase is _Phase.STOP and state.active_state == "deactivating":
                await self._kill()
                phase, deadline = _Phase.KILL, self.clock.running() + kill_s
            else:
                return self._overdue(phase, state)

    def _hastened(self) -> bool:
        """Whether it was just seen that there is less to wait for than was thought."""
        terms, stop, now = self.terms, self._stop, self.clock.running()
        gone = terms.gone is not None and stop.gone_at is None and terms.gone() and stop.see_gone(now)
        closing = stop.gone_at is not None and terms.closing is not None and terms.closing() and stop.see_closing(now)
        return gone or closing

    async def _result(self, limit_s: float) -> str | None:
        """The job's result, if it is told within the limit; None at any other signal too."""
        for told in await self.signals.next(max(limit_s, 0.0)):
            if told.member == "JobRemoved" and len(told.body) == 4 and told.body[1] == self.job:
                return str(told.body[3])
        return None

    async def _read(self) -> UnitState | None:
        try:
            return await self.bus.state(self.path)
        except SystemdError:
            return None

    def _stopped(self, state: UnitState) -> bool:
        return self._new_life(state) or state.active_state in ("inactive", "failed")

    def _new_life(self, state: UnitState) -> bool:
        return state.invocation is not None and state.invocation != self.before.invocation

    async def _kill(self) -> None:
        try:
            await self.bus.kill(self.unit, "all", signal.SIGKILL)
            self._stop.killed_at = self.clock.running()
            self._tell()
        except SystemdError as e:
            self._kill_refused = str(e)

    def _tell(self) -> None:
        if self.terms.told is not None:
            self.terms.told(self._stop)

    @property
    def _killed_after(self) -> float | None:
        return None if self._stop.killed_at is None else self._stop.killed_at - self.began

    def _finished(self, result: str, state: UnitState | None) -> Outcome:
        if result == "done":
            return self._outcome(result, f"restarted: {self._durations(state)}", state)
        why = JOB_RESULTS.get(result, "an unknown result")
        if result == "failed" and state is not None and state.result not in (None, "success"):
            why = f"{why} ({state.result})"
        stood_down = "; standing down" if result == "canceled" else ""
        return self._outcome(
            result, f"the restart ended as {result!r}: {why}{stood_down}", state, stand_down=result == "canceled"
        )

    def _missed(self, state: UnitState) -> Outcome:
        if self._new_life(state) and state.up:
            return self._outcome("done", f"restarted, though the job's end was not seen: {self._durations(state)}", state)
        return self._outcome("unknown", f"the restart's end was not seen; the unit is {state.active_state}", state)

    def _overdue(self, phase: _Phase, state: UnitState) -> Outcome:
        waited = self.clock.running() - self.began
        if phase is _Phase.START:
            what = f"the start is not done {span(waited)} after the restart was ordered"
        elif phase is _Phase.STOP:
            what = f"the restart did not begin within {span(waited)}: the unit is {state.active_state}, its job waits for others"
        elif self._kill_refused is not None:
            what = f"the stop has not ended after {span(waited)} and could not be forced: {self._kill_refused}"
        else:
            what = f"the stop has not ended after {span(waited)}, in spite of SIGKILL: processes are stuck in the kernel"
        return self._outcome("timeout", what, state)

    def _times(self, state: UnitState | None) -> tuple[float | None, float | None]:
        """How long the stop and the start took, from systemd's own time stamps of this attempt."""
        if state is None:
            return None, None
        stop_s = start_s = None
        if state.inactive_enter_at is not None and state.inactive_enter_at >= self.began:
            stop_s = state.inactive_enter_at - self.began
        begin, end = state.inactive_exit_at, state.active_enter_at
        if begin is not None and end is not None and end >= begin >= self.began:
            start_s = end - begin
        return stop_s, start_s

    def _durations(self, state: UnitState | None) -> str:
        stop_s, start_s = self._times(state)
        parts = ["there was nothing to stop" if stop_s is None else f"stopped in {span(stop_s)}"]
        if self._killed_after is not None:
            parts[0] += f" (SIGKILL after {span(self._killed_after)})"
        if start_s is not None and start_s >= 1.0:  # else systemd counts the bare process as started (Type=simple)
            parts.append(f"started in {span(start_s)}")
        return ", ".join(parts)

    def _outcome(self, result: str, message: str, state: UnitState | None, *, stand_down: bool = False) -> Outcome:
        stop_s, start_s = self._times(state)
        return Outcome(
            result=result,
            message=message,
            stand_down=stand_down,
            killed=self._killed_after is not None,
            stop_s=stop_s,
            start_s=start_s,
            inv=state.invocation if state is not None and self._new_life(state) else None,
        )
