"""The one clock of the program, and its fake for tests.

All moments inside the program are seconds on CLOCK_BOOTTIME (it never jumps and goes on in suspend, clock_gettime(2)),
counted from an origin that the program chose. Wall-clock time is only for people and for what must outlive a reboot.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

STEP = timedelta(seconds=1)
"""A wall clock that is off by more was set; by less, the two clocks were only read one after the other, or it is slewed."""

SURE_S = 86400.0
"""Only a wall clock that was not set for so long may delete what is old: one that is ahead for a moment would delete all."""
SET = timedelta(hours=1)
"""Set by less, a wall clock is as sure as before: no age that deletes anything is counted in hours."""


def rfc3339(at: datetime, timespec: str = "milliseconds") -> str:
    """A moment in UTC for programs (RFC 3339): "2026-01-14T02:00:13.250Z"; `timespec` as in datetime.isoformat."""
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")


class Clock(Protocol):
    """Tells the time; implemented by `BootClock` and, in tests, by `FakeClock`."""

    @property
    def origin(self) -> datetime:
        """The wall-clock moment (UTC) of `now() == 0`, by the wall clock as it is set now."""
        ...

    def now(self) -> float:
        """Seconds since the origin, on a clock that neither jumps nor stops in suspend."""
        ...

    def running(self) -> float:
        """Seconds on CLOCK_MONOTONIC: as `now`, but it stands still while the machine is suspended."""
        ...

    def at_monotonic(self, seconds: float) -> float:
        """The moment of a raw CLOCK_MONOTONIC reading (as systemd's …TimestampMonotonic), in seconds since the origin.

        Exact while the machine was not suspended in between; off by the suspended time otherwise.
        """
        ...

    def wall(self, t: float) -> datetime:
        """The wall-clock time (UTC) of the moment `t`."""
        ...

    def sure(self) -> datetime | None:
        """The wall-clock time (UTC), once it was not set for `SURE_S` of our own run; None before."""
        ...


class _Steady:
    """Since when the wall clock goes with the one that neither jumps nor stops."""

    def __init__(self) -> None:
        self._since = 0.0
        self._origin: datetime | None = None

    def sure(self, origin: datetime, now: float) -> datetime | None:
        if self._origin is None or abs(origin - self._origin) > SET:
            self._since, self._origin = now, origin
        return origin + timedelta(seconds=now) if now - self._since >= SURE_S else None


class BootClock:
    """The real clock."""

    def __init__(self) -> None:
        self._origin = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._wall = datetime.now(UTC)
        self._steady = _Steady()
        self.sure()  # what is read later is compared with this

    @property
    def origin(self) -> datetime:
        """As it was read when the clock was made, until the wall clock is set (time servers come late after a boot)."""
        read = datetime.now(UTC) - timedelta(seconds=self.now())
        if abs(read - self._wall) > STEP:
            self._wall = read
        return self._wall

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._origin

    def running(self) -> float:
        return time.monotonic()

    def at_monotonic(self, seconds: float) -> float:
        return self.now() - (time.monotonic() - seconds)

    def wall(self, t: float) -> datetime:
        return self.origin + timedelta(seconds=t)

    def sure(self) -> datetime | None:
        return self._steady.sure(self.origin, self.now())


class FakeClock:
    """A clock that a test moves by hand."""

    def __init__(self, origin: datetime = datetime(2026, 1, 14, 2, 0, tzinfo=UTC)) -> None:
        self.origin = origin
        self._now = 0.0
        self._suspended = 0.0
        self._steady = _Steady()
        self.sure()

    def advance(self, seconds: float) -> None:
        """Move on by `seconds` (at least 0)."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds

    def suspend(self, seconds: float) -> None:
        """Move on by `seconds` in which the machine did not run."""
        self.advance(seconds)
        self._suspended += seconds

    def now(self) -> float:
        return self._now

    def running(self) -> float:
        return self._now - self._suspended

    def at_monotonic(self, seconds: float) -> float:
        return seconds + self._suspended

    def wall(self, t: float) -> datetime:
        return self.origin + timedelta(seconds=t)

    def sure(self) -> datetime | None:
        return self._steady.sure(self.origin, self._now)
