"""What can go wrong on the way to systemd, each with a message that names the cure."""


class SystemdError(Exception):
    """systemd could not be asked, or said no."""


class BusUnavailableError(SystemdError):
    """The system bus, or systemd on it, is not there (now)."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the system bus is not available ({why}); look at: systemctl status dbus.service")


class NoAnswerError(SystemdError):
    """A call was not answered within its deadline; whether it had an effect is unknown."""

    def __init__(self, what: str, limit_s: float) -> None:
        super().__init__(f"{what} was not answered within {limit_s:g} s; systemd or the bus is overloaded or stuck")


class CallFailedError(SystemdError):
    """A call failed for a reason that has no type of its own here.

    Attributes:
        name: the D-Bus error name.
        text: what the other side said.
    """

    def __init__(self, what: str, name: str, text: str) -> None:
        super().__init__(f"{what} failed: {text or name}")
        self.name = name
        self.text = text


class NoSuchUnitError(CallFailedError):
    """systemd knows no such unit."""

    def __init__(self, what: str, name: str, text: str) -> None:
        super().__init__(
            what, name, f"{text.rstrip('.')}; check the unit's name in the configuration, then systemctl daemon-reload"
        )


class AccessDeniedError(CallFailedError):
    """polkit (or the bus) does not let us do that."""

    def __init__(self, what: str, name: str, text: str) -> None:
        super().__init__(
            what,
            name,
            f"{text.rstrip('.')}; the polkit rule of sglang-watchdog must name this unit, and polkitd must be installed",
        )


class JobConflictError(CallFailedError):
    """A job of somebody else on this unit stands in the way (job mode "fail")."""


class RefusedError(CallFailedError):
    """The unit's own settings, or a host that goes down, forbid it (RefuseManualStart=, masked, shutting down)."""


SYSTEMD_ERROR = "org.freedesktop.systemd1."
BUS_ERROR = "org.freedesktop.DBus.Error."

# Names from systemd's src/libsystemd/sd-bus/bus-common-errors.h and the D-Bus specification; as seen with systemd 252.
_BY_NAME: dict[str, type[CallFailedError]] = {
    SYSTEMD_ERROR + "NoSuchUnit": NoSuchUnitError,
    SYSTEMD_ERROR + "TransactionIsDestructive": JobConflictError,
    SYSTEMD_ERROR + "TransactionJobsConflicting": JobConflictError,
    SYSTEMD_ERROR + "OnlyByDependency": RefusedError,
    SYSTEMD_ERROR + "UnitMasked": RefusedError,
    SYSTEMD_ERROR + "ShuttingDown": RefusedError,
    BUS_ERROR + "AccessDenied": AccessDeniedError,
    BUS_ERROR + "InteractiveAuthorizationRequired": AccessDeniedError,
}
# What dbus-daemon itself says while systemd is not (yet again) connected to it, or while it ends.
_ABSENT = {BUS_ERROR + tail for tail in ("ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected", "NoServer")}


def from_reply(what: str, name: str | None, text: str) -> SystemdError:
    """The exception for a D-Bus error reply.

    Args:
        what: the call, for people ("RestartUnit sglang.service").
        name: the error's name.
        text: the error's text.
    """
    name = name or "an error without a name"
    if name in _ABSENT:
        return BusUnavailableError(text or name)
    return _BY_NAME.get(name, CallFailedError)(what, name, text)
