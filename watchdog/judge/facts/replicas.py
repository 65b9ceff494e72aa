"""The data-parallel replicas of the server, each by its own batch lines and gauges."""

from watchdog.observation import Metrics
from watchdog.sglang.marks import Line

PACE_GAPS_LEAST_S = 5.0


class Replica:
    """What one replica last showed."""

    __slots__ = ("busy", "gap", "gauge_at", "load", "moved_at", "tokens")

    def __init__(self, t: float) -> None:
        self.moved_at = t
        """When it last printed a batch line, or a counter of its own grew."""
        self.busy = False
        """Whether it had work in hand then, as far as a line of it tells."""
        self.gap = 0.0
        """Its longest pause so far with work in hand, in seconds."""
        self.load: float | None = None
        """Requests running and queued there by its own gauges; None if it has none."""
        self.gauge_at: float | None = None
        self.tokens: float | None = None


class Replicas:
    """Folds batch lines and scrapes that name a data-parallel rank. Empty where there is but one."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life: none was seen yet."""
        self.seen: dict[str, Replica] = {}

    def see_batch(self, t: float, line: Line) -> None:
        """Take in a batch line; those without a data-parallel rank in their prefix tell of no replica."""
        if line.rank is None or not line.rank.startswith("DP"):
            return
        r = self._of(line.rank, t)
        f = line.fields
        busy = f.get("running", 0) > 0 or f.get("queue", 0) > 0 or f.get("pending_token", 0) > 0
        if r.busy and busy and t - r.moved_at > max(r.gap, PACE_GAPS_LEAST_S):
            r.gap = t - r.moved_at
        r.busy = busy
        r.moved_at = max(r.moved_at, t)

    def see_metrics(self, o: Metrics) -> None:
        """Take in a scrape with numbers by rank."""
        loads: dict[str, float] = {}
        for rank, values in (o.by_rank or {}).items():
            if not rank.startswith("DP"):
                continue
            name = rank.partition(" ")[0]
            loads[name] = loads.get(name, 0.0) + values.get("num_running_reqs", 0.0) + values.get("num_queue_reqs", 0.0)
            r = self._of(rank, o.t)
            tokens = values.get("realtime_tokens_total")
            if tokens is not None:
                if r.tokens is not None and tokens > r.tokens:
                    r.moved_at = o.t
                r.tokens = max(tokens, r.tokens or 0.0)
        for name, load in loads.items():
            self.seen[name].load, self.seen[name].gauge_at = load, o.t

    def forgive(self, t: float) -> None:
        """We did not run until `t`: silence before it proves nothing."""
        for r in self.seen.values():
            r.moved_at = max(r.moved_at, t)

    def _of(self, rank: str, t: float) -> Replica:
        name = rank.partition(" ")[0]
        if name not in self.seen:
            self.seen[name] = Replica(t)
        return self.seen[name]
