"""Folds refusals of our own requests: they are about us or about something in between, never about the server's health."""

from collections import deque

from watchdog.judge.facts.probes import refused_us
from watchdog.observation import Probe
from watchdog.sglang.loglines import Line


class Refusals:
    """Folds refusals of our requests, and whether the server's own access log knows of them."""

    def __init__(self) -> None:
        self.unasked: dict[str, Probe] = {}
        """The newest probe of each kind that could not be made because of our own settings. Not bound to one life."""
        self.unasked_since: float | None = None
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

    def see_asked(self, o: Probe) -> None:
        """Take in whether we could ask at all: a key, a certificate or an address of ours may stand in the way."""
        if o.why == "config":
            self.unasked[o.probe] = o
            if self.unasked_since is None:
                self.unasked_since = o.t
        elif o.outcome != "skipped" and (o.probe != "health" or "health" in self.unasked):
            # /health is asked without a key, too, so that it tells nothing of the others.
            self.unasked, self.unasked_since = {}, None

    def see_access(self, t: float, line: Line) -> None:
        """Take in an access line of the server."""
        status = int(line.fields.get("status", 0))
        if status >= 300:
            self.logged.append((t, status))
        elif line.text.get("method") == "POST":
            self.answered_at = t
