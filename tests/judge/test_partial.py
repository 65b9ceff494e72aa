"""What is only partly wrong, and what is not the server's fault: replicas, gateways, drains that are none, an unread log."""

import pytest

from watchdog.config import Judging
from watchdog.judge import completing, replicas
from watchdog.judge.facts import Facts
from watchdog.judge.facts.pause import Pause
from watchdog.judge.facts.probes import failed, foreign, refused_us
from watchdog.judge.facts.start import Start
from watchdog.judge.verdict import Status
from watchdog.observation import Log, Metrics, Observation, Probe, Unit
from watchdog.sglang.loglines import classify


def status(code: int, body: str = "", took: float = 0.003) -> Probe:
    return Probe(t=10.0, probe="health", outcome="status", status=code, body=body, total_s=took)


@pytest.mark.parametrize(
    ("probe", "theirs"),
    [
        (status(502), True),
        (status(503, "<html><head>Service Unavailable</head></html>"), True),
        (status(500, "Internal Server Error"), False),
        (status(503), False),
        (status(504, "<html></html>", took=60.0), False),
    ],
)
def test_a_gateway_that_answers_at_once_is_not_the_server(probe: Probe, theirs: bool) -> None:
    assert foreign(probe) is theirs
    assert failed(probe) is not theirs
    assert refused_us(probe) is theirs


def serving(*more: Observation) -> Facts:
    f = Facts(mid_life=True)
    f.see(Unit(t=0.0, inv="a", load_state="loaded", active_state="active", sub_state="running", main_pid=1, since=-9000.0))
    for x in more:
        f.see(x)
    return f


def batch(t: float, replica: str, running: int = 1) -> Log:
    text = (
        f"Decode batch, #running-req: {running}, #token: 900, token usage: 0.01, gen throughput (token/s): 90.00, #queue-req: 0"
    )
    return Log(t=t, inv="a", message=f"[2026-03-09 10:00:00 {replica}] {text}", pid=2)


def chat(t: float, outcome: str, took: float) -> Probe:
    return Probe(t=t, inv="a", probe="chat", outcome=outcome, total_s=took, limit_s=60.0)


def two_replicas(busy: int, *more: Observation) -> Status:
    """The first of two replicas was last heard of at 100 s, the other one goes on until 1000 s."""
    lines = [batch(100.0, "DP0", busy), *(batch(t, "DP1") for t in range(100, 1000, 10))]
    f = serving(*sorted([*lines, *more], key=lambda x: x.t))
    return replicas.judge(f, Judging(), 1000.0).status


def test_a_replica_that_only_has_nothing_to_do_is_not_hung() -> None:
    assert two_replicas(0) is Status.TRUE
    assert two_replicas(1) is Status.TRUE  # its last request may have ended a moment after that line


def test_a_silent_replica_is_hung_by_its_own_gauge_or_by_canaries_in_turn() -> None:
    gauges = {"DP0 TP0": {"num_running_reqs": 1.0}, "DP1 TP0": {"num_running_reqs": 1.0}}
    scrape = Metrics(t=990.0, inv="a", ok=True, values={"num_running_reqs": 2.0}, by_rank=gauges)
    lost = [chat(t, "timeout", 60.0) for t in (400.0, 600.0, 800.0)]
    quick = [chat(t, "ok", 0.2) for t in (300.0, 500.0, 700.0)]
    slow = [chat(t, "ok", 50.0) for t in (300.0, 500.0, 700.0)]

    assert two_replicas(1, scrape) is Status.FALSE
    assert two_replicas(1, *lost, *quick) is Status.FALSE
    assert two_replicas(1, *lost, *slow) is Status.TRUE  # a crowded server
    assert two_replicas(0, *lost, *quick) is Status.TRUE


