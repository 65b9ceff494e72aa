"""A service unit's properties, typed (org.freedesktop.systemd1(5))."""

from typing import Any

import msgspec

INFINITY_USEC = 2**64 - 1
# CLD_* of <signal.h>, which is what ExecMainCode holds; 0 while the main process runs or before it ever ran.
EXIT_CODES = {1: "exited", 2: "killed", 3: "dumped"}


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """One consistent reading of a unit. None: not read, or systemd has no value for it.

    Moments (`..._at`) are seconds on CLOCK_MONOTONIC. A duration of "infinity" is None, but for `watchdog_s`,
    where it means what 0 means: none.

    Attributes:
        id: the unit's canonical name, which may differ from the name that was asked for (an alias).
        job: the object path of the pending job.
        restart_s: how long systemd waits before its own restart (RestartUSecNext from 254 on, else RestartUSec).
    """

    id: str | None = None
    load_state: str | None = None
    active_state: str | None = None
    sub_state: str | None = None
    result: str | None = None
    main_pid: int | None = None
    exec_main_code: str | None = None
    exec_main_status: int | None = None
    n_restarts: int | None = None
    invocation: str | None = None
    control_group: str | None = None
    job: str | None = None
    start_limit_burst: int | None = None
    start_limit_interval_s: float | None = None
    restart: str | None = None
    restart_s: float | None = None
    timeout_start_s: float | None = None
    timeout_stop_s: float | None = None
    watchdog_s: float | None = None
    state_change_at: float | None = None
    inactive_exit_at: float | None = None
    active_enter_at: float | None = None
    active_exit_at: float | None = None
    inactive_enter_at: float | None = None

    @property
    def up(self) -> bool:
        """Whether the unit is active or on its way there."""
        return self.active_state in ("active", "activating", "reloading", "refreshing")

    @property
    def waits_for_restart(self) -> bool:
        """Whether systemd's own Restart= is about to start it again ("auto-restart", "auto-restart-queued")."""
        return (self.sub_state or "").startswith("auto-restart")


def parse(properties: dict[str, Any]) -> UnitState:
    """The answer to GetAll, variants unpacked, as a UnitState; a value of an unexpected type counts as not read."""

    def text(name: str) -> str | None:
        value = properties.get(name)
        return value if isinstance(value, str) else None

    def number(name: str) -> int | None:
        value = properties.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def seconds(name: str) -> float | None:
        usec = number(name)
        return None if usec is None or usec >= INFINITY_USEC else usec / 1e6

    def moment(name: str) -> float | None:
        usec = number(name)
        return usec / 1e6 if usec else None

    restart_s = seconds("RestartUSecNext")
    return UnitState(
        id=text("Id"),
        load_state=text("LoadState"),
        active_state=text("ActiveState"),
        sub_state=text("SubState"),
        result=text("Result"),
        main_pid=number("MainPID") or None,
        exec_main_code=EXIT_CODES.get(number("ExecMainCode") or 0),
        exec_main_status=number("ExecMainStatus"),
        n_restarts=number("NRestarts"),
        invocation=_hex(properties.get("InvocationID")),
        control_group=text("ControlGroup"),
        job=_job(properties.get("Job")),
        start_limit_burst=number("StartLimitBurst"),
        start_limit_interval_s=seconds("StartLimitIntervalUSec"),
        restart=text("Restart"),
        restart_s=seconds("RestartUSec") if restart_s is None else restart_s,
        timeout_start_s=seconds("TimeoutStartUSec"),
        timeout_stop_s=seconds("TimeoutStopUSec"),
        watchdog_s=0.0 if number("WatchdogUSec") == INFINITY_USEC else seconds("WatchdogUSec"),
        state_change_at=moment("StateChangeTimestampMonotonic"),
        inactive_exit_at=moment("InactiveExitTimestampMonotonic"),
        active_enter_at=moment("ActiveEnterTimestampMonotonic"),
        active_exit_at=moment("ActiveExitTimestampMonotonic"),
        inactive_enter_at=moment("InactiveEnterTimestampMonotonic"),
    )


def updated(state: UnitState, changed: Any) -> UnitState:
    """`state` with what a PropertiesChanged signal says of its sub-state: for states too short to be read."""
    fresh = parse(changed) if isinstance(changed, dict) else UnitState()
    if fresh.sub_state is None:
        return state
    return msgspec.structs.replace(
        state, sub_state=fresh.sub_state, state_change_at=fresh.state_change_at or state.state_change_at
    )


def _hex(value: Any) -> str | None:
    """An `ay` (bytes, or a list of numbers) as hexadecimal digits; None for an empty one."""
    if not isinstance(value, bytes | list | tuple):
        return None  # bytes(a number) would be so many zeros
    try:
        return bytes(value).hex() or None
    except (TypeError, ValueError):
        return None


def _job(value: Any) -> str | None:
    """The path of a Job property, which is (id, path); id 0 means that there is none."""
    if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], str) and value[0]:
        return value[1]
    return None
