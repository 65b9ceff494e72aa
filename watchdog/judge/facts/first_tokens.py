"""How long users wait for their first token of late, by the server's own histogram."""

from collections import deque

from watchdog.observation import Metrics

FIRST_TOKEN = "time_to_first_token_seconds"
LATE_S = 300.0
"""Requests of so long count."""


class FirstTokens:
    """Folds scrapes of the last minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, float]] = deque()
        """(t, requests with a first token so far, seconds that they waited for it)"""

    def begin(self) -> None:
        """A new life: its histogram begins at zero."""
        self._seen.clear()

    def see(self, o: Metrics) -> None:
        """Take in a good scrape."""
        count, total = o.values.get(f"{FIRST_TOKEN}_count"), o.values.get(f"{FIRST_TOKEN}_sum")
        if count is not None and total is not None:
            self._seen.append((o.t, count, total))
        while self._seen and self._seen[0][0] <= o.t - 2 * LATE_S:
            self._seen.popleft()

    def wait_s(self, now: float) -> float:
        """The mean wait of the last minutes' requests, in seconds; 0 if none is known."""
        recent = [s for s in self._seen if s[0] > now - LATE_S]
        if len(recent) < 2:
            return 0.0
        count, total = recent[-1][1] - recent[0][1], recent[-1][2] - recent[0][2]
        return total / count if count > 0 and total >= 0 else 0.0