def test_a_drain_is_disproved_by_a_health_check_and_upheld_by_its_own_lines() -> None:
    def line(t: float, text: str) -> Log:
        return Log(t=t, inv="a", message=f"[2026-03-09 10:00:00] {text}", pid=1)

    def health(t: float) -> Probe:
        return Probe(t=t, inv="a", probe="health", outcome="ok", status=200, total_s=1.0)

    sigterm = line(100.0, "SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    drains = line(105.0, "Gracefully exiting... Remaining number of requests 2.")

    assert serving(sigterm, health(110.0)).life.sigterm_at == 100.0
    assert serving(sigterm, health(120.0)).life.sigterm_at is None
    assert serving(sigterm, drains, health(117.0)).life.sigterm_at == 100.0


def test_a_pause_is_over_when_requests_are_let_in_long_after() -> None:
    p = Pause()
    p.see_text(100.0, "Start update_weights. Load format=auto")
    p.see_prefill(120.0, 900.0)
    assert p.holds(130.0)

    p.see_prefill(170.0, 1.0)
    assert p.holds(180.0)

    p.see_prefill(170.0, 900.0)
    assert not p.holds(180.0)


def test_memory_that_was_released_stays_so_through_updates_and_whatever_ready_says() -> None:
    p = Pause()

    def post(t: float, path: str) -> None:
        line = classify(f'[2026-01-14 02:00:00] INFO:     10.0.0.9:41000 - "POST {path} HTTP/1.1" 200 OK')
        assert line is not None
        p.see_access(t, line)

    post(100.0, "/release_memory_occupation")
    post(400.0, "/pause_generation")
    post(410.0, "/update_weights_from_tensor")
    p.see_probe(Probe(t=420.0, inv="a", probe="ready", outcome="ok", status=200))
    post(430.0, "/continue_generation")
    assert p.holds(500.0)

    post(600.0, "/resume_memory_occupation")
    assert not p.holds(601.0) and p.ended_at == 600.0


def test_any_bar_is_progress_as_long_as_it_moves() -> None:
    start = Start()
    start.begin(0.0)
    for t, bar in (
        (30.0, " 45%|####      | 2.10G/4.67G [00:30<00:33, 76MB/s]"),
        (60.0, " 46%|####      | 2.15G/4.67G [01:00<00:33, 1MB/s]"),
    ):
        start.see_line(Log(t=t, message=f"model-00001-of-00064.safetensors: {bar}"), None)
        assert start.progress_at == t

    start.see_line(
        Log(t=90.0, message="model-00001-of-00064.safetensors:  46%|####      | 2.15G/4.67G [01:30<00:53, 1MB/s]"), None
    )
    assert start.progress_at == 60.0


def working(t: float, tokens: float) -> Metrics:
    return Metrics(t=t, inv="a", ok=True, values={"num_running_reqs": 1.0, "realtime_tokens_total": tokens})


def unanswered(tokens_a_second: float) -> str:
    """What is made of canaries that time out while four requests get so many tokens each and none has ended for ten minutes."""
    f = serving()
    for t in range(10, 1000, 10):
        values = {
            "num_running_reqs": 4.0,
            "num_queue_reqs": 0.0,
            "num_requests_total": 7.0 + min(t, 300) // 100,
            "realtime_tokens_total": 4 * tokens_a_second * t,
            "realtime_tokens_total.decode": 4 * tokens_a_second * t,
        }
        f.see(Metrics(t=float(t), inv="a", ok=True, values=values))
        if t in (480, 620, 760, 900):
            f.see(chat(float(t), "timeout", 60.0))
    return completing.stalled(f, Judging(), 991.0).reason


def test_a_canary_that_cannot_end_at_the_pace_of_the_counters_proves_nothing() -> None:
    assert unanswered(0.2) == "TooSlowToTell"
    assert unanswered(40.0) == "Stalled"


def deaf(gap: int, silent_from: float) -> bool:
    """Whether we are taken for deaf at 1000 s, when lines came each `gap` seconds until then, and counters moved all the time."""
    f = serving()
    for t in range(0, 1000, 10):
        if t < silent_from and t % gap == 0:
            f.see(batch(float(t), "TP0"))
        f.see(working(float(t), float(t)))
    return f.senses.deaf(1000.0)


def test_a_log_that_says_nothing_of_a_server_at_work_is_not_read() -> None:
    assert deaf(gap=10, silent_from=500) is True
    assert deaf(gap=10, silent_from=900) is False  # not for long yet
    assert deaf(gap=10, silent_from=150) is False  # too few lines to know its pace
