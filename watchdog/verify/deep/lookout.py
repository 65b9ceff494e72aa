"""Looks at the server's load while we ask it: what runs and what waits, from its metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from watchdog.observation import Metrics

LOOK_S = 1.0
STALE_S = 35.0
"""Gauges of an idle engine are right after 30 s at the latest (SGLang, all versions)."""
MOVING = ("realtime_tokens_total", "generation_tokens_total", "num_requests_total")
ACTIVE = "http_requests_active."
BLIND_LOOKS = 3

NO_METRICS = "no metrics: whether users wait cannot be seen"


class Lookout:
    """One server's load.

    Attributes:
        in_flight: how many requests of ours are under way.
    """

    def __init__(self, scrape: Callable[[], Awaitable[Metrics]], look_s: float = LOOK_S) -> None:
        self._scrape = scrape
        self._look_s = look_s
        self.in_flight = 0
        self._active_before: float | None = None

    async def values(self) -> Mapping[str, float] | None:
        """The metrics now; None where they cannot be read."""
        found = await self._scrape()
        return found.values if found.ok else None

    async def busy(self) -> str | None:
        """Why the server should not be loaded now; None if it is idle.

        A gauge that stays above zero after the last request has ended is waited for.
        """
        first = await self.values()
        if first is None:
            return NO_METRICS
        looks = int(STALE_S / LOOK_S)
        for left in range(looks, -1, -1):
            now = await self.values()
            if now is None:
                return NO_METRICS
            running, waiting = now.get("num_running_reqs", 0.0), now.get("num_queue_reqs", 0.0)
            if running <= 0 and waiting <= 0:
                self._active_before = _active(now)
                return None
            moves = any(now.get(name, 0.0) > first.get(name, 0.0) for name in MOVING)
            if waiting > 0 or moves or not left:
                return f"it is busy: {running:.0f} running, {waiting:.0f} waiting"
            await asyncio.sleep(self._look_s)
        return None

    async def trouble(self) -> str:
        """Look until requests of users wait, and say so."""
        blind = 0
        while True:
            before = self.in_flight
            now = await self.values()
            ours = max(before, self.in_flight)
            blind = blind + 1 if now is None else 0
            if blind >= BLIND_LOOKS:
                return "its metrics cannot be read any more"
            if now is not None and (waiting := self._of_users(now, ours)):
                return f"requests of users wait ({waiting:.0f} in the queue)"
            await asyncio.sleep(self._look_s)

    def _of_users(self, now: Mapping[str, float], ours: int) -> float:
        """How many wait, if some of them must be of users; 0 else."""
        waiting = now.get("num_queue_reqs", 0.0)
        # The gauge is written when a batch begins: at least one of ours is in it then, if there are only ours.
        if waiting > max(0, ours - 1):
            return waiting
        active = _active(now)
        if active is None or self._active_before is None or active - self._active_before <= ours:
            return 0.0
        return waiting


def _active(values: Mapping[str, float]) -> float | None:
    """Requests of users' endpoints that are under way in the HTTP process; None where that is not told (before 0.5.8)."""
    found = [value for name, value in values.items() if name.startswith(ACTIVE)]
    return sum(found) if found else None
