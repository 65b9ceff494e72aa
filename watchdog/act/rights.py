"""Whether polkit lets this daemon restart the server's unit: asked at start, not found out at night."""

import signal

import msgspec

from watchdog.systemd import AccessDeniedError, Bus, CallFailedError, SystemdError


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """What polkit lets us do with the unit. None: could not be told.

    Attributes:
        restart: whether RestartUnit is allowed.
        kill: whether KillUnit is allowed.
    """

    restart: bool | None
    kill: bool | None


async def rights(bus: Bus, unit: str) -> Rights:
    """Ask for the rights that a restart needs, by calls that pass polkit and then fail for another reason.

    (polkit's own CheckAuthorization takes the unit's name only from root.) RestartUnit with job mode "triggering" is
    refused after the authorisation as "only valid for stop" (systemd 252, manager_add_job); KillUnit of the control process
    finds none to kill (where there is one, SIGCONT does it no harm).
    """
    try:
        await bus.restart(unit, "triggering")
        may_restart: bool | None = True
    except SystemdError as e:
        may_restart = _allowed(e, "only valid for stop")
    try:
        await bus.kill(unit, "control", signal.SIGCONT)
        may_kill: bool | None = True
    except SystemdError as e:
        may_kill = _allowed(e, "control process")
    return Rights(restart=may_restart, kill=may_kill)


def _allowed(error: SystemdError, refusal: str) -> bool | None:
    if isinstance(error, AccessDeniedError):
        return False
    return True if isinstance(error, CallFailedError) and refusal in error.text else None
