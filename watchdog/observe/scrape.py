"""The scrape source: the server's Prometheus endpoint, each interval."""

from watchdog.clock import Clock
from watchdog.observation import Metrics
from watchdog.observe.access import Access
from watchdog.observe.http import KIB, Limits, Request, exchange
from watchdog.observe.source import Beat, Emit, Target
from watchdog.sglang.metrics import parse

CAP = 4096 * KIB
"""A real body has 90 KB (0.5.23); eight ranks that all report make it several times as long."""

ABSENT_INTERVAL_S = 600.0
"""A server that runs without --enable-metrics has none in this life: asked so rarely, in seconds."""

REST_S = 5.0
"""Between two signs of life, in seconds."""


class ScrapeSource:
    """Implements observe.source.Source for one server's metrics.

    `error` of an observation that is not ok: "absent" (404: the server runs without metrics), "status N", "refused",
    "connect_timeout", "timeout", "reset", "malformed" (no Prometheus text), "empty" (no sample of the engine),
    "config" (it cannot be asked because of our own settings).
    """

    name = "scrape"
    mandatory = False

    def __init__(self, target: Target, clock: Clock, absent_interval_s: float = ABSENT_INTERVAL_S) -> None:
        self.target = target
        self.clock = clock
        self.period_s = REST_S + target.server.metrics.limit_s
        self._access = Access(target.server)
        self._absent_interval_s = absent_interval_s

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Scrape for ever."""
        interval_s = self.target.server.metrics.interval_s
        while True:
            beat()
            inv, begun = self.target.inv, self.clock.now()
            seen = await self.scrape()
            if self.target.inv == inv:
                emit(seen)
            pause = self._absent_interval_s if seen.error == "absent" else interval_s
            while self.target.inv == inv and (left := begun + pause - self.clock.now()) > 0:
                beat()
                await self.target.change(min(left, REST_S))

    async def scrape(self) -> Metrics:
        """Ask once; also for evidence."""
        settings = self.target.server.metrics
        inv = self.target.inv
        limits = Limits(min(settings.limit_s, self.target.server.probe.connect_limit_s), settings.limit_s, CAP)
        got = await exchange(self._access, Request("GET", settings.path, limits, headers={"Accept": "text/plain;version=0.0.4"}))
        if got.outcome != "ok":
            error = "absent" if got.status == 404 else f"status {got.status}" if got.outcome == "status" else got.outcome
            return self._failed(inv, got.why or error)
        try:
            scrape = parse(got.body.decode("utf-8"))
        except UnicodeDecodeError:
            return self._failed(inv, "malformed")
        if not scrape.values:
            return self._failed(inv, "malformed" if scrape.bad_lines else "empty")
        return Metrics(t=self.clock.now(), inv=inv, ok=True, values=scrape.values, by_rank=scrape.by_rank)

    def _failed(self, inv: str | None, error: str) -> Metrics:
        return Metrics(t=self.clock.now(), inv=inv, ok=False, error=error)
