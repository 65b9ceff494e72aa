"""The engine's pace is learned from work alone: an idle server's pauses between requests are none of it."""

from watchdog.judge.facts.work import Work
from watchdog.observation import Metrics
from watchdog.sglang.loglines import classify

INV = "a" * 32
STAMP = "[2026-01-14 02:00:00 TP0] "
PREFILL = (
    "Prefill batch, #new-seq: 1, #new-token: 40, #cached-token: 0, token usage: 0.00, #running-req: {running}, #queue-req: 0"
)
DECODE = "Decode batch, #running-req: 1, #token: 60, token usage: 0.00, gen throughput (token/s): {speed:.2f}, #queue-req: 0"


def see(work: Work, t: float, text: str) -> None:
    line = classify(STAMP + text)
    assert line is not None
    work.see_batch(t, line)


def gauges(work: Work, t: float, running: float, tokens: float) -> None:
    work.see_metrics(Metrics(t=t, inv=INV, ok=True, values={"num_running_reqs": running, "realtime_tokens_total": tokens}))


def test_pauses_between_requests_are_no_pace_though_a_gauge_still_tells_of_the_last_one() -> None:
    work = Work()
    for i in range(10):
        see(work, 25.0 * i, PREFILL.format(running=0))
        gauges(work, 25.0 * i + 4, 1, 56.0 * i)
        gauges(work, 25.0 * i + 14, 1, 56.0 * i)

    assert work.longest_gap() == 0.0


def test_steps_of_twenty_seconds_are_its_pace_by_lines_and_by_counters() -> None:
    by_lines, by_counters = Work(), Work()
    for i in range(10):
        see(by_lines, 25.0 * i, DECODE.format(speed=0.04))
        gauges(by_counters, 25.0 * i, 1, i)

    assert by_lines.longest_gap() == by_counters.longest_gap() == 25.0


def test_a_scrape_that_comes_late_makes_no_gap_of_the_engine() -> None:
    """What moved between two scrapes moved at any time between them; one that shows a standstill proves it."""
    late, still = Work(), Work()
    for t, steps in ((0.0, 0), (15.0, 1), (50.0, 2)):
        gauges(late, t, 1, steps)
        gauges(still, t, 1, steps)
    gauges(still, 90.0, 1, 2)
    gauges(still, 105.0, 1, 3)

    assert late.longest_gap() == 35.0
    assert late.longest_sure_gap() == 0.0
    assert (still.longest_gap(), still.longest_sure_gap()) == (55.0, 40.0)


def test_the_speed_of_a_decode_line_says_nothing_if_the_engine_rested_since_the_line_before() -> None:
    """SGLang divides by all the time since the line before: three canaries a minute apart share one line of 0.25 tokens/s."""
    work = Work()
    for i in range(3):
        see(work, 60.0 * i, PREFILL.format(running=0))
    see(work, 121.0, DECODE.format(speed=0.25))
    assert work.step_s() is None
    see(work, 122.0, DECODE.format(speed=40.0))
    assert work.step_s() == 0.025


def test_a_stale_gauge_does_not_make_an_idle_server_frozen() -> None:
    """One late canary of an idle night: the newest line tells of a probe alone, and the gauge of requests that ended long ago."""
    idle, busy = Work(), Work()
    see(idle, 0.0, PREFILL.format(running=0))
    see(busy, 0.0, PREFILL.format(running=2))
    for work in (idle, busy):
        for t in (5.0, 15.0, 25.0):
            gauges(work, t, 2, 100)

    assert not idle.counters_frozen(26.0) and busy.counters_frozen(26.0)


def test_a_prefill_is_in_hand_also_when_a_scrape_shows_its_step() -> None:
    """A scrape comes a few seconds after the line of the same step."""
    work = Work()
    gauges(work, 0.0, 0, 100)
    see(work, 5.0, PREFILL.replace("40", "40000").format(running=0))
    gauges(work, 10.0, 0, 40100)
    assert (work.batch_in_hand_s(), work.batch_in_hand_s(at_rest=True)) == (100.0, 40.0), "nothing is known of its pace yet"
    see(work, 12.0, DECODE.format(speed=40.0))
    assert work.batch_in_hand_s() == 0.0
