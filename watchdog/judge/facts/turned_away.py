"""Requests of users that the server turned away with 503, by its own count."""

from collections import deque

from watchdog.observation import Metrics

SPAN_S = 120.0
ALL = "http_responses_total."
AWAY = f"{ALL}503"


class TurnedAway:
    """Folds scrapes of this life: how many responses were given to users of late, and how many of them were 503."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, float, float]] = deque()
        self.since: float | None = None
        """Since when somebody has been turned away again and again, without two minutes in which nobody was."""

    def see(self, o: Metrics) -> None:
        """Take in a scrape."""
        whole = sum(value for name, value in o.values.items() if name.startswith(ALL))
        if not whole:
            return
        if self._counts and whole < self._counts[-1][2]:
            self._counts.clear()
            self.since = None
        self._counts.append((o.t, o.values.get(AWAY, 0.0), whole))
        while len(self._counts) > 2 and self._counts[1][0] < o.t - SPAN_S:
            self._counts.popleft()
        if self._counts[-1][1] <= self._counts[0][1]:
            self.since = None
        elif self.since is None:
            self.since = o.t

    def of_late(self, now: float) -> tuple[float, float]:
        """How many were turned away, and how many were answered at all, within some two minutes; (0, 0) if that is not known."""
        if len(self._counts) < 2 or now - self._counts[-1][0] > SPAN_S:
            return 0.0, 0.0
        first, last = self._counts[0], self._counts[-1]
        return last[1] - first[1], last[2] - first[2]
