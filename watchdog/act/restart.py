"""One restart of the server's unit over D-Bus, from a last look to a named result.

What this relies on (systemd 252 and later):

* KillMode=control-group (the default): SIGTERM reaches all processes of the unit. SGLang's schedulers die of it at once;
  its main process drains (tokenizer_manager.py, sigterm_watchdog): it waits for requests in flight, without end if the
  server hangs, unless it holds itself for unhealthy. It does so after a /health that failed, so the caller lets one
  /health run into its full deadline before it asks for a restart. Where that does not help, `Terms.stop_s` ends the drain.
* SIGKILL takes processes with pinned memory tens of seconds to obey, while the kernel unpins; that is no second failure.
* RestartUnit into a start limit that is hit stops the server and leaves it down. ResetFailedUnit on the unit, active or
  not, empties the counter, and NRestarts with it.
* A "done" of Type=simple or exec means that the process was started, not that the server is ready: the caller verifies.
"""

import contextlib
from collections.abc import Callable

import msgspec

from watchdog.act.attempt import KILL_LIMIT_S, Attempt, Outcome, Terms
from watchdog.act.stop import VAIN_DRAIN_S
from watchdog.clock import Clock
from watchdog.systemd import AccessDeniedError, Bus, JobConflictError, NoAnswerError, NoSuchUnitError, SystemdError, UnitState
from watchdog.wording import NOT_RESTARTED

ENGINE_GONE = ("ProcessGone",)


def patience(reason: str, stop_limit_s: float) -> tuple[float, float]:
    """How long a stop for this reason may take before SIGKILL, and after it; in sum as long as for any other reason."""
    stop_s = min(stop_limit_s, VAIN_DRAIN_S) if reason in ENGINE_GONE else stop_limit_s
    return stop_s, KILL_LIMIT_S + stop_limit_s - stop_s


async def restart(
    bus: Bus,
    unit: str,
    clock: Clock,
    terms: Terms,
    *,
    inv: str | None = None,
    down: bool = False,
    forbidden: Callable[[], str | None] = lambda: None,
    begun: Callable[[str], None] = lambda _job: None,
) -> Outcome:
    """Restart the unit once. If this is cancelled, the job goes on in systemd.

    Args:
        bus: the shared client; its `run` is somebody else's task.
        unit: its name.
        clock: the daemon's clock.
        terms: how the job is followed.
        inv: the life that the decision was about; another one stands now: nothing is done.
        down: the caller knows that the unit is down without anybody having asked for it (a crash with status 0).
            Otherwise a unit that is down and did not fail counts as stopped by a person, and nothing is done.
        forbidden: why nothing may be done after all, or None; asked last, right before systemd is.
        begun: told the job's object path as soon as there is one.

    Returns:
        The outcome; errors of systemd and the bus are outcomes too ("refused" or "unknown").
    """
    try:
        path = await bus.load(unit)
        async with bus.watch(path) as signals:
            await bus.look_at_host()
            before = await bus.state(path)
            refusal = await _last_look(bus, before, inv=inv, down=down)
            if refusal is not None:
                return refusal
            if _start_limit_may_bite(before, clock):
                with contextlib.suppress(NoSuchUnitError):  # a unit that systemd has unloaded, and its count with it
                    await bus.reset_failed(unit)
            why = forbidden()
            if why is not None:
                return Outcome(result="dropped", message=f"{NOT_RESTARTED}{why}", stand_down=True)
            began = clock.running()
            try:
                job = await bus.restart(unit)
            except NoAnswerError as e:
                return Outcome(result="unknown", message=f"whether the restart was begun is not known: {e}")
            begun(job)
            return await Attempt(
                bus=bus, unit=unit, clock=clock, path=path, job=job, before=before, signals=signals, began=began, terms=terms
            ).follow()
    except JobConflictError as e:
        return Outcome(result="refused", message=f"{NOT_RESTARTED}somebody else's job is pending ({e.text})", stand_down=True)
    except SystemdError as e:
        return Outcome(result="refused", message=f"{NOT_RESTARTED}{e}", denied=isinstance(e, AccessDeniedError))


async def _last_look(bus: Bus, state: UnitState, *, inv: str | None, down: bool) -> Outcome | None:
    """Why nothing is to be done; None if nothing speaks against the restart."""

    def no(why: str, *, stand_down: bool = True) -> Outcome:
        return Outcome(result="refused", message=f"{NOT_RESTARTED}{why}", stand_down=stand_down)

    if bus.shutting_down:
        return no("the host is shutting down")
    if state.load_state != "loaded":
        cure = "unmask it" if state.load_state == "masked" else "check its name and file"
        return no(f"the unit is {state.load_state or 'of unknown state'}; {cure}", stand_down=False)
    if state.job is not None:
        kind = await bus.job_type(state.job)
        # A start that waits or lasts is what a stuck start-up looks like: the restart takes it over.
        if kind is not None and kind != "start" and not bus.is_own(state.job):
            return no(f"a {kind} job that we did not begin is pending")
    if inv is not None and state.invocation is not None and state.invocation != inv:
        return no("the unit has begun a new life since the decision")
    if state.waits_for_restart:
        return no("systemd is about to restart it itself (Restart=)")
    if state.active_state == "inactive" and not down:
        return no("the unit was stopped by somebody")
    return None


def _start_limit_may_bite(state: UnitState, clock: Clock) -> bool:
    """Whether systemd may count the coming start over its limit: its window holds no start if the last one is older."""
    if not state.start_limit_burst or state.start_limit_interval_s == 0:
        return False
    if state.start_limit_interval_s is None or state.inactive_exit_at is None:
        return True
    return clock.running() - state.inactive_exit_at <= state.start_limit_interval_s


async def see_through(
    bus: Bus, unit: str, clock: Clock, terms: Terms, job: str | None, *, inv: str | None = None
) -> Outcome | None:
    """Follow a restart that this daemon ordered before its own end, and end its stop by force as `restart` would have.

    Args:
        bus: the shared client; its `run` is somebody else's task.
        unit: its name.
        clock: the daemon's clock.
        terms: how the job is followed.
        job: the job's object path, as `begun` was told; None where the end came between the order and systemd's answer. Then
            a restart that is pending is taken for the one that was ordered.
        inv: the life that the restart was to end.

    Returns:
        The outcome of the restart; None if systemd knows nothing of one: it was never begun.

    Raises:
        SystemdError: systemd could not be asked.
    """
    path = await bus.load(unit)
    async with bus.watch(path) as signals:
        state = await bus.state(path)
        if job is None and state.job is not None and await bus.job_type(state.job) in ("restart", "start"):
            job = state.job
        if job is None or state.job != job:
            return _ended_unseen(state, job, inv)
        bus.own(job, "restart")
        left_at = state.active_exit_at if state.active_state == "deactivating" else None
        began = clock.running() if left_at is None else left_at
        before = msgspec.structs.replace(state, invocation=inv)
        return await Attempt(
            bus=bus, unit=unit, clock=clock, path=path, job=job, before=before, signals=signals, began=began, terms=terms
        ).follow()


def _ended_unseen(state: UnitState, job: str | None, inv: str | None) -> Outcome | None:
    """What became of a restart that is over, as far as the unit shows it."""
    if state.invocation is not None and state.invocation != inv and state.up:
        return Outcome(result="done", message="restarted while the watchdog itself was away", inv=state.invocation)
    if job is None and state.invocation == inv and state.active_state != "deactivating":
        return None
    return Outcome(
        result="unknown",
        message=f"the restart ended while the watchdog itself was away; the unit is {state.active_state or 'not to be seen'}",
    )
