"""Adds what followed to the summaries of an incident's bundles, as it happens."""

import contextlib
from pathlib import Path

from watchdog.act import bundles
from watchdog.clock import Clock
from watchdog.worker import BusyError, Worker

LINES = 100
"""So many lines of one incident are added to its bundles."""


class Followed:
    """The lines of one incident, and how far each of its bundles has them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: list[tuple[float, str]] = []
        self._written: dict[Path, int] = {}
        self._disk = Worker("summary")

    def begin(self) -> None:
        """Another incident begins: what follows has to do with no bundle that is there."""
        self._lines.clear()
        self._written.clear()

    def saved(self, bundle: Path, t: float) -> None:
        """A bundle lies on disk: it gets what was decided and done from the moment `t` on, that of its decision."""
        self._written[bundle] = sum(at < t for at, _ in self._lines)

    def add(self, t: float, text: str) -> None:
        """Something was decided or done."""
        if len(self._lines) < LINES:
            self._lines.append((t, f"{self._clock.wall(t):%Y-%m-%d %H:%M:%S} UTC: {text}"))

    @property
    def pending(self) -> bool:
        """Whether a bundle lacks a line."""
        return any(count < len(self._lines) for count in self._written.values())

    async def write(self, limit_s: float) -> None:
        """Write what is lacking; what a disk does not take within `limit_s` stays in the journal alone. Raises nothing."""
        while self.pending:
            for bundle, count in list(self._written.items()):
                lines = [line for _, line in self._lines[count:]]
                if bundle in self._written:
                    self._written[bundle] = len(self._lines)
                with contextlib.suppress(OSError, BusyError):  # TimeoutError is an OSError
                    await self._disk.call(lambda to=bundle, new=lines: bundles.follow(to, new), limit_s)  # type: ignore[misc]
