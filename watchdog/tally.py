"""What has happened since the daemon's start, counted for the exporter."""

from collections import Counter

from watchdog.judge.verdict import Action, Intent
from watchdog.observation import Probe
from watchdog.web.metrics import Durations


class Tally:
    """Counts of one server."""

    def __init__(self) -> None:
        self.restarts: Counter[tuple[str, str]] = Counter()
        self.withheld: Counter[str] = Counter()
        self.alerts: Counter[tuple[str, str]] = Counter()
        self.probe_failures: Counter[tuple[str, str]] = Counter()
        self.probe_durations: dict[str, Durations] = {}

    def probe(self, x: Probe) -> None:
        """Count one probe that was really made."""
        if x.outcome != "ok":
            self.probe_failures[x.probe, x.outcome] += 1
        elif x.total_s is not None:
            self.probe_durations.setdefault(x.probe, Durations()).add(x.total_s)

    def intent(self, intent: Intent) -> None:
        """Count one decision."""
        if intent.action is Action.WITHHOLD:
            self.withheld[intent.reason] += 1
        elif intent.action is Action.ALERT:
            self.alerts[intent.reason, str(intent.severity)] += 1

    def restart(self, reason: str, result: str) -> None:
        """Count what came of an ordered restart; its beginning is no result."""
        if result != "begun":
            self.restarts[reason, result] += 1
