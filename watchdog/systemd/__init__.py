"""systemd on the system bus: a typed client over dbus-fast, shared by observe/ and act/."""

from watchdog.systemd.bus import Bus, running
from watchdog.systemd.connection import BOOTED, RESYNC, Signal, Subscription
from watchdog.systemd.errors import (
    AccessDeniedError,
    BusUnavailableError,
    CallFailedError,
    JobConflictError,
    NoAnswerError,
    NoSuchUnitError,
    RefusedError,
    SystemdError,
)
from watchdog.systemd.state import INFINITY_USEC, UnitState, parse, updated

__all__ = [
    "BOOTED",
    "INFINITY_USEC",
    "RESYNC",
    "AccessDeniedError",
    "Bus",
    "BusUnavailableError",
    "CallFailedError",
    "JobConflictError",
    "NoAnswerError",
    "NoSuchUnitError",
    "RefusedError",
    "Signal",
    "Subscription",
    "SystemdError",
    "UnitState",
    "parse",
    "running",
    "updated",
]
