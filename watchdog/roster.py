"""All servers that are watched, and what is to be said of them together."""

import os
from typing import Any

from watchdog import __version__
from watchdog.act import redact
from watchdog.clock import Clock
from watchdog.server import Server
from watchdog.sources import Run
from watchdog.watch import Watch

REFUSED_LIMIT = 600
"""Characters of why a configuration was refused that `status` shows."""


class Roster:
    """What the daemon is made of, for whoever answers or shows something.

    Attributes:
        servers: the watched servers, by their names.
        shared: the sources that look at the host, at work.
        reload_refused: why the configuration of the last reload was kept out.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.servers: dict[str, Server] = {}
        self.shared: list[Run] = []
        self.reload_refused: str | None = None

    def watches(self) -> list[Watch]:
        """Of all servers."""
        return [s.watch for s in self.servers.values()]

    def runs(self) -> list[Run]:
        """All sources at work."""
        return [*self.shared, *(r for s in self.servers.values() for r in s.runs)]

    def alive(self) -> bool:
        """Whether every mandatory source gives signs of life: WATCHDOG=1 hangs on it."""
        now = self.clock.now()
        return all(r.alive(now) for r in self.runs() if r.source.mandatory)

    def sentence(self) -> str:
        """One sentence on every server, the first that is ill in front."""
        watches = self.watches()
        refused = "the last reload was refused; " if self.reload_refused is not None else ""
        if len(watches) == 1:
            return refused + watches[0].sentence()
        ordered = sorted(watches, key=lambda w: w.ill(), reverse=True)
        return refused + " · ".join(f"{w.server.name}: {w.sentence()}" for w in ordered)

    def describe(self) -> dict[str, Any]:
        """What the daemon says of itself when asked."""
        now = self.clock.now()
        return {
            "version": __version__,
            "pid": os.getpid(),
            "up_s": round(now, 1),
            "alive": self.alive(),
            "reload_refused": redact.line(self.reload_refused, REFUSED_LIMIT) if self.reload_refused is not None else None,
            "sources": [
                {"name": r.source.name, "beat_age_s": round(now - r.beat_at, 1), "falls": r.falls, "error": r.error}
                for r in self.runs()
            ],
        }
