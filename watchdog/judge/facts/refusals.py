"""Folds refusals of our own requests: they are about us or about something in between, never about the server's health."""

from collections import deque

from watchdog.judge.facts.probes import refused_us
from watchdog.observation import Probe
from watchdog.sglang.loglines import Line


class Refusals:
    """Folds refusals of our requests, and whether the server's own access log knows of them."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.recent: deque[Probe] = deque(maxlen=500)
        self.served: deque[float] = deque(maxlen=50)
        self.logged: deque[tuple[float, int]] = deque(maxlen=400)
        """(t, status) of access lines with a refusal."""
        self.answered_at: float | None = None
        """When the server last said in its access log that it answers somebody's POST."""

    def see_probe(self, o: Probe) -> None:
        """Take in a probe of ours."""
        if refused_us(o) and not (o.probe == "ready" and o.status == 404):
            self.recent.append(o)
        elif o.outcome == "ok":
            self.served.append(o.t)

    def see_access(self, t: float, line: Line) -> None:
        """Take in an access line of the server."""
        status = int(line.fields.get("status", 0))
        if status >= 300:
            self.logged.append((t, status))
        elif line.text.get("method") == "POST":
            self.answered_at = t
