"""Who waits in the HTTP server while the engine is silent, and figures that are told as of when they were told."""

import pytest

from watchdog import observation as o
from watchdog.judge.engine import Engine
from watchdog.replay import settings_of

LIFE = "a" * 32
GOOD = o.Answer(text="The capital of France is Paris.", finish_reason="stop")


class Server:
    """A server that is scraped every 10 s and asked every 20 s."""

    def __init__(self) -> None:
        self.engine = Engine(settings_of(o.Header(server="kimi")), mid_life=True)
        self.t = 0.0
        self.tokens = 0.0
        self.see(o.Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", main_pid=1, since=0.0))

    def see(self, x: o.Observation) -> None:
        list(self.engine.observe(x))

    def scrape(self, opened: float | None, *, running: float = 0.0, steps: bool = False) -> "Server":
        self.t += 10.0
        self.tokens += 100.0 if steps else 0.0
        values = {"num_running_reqs": running, "num_queue_reqs": 0.0, "realtime_tokens_total": self.tokens}
        if opened is not None:
            values |= {
                "http_requests_active": opened + 2.0,  # with /metrics and /health
                "http_requests_active./generate": 0.0,
                "http_requests_active./v1/chat/completions": opened,
            }
        self.see(o.Metrics(t=self.t, inv=LIFE, ok=True, values=values))
        return self

    def probe(self, *, ok: bool) -> "Server":
        self.t += 1.0
        what = {"outcome": "ok", "status": 200, "total_s": 0.3, "answer": GOOD} if ok else {"outcome": "timeout", "limit_s": 60.0}
        self.see(o.Probe(t=self.t, inv=LIFE, probe="chat", **({"total_s": 60.0} | what)))  # type: ignore[arg-type]
        return self

    def well(self, opened: float | None = 1.0) -> "Server":
        for _ in range(10):
            self.scrape(opened, steps=True).probe(ok=True)
        return self.scrape(None if opened is None else 0.0, steps=True)

    def silent(self, opened: float | None, *, running: float = 0.0, times: int = 8) -> "Server":
        for _ in range(times):
            self.scrape(opened, running=running)
        self.probe(ok=False)
        for _ in range(times):
            self.scrape(opened, running=running)
        return self

    @property
    def load(self) -> str:
        return self.engine.facts.load()


def test_while_the_engine_is_silent_the_open_requests_are_told() -> None:
    server = Server().well()
    assert server.load == "0 running, 0 queued"
    server.silent(3.0)
    assert server.load == "0 running, 0 queued when last told, 3 requests open (one may be our own)"
    queue = server.engine.conditions["QueueFlowing"].message
    assert queue == f"No request waited: {server.load}."
    server.probe(ok=True)
    assert server.load == "0 running, 0 queued"


@pytest.mark.parametrize(
    ("opened", "running", "said"),
    [
        (1.0, 0.0, "0 running, 0 queued when last told, 1 request open (it may be our own)"),
        (8.0, 8.0, "8 running, 0 queued when last told"),
        (0.0, 0.0, "0 running, 0 queued when last told"),
        (None, 0.0, "0 running, 0 queued when last told"),  # a version without that gauge
    ],
)
def test_what_adds_nothing_is_not_told(opened: float | None, running: float, said: str) -> None:
    assert Server().well(None if opened is None else 0.0).silent(opened, running=running).load == said


def test_an_engine_that_moves_tells_of_now_though_its_users_get_nothing() -> None:
    """The detokenizer is stopped: batches go on, and nobody is answered."""
    server = Server().well().silent(2.0).scrape(3.0, steps=True)
    assert server.load == "0 running, 0 queued, 3 requests open (one may be our own)"


def test_requests_that_stay_counted_for_ever_are_not_told_as_open() -> None:
    server = Server()
    for _ in range(4):
        server.well(5.0)
        server.scrape(4.0, steps=True)
    for _ in range(31):
        server.scrape(4.0, steps=True)
    assert server.silent(6.0).load == "0 running, 0 queued when last told, 3 requests open (one may be our own)"


def test_a_canary_in_flight_at_each_scrape_hides_nobody() -> None:
    server = Server().scrape(1.0, steps=True).scrape(1.0, steps=True).probe(ok=True)
    assert server.silent(3.0).load == "0 running, 0 queued when last told, 3 requests open (one may be our own)"


def test_what_was_counted_is_not_told_once_scrapes_fail() -> None:
    server = Server().well().silent(3.0)
    server.see(o.Metrics(t=server.t + 5.0, inv=LIFE, ok=False, error="timeout"))
    assert "open" not in server.load
