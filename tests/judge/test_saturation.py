"""A server at its limit: what waits, and who is turned away."""

from watchdog.config import Judging
from watchdog.judge import answers, saturation
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Status, Verdict
from watchdog.observation import Answer, Log, Metrics, Observation, Probe, Unit

INV = "a" * 32
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


def scrape(t: float, good: float, away: float, queue: float = 2.0) -> Metrics:
    values = {"http_responses_total.200": good, "num_running_reqs": 2.0, "num_queue_reqs": queue}
    if away:
        values["http_responses_total.503"] = away
    return Metrics(t=t, inv=INV, ok=True, values=values)


def facts(*seen: Observation) -> Facts:
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    f.see(Log(t=1.0, inv=INV, message=READY))
    for x in seen:
        f.see(x)
    return f


def judged(now: float, *seen: Observation) -> Verdict:
    return saturation.judge(facts(*seen), Judging(), now)


def test_users_who_are_turned_away_are_seen_without_a_canary() -> None:
    """Measured with 0.5.23 and --max-queued-requests 2: requests go on to end, so no canary is sent that would see the 503."""
    v = judged(46.0, scrape(5.0, 4, 0), scrape(15.0, 5, 110), scrape(45.0, 8, 396))

    assert (v.status, v.reason) == (Status.FALSE, "QueueFull")
    assert v.message.startswith("396 of 400 requests within two minutes were turned away (503; 2 running, 2 queued)")


def test_the_edge_of_a_burst_and_what_is_long_ago_are_no_alarm() -> None:
    assert judged(46.0, scrape(5.0, 400, 0), scrape(45.0, 800, 12)).status is Status.TRUE
    later = [scrape(400.0 + 10 * i, 9 + i, 396, queue=0) for i in range(3)]
    assert judged(421.0, scrape(5.0, 4, 0), scrape(45.0, 8, 396), *later).status is Status.TRUE
    assert judged(400.0, scrape(5.0, 4, 0), scrape(45.0, 8, 396)).status is Status.TRUE


def test_a_new_life_counts_anew() -> None:
    assert judged(46.0, scrape(5.0, 4, 396), scrape(45.0, 3, 0)).status is Status.TRUE


def test_a_queue_that_a_newer_line_shows_empty_is_not_said_to_be_full_and_empty() -> None:
    line = "[2026-01-14 02:00:46] Decode batch, #running-req: 1, #token: 9, gen throughput (token/s): 9.00, #queue-req: 0"
    v = judged(46.0, scrape(45.0, 4, 0), Log(t=45.5, inv=INV, message=line))

    assert v.message == "No request waits any more."


def test_a_full_queue_told_in_an_event_of_a_stream_is_no_failed_canary() -> None:
    """0.5.23 answers a streamed request with 200 and then an event whose error has the code 503."""
    full = [
        Probe(
            t=20.0 + 20 * i,
            inv=INV,
            probe="chat",
            outcome="status",
            status=503,
            total_s=0.2,
            limit_s=60.0,
            body="",
            detail="saturated (503): The request queue is full.",
        )
        for i in range(12)
    ]
    f = facts(scrape(5.0, 4, 0), *full)

    assert saturation.judge(f, Judging(), 242.0).reason == "QueueFull"
    assert f.probes.failures_since(0.0) == []
    assert answers.judge(f, Judging(), 242.0).calls == ()


def test_all_are_turned_away_by_an_engine_at_rest_is_no_load() -> None:
    """Once it served: told after `stall_s`, restarted after twice that. Its gauges say that nothing runs and nothing waits."""
    seen = [scrape(5.0, 9, 0, queue=0), *(at_rest(10.0 * i, 9, 19 * i) for i in range(2, 52))]
    full = [turned_away(60.0 * i) for i in range(1, 9)]
    told = sorted([*seen, *full], key=lambda x: x.t)

    def calls(until: float, *before: Observation) -> list[str]:
        f = facts(*before, *(x for x in told if x.t <= until))
        return [str(c.want) for c in saturation.judge(f, Judging(), until).calls]

    served = Probe(
        t=8.0, inv=INV, probe="chat", outcome="ok", status=200, total_s=0.2, limit_s=60.0, answer=Answer(text="Paris.")
    )
    assert calls(200.0, served) == []
    assert calls(300.0, served) == ["alert"]
    assert calls(515.0, served) == ["alert", "restart"]
    assert calls(515.0) == ["alert"], "what never served in this life is not helped by another"


def test_a_server_that_works_is_not_at_rest() -> None:
    f = facts(*(at_rest(10.0 * i, 9, 19 * i, running=2) for i in range(1, 60)))

    assert saturation.judge(f, Judging(), 595.0).reason == "QueueFull"


def at_rest(t: float, good: float, away: float, running: float = 0.0) -> Metrics:
    x = scrape(t, good, away, queue=0)
    return Metrics(t=t, inv=INV, ok=True, values={**x.values, "num_running_reqs": running})


def turned_away(t: float) -> Probe:
    body = '{"message":"The request queue is full.","type":"503","code":503}'
    return Probe(t=t, inv=INV, probe="chat", outcome="status", status=503, total_s=0.02, limit_s=60.0, body=body)
