"""Is the host pool used? Counters of the hierarchical cache over hours."""

from collections import deque

import msgspec

from watchdog.observation import Metrics

MARK_S = 1800.0
DAY_S = 86400.0
PROMPTS = "prompt_tokens_total"
BACK = ("load_back_tokens_total", "cached_tokens_total.host")
"""Tokens that came back from the host pool (mem_cache/hiradix_cache.py; labelled counters appear with their first increment)."""
STORED = ("hicache_backup_tokens_total", "evicted_tokens_total")
COUNTERS = (PROMPTS, "num_requests_total", "cached_tokens_total.device", "cached_tokens_total.storage", *BACK, *STORED)
FILL = ("hicache_host_used_tokens", "hicache_host_total_tokens")


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What happened over a span of one life.

    Attributes:
        span_s: over which time.
        requests, prompt_tokens: the traffic.
        read_back: tokens that came back from the host pool.
        backed_up: tokens that were written to it; None where the version does not count them (before 0.5.18).
        evicted: tokens that the GPU's cache gave up.
        device: tokens that the GPU's own cache saved.
        storage: tokens that a storage backend gave.
        ever: whether anything ever came back in this life, by the counters' totals.
        fill: how much of the host pool is in use now, 0…1; None where the version does not tell (before 0.5.10).
        holds: how many tokens the host pool holds when it is full; None likewise.
    """

    span_s: float
    requests: float
    prompt_tokens: float
    read_back: float
    backed_up: float | None
    evicted: float
    device: float
    storage: float
    ever: bool
    fill: float | None
    holds: float | None


class CacheUse:
    """Folds scrapes of one life into half-hourly marks of a day."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life: its counters begin at zero."""
        self._marks: deque[tuple[float, dict[str, float]]] = deque()
        self._use: Use | None = None

    def see(self, o: Metrics) -> None:
        """Take in a good scrape."""
        if PROMPTS not in o.values:
            return
        if self._marks and o.t - self._marks[-1][0] < MARK_S:
            return
        self._marks.append((o.t, {name: o.values[name] for name in (*COUNTERS, *FILL) if name in o.values}))
        while len(self._marks) > 2 and self._marks[1][0] <= o.t - DAY_S:
            self._marks.popleft()
        self._use = self._sum_up()

    def use(self) -> Use | None:
        """What happened between the oldest mark of the last day and the newest; None before there are two."""
        return self._use

    def _sum_up(self) -> Use | None:
        (t0, a), (t1, b) = self._marks[0], self._marks[-1]
        if t1 <= t0:
            return None

        def grew(name: str) -> float:
            return max(0.0, b.get(name, 0.0) - a.get(name, 0.0))

        used, total = (b.get(name) for name in FILL)
        return Use(
            span_s=t1 - t0,
            requests=grew("num_requests_total"),
            prompt_tokens=grew(PROMPTS),
            read_back=max(grew(name) for name in BACK),
            backed_up=grew(STORED[0]) if STORED[0] in b else None,
            evicted=grew(STORED[1]),
            device=grew("cached_tokens_total.device"),
            storage=grew("cached_tokens_total.storage"),
            ever=any(b.get(name, 0.0) > 0 for name in BACK),
            fill=used / total if used is not None and total else None,
            holds=total or None,
        )
