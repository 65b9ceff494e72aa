"""Slow is told after minutes, whatever the mix of requests; speculation on both sides; the host cache's use."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.judge.reference import INV, STAMP, Deployment
from watchdog import observation as o
from watchdog.judge.facts.baseline import Baseline, identity_of
from watchdog.judge.facts.speed import Steady
from watchdog.judge.verdict import Status


def deployed(**more: Any) -> Deployment:
    d = Deployment(ranks=1, **more)
    d.unit()
    d.server()
    d.ready()
    return d


def decode(d: Deployment, running: int, step_s: float, accept: float | None = 2.7, seconds: float = 10.0) -> None:
    d.t += seconds
    speed = running * (accept or 1.0) / step_s
    said = "" if accept is None else f"accept len: {accept:.2f}, accept rate: 0.70, "
    d.log(
        f"{STAMP} TP0] Decode batch, #running-req: {running}, #token: 1713, token usage: 0.01, {said}"
        f"cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: 0"
    )


def prefill(d: Deployment, running: int, tokens: int = 100) -> None:
    d.log(
        f"{STAMP} TP0] Prefill batch, #new-seq: 1, #new-token: {tokens}, #cached-token: 0, token usage: 0.00, "
        f"#running-req: {running}, #queue-req: 0, cuda graph: False, input throughput (token/s): 900.00"
    )


def many(d: Deployment, running: Iterable[int], step_s: float, accept: float | None = 2.7) -> None:
    for n in running:
        decode(d, n, step_s * (1 + n / 50), accept)


def test_slow_steps_are_told_after_minutes_and_never_restarted() -> None:
    d = deployed()
    many(d, [4] * 80, 0.05)
    assert d.condition("DecodeSpeed").status is Status.TRUE
    many(d, [4] * 30, 0.15)
    assert not d.reasons()  # five minutes: it may be a mix
    many(d, [4] * 60, 0.15)
    c = d.condition("DecodeSpeed")
    assert (c.status, c.reason) == (Status.FALSE, "DecodeSlow")
    assert "162 ms with 4 to 7 running (usually 54 ms)" in c.message
    assert d.reasons() == {"DecodeSlow"} and not d.reasons("restart") and not d.reasons("plan_restart")


def test_a_busy_server_is_told_to_be_slow_as_well() -> None:
    """All its ranks together print several lines a second."""
    d = deployed()
    for _ in range(4 * 60):
        decode(d, 4, 0.05, seconds=0.25)
    for _ in range(4 * 650):
        decode(d, 4, 0.15, seconds=0.25)
    c = d.condition("DecodeSpeed")
    assert (c.status, c.reason) == (Status.FALSE, "DecodeSlow")
    assert d.reasons() == {"DecodeSlow"}


@pytest.mark.parametrize("rate", [1, 3, 40])
def test_the_last_minutes_are_known_however_many_figures_come(rate: int) -> None:
    steady = Steady()
    for n in range(1200 * rate):
        steady.add(n / rate, 0.05 if n < 600 * rate else 0.15)
    assert steady.usual() == 0.05
    assert steady.now(1200.0) == 0.15
    assert len(steady.recent.figures) <= 602


def test_another_batch_size_or_accept_length_is_not_slow() -> None:
    d = deployed()
    many(d, [2] * 80, 0.05)
    for _ in range(90):
        decode(d, 48, 0.19, 2.7)  # larger batches take longer
    assert d.condition("DecodeSpeed").status is not Status.FALSE
    for _ in range(90):
        decode(d, 2, 0.052, 1.2)  # speculation yields less: not the speed of steps
    assert d.condition("DecodeSpeed").status is Status.TRUE
    assert "DecodeSlow" not in d.reasons()


def test_idle_time_and_prompts_are_not_counted_as_steps() -> None:
    d = deployed()
    many(d, [1] * 80, 0.05)
    for i in range(90):
        prefill(d, 0 if i % 2 else 1, 100 if i % 2 else 8000)
        decode(d, 1, 3.0)
    assert d.condition("DecodeSpeed").status is not Status.FALSE


def test_a_crawl_needs_no_baseline_and_names_the_pin_budget() -> None:
    d = deployed()
    d.log(f"{STAMP} TP0] Pin budget: 0 tokens (ratio=0.000)")
    assert d.condition("LogClean").status is Status.TRUE  # printed by default: by itself it means nothing
    for _ in range(12):
        d.t += 60.0
        answer = o.Answer(text="Paris", finish_reason="length", completion_tokens=6)
        d.feed(o.Probe(t=d.t, inv=INV, probe="chat", outcome="ok", status=200, ttft_s=0.05, total_s=28.0, answer=answer))
    c = d.condition("DecodeSpeed")
    assert c.reason == "DecodeSlow" and "0.18 tokens a second" in c.message and "Pin budget: 0 tokens" in c.message


def test_counters_tell_the_speed_where_no_lines_do() -> None:
    d = deployed()

    def scrape(minutes: int, per_s: float, made: float) -> float:
        for _ in range(minutes * 6):
            d.t += 10.0
            made += per_s * 10
            values = {"num_running_reqs": 2.0, "realtime_tokens_total.decode": made, "num_requests_total": 5.0}
            d.feed(o.Metrics(t=d.t, inv=INV, ok=True, values=values))
        return made

    made = scrape(12, 100.0, 0.0)
    assert d.condition("DecodeSpeed").status is Status.TRUE
    scrape(12, 30.0, made)
    assert d.condition("DecodeSpeed").reason == "DecodeSlow"


@pytest.mark.parametrize(("late", "reason"), [(0.06, "AsUsual"), (3.0, "FirstTokenSlow")])
def test_first_tokens_of_our_own_requests(late: float, reason: str) -> None:
    d = deployed()
    for i in range(45):
        d.t += 60.0
        wait = 0.05 if i < 25 else late
        answer = o.Answer(text="Paris", completion_tokens=3)
        d.feed(o.Probe(t=d.t, inv=INV, probe="chat", outcome="ok", status=200, ttft_s=wait, total_s=wait + 0.1, answer=answer))
    assert d.condition("FirstTokenSpeed").reason == reason


def test_the_accepted_baseline_counts_before_this_life_has_one() -> None:
    d = deployed()
    identity = identity_of(d.args, "0.5.9", "")
    d.engine.facts.baseline = Baseline(identity=identity, steps={"4": 0.05}, accept_length=2.7)
    many(d, [4] * 70, 0.15)
    assert d.condition("DecodeSpeed").reason == "DecodeSlow"
    d.engine.facts.baseline = Baseline(identity=identity_of({**d.args, "tp_size": 2}, "0.5.9", ""), steps={"4": 0.05})
    c = d.condition("DecodeSpeed")
    assert c.reason == "AsUsual", c.message


@pytest.mark.parametrize(
    ("accept", "reason"), [(2.6, "AsUsual"), (1.3, "SpeculationCollapsed"), (3.4, "AsUsual"), (4.0, "SpeculationTooGood")]
)
def test_speculation_is_judged_on_both_sides(accept: float, reason: str) -> None:
    d = deployed()
    many(d, [4] * 60, 0.05, 2.7)
    many(d, [4] * 90, 0.05, accept)
    c = d.condition("SpeculationEffective")
    assert c.reason == reason
    assert not d.reasons("restart")


def test_no_traffic_says_nothing_about_speculation() -> None:
    d = deployed()
    many(d, [4] * 60, 0.05, 2.7)
    d.t += 3000
    d.look()
    assert d.condition("SpeculationEffective").reason == "NoTraffic"


def test_speculation_that_is_configured_and_not_active() -> None:
    d = deployed()
    many(d, [4] * 40, 0.05, None)
    c = d.condition("SpeculationEffective")
    assert (c.status, c.reason) == (Status.FALSE, "SpeculationInactive") and "EAGLE3" in c.message
    d = deployed(args={"speculative_algorithm": None})
    many(d, [4] * 40, 0.05, None)
    assert d.condition("SpeculationEffective").status is Status.UNKNOWN


# ---- the host cache's use


def day(d: Deployment, hours: float, **a_minute: float) -> None:
    """Hours of scrapes whose counters grow by so much a minute."""
    values = {"prompt_tokens_total": 0.0, "num_requests_total": 0.0}
    for _ in range(int(hours * 60)):
        d.t += 60.0
        values["prompt_tokens_total"] += 3000
        values["num_requests_total"] += 1
        for name, more in a_minute.items():
            key = name.replace("__", ".")
            values[key] = values.get(key, 0.0) + more
        d.feed(o.Metrics(t=d.t, inv=INV, ok=True, values=dict(values)))


def test_a_pool_that_is_never_read_back_is_worth_a_sentence() -> None:
    d = Deployment(tick_s=120.0).start()
    day(d, 20)
    assert d.condition("HostCacheUseful").reason == "TooEarly"
    day(d, 25)
    c = d.condition("HostCacheUseful")
    assert (c.status, c.reason) == (Status.FALSE, "HostCacheUnused")
    assert c.message.startswith(
        "358.16 GB (333.6 GiB) are pinned for the hierarchical cache, and nothing was read back from it in 1 d ("
    )
    assert {(i.reason, str(i.severity)) for i in d.intents if str(i.action) == "alert"} == {("HostCacheUnused", "info")}


def test_what_goes_in_and_never_comes_back_is_a_warning() -> None:
    d = Deployment(tick_s=120.0).start()
    day(d, 25, evicted_tokens_total=500, hicache_backup_tokens_total=400)
    assert {(i.reason, str(i.severity)) for i in d.intents if str(i.action) == "alert"} == {("HostCacheUnused", "warning")}


def test_before_the_pool_was_turned_over_what_it_holds_may_yet_come_back() -> None:
    """It holds 4 x 159 277 tokens; the GPU's cache alone has been turned over twice in three hours."""
    d = Deployment(tick_s=120.0).start()
    d.server(max_total_num_tokens=159277)
    day(d, 3, num_requests_total=9, evicted_tokens_total=1800)
    assert d.condition("HostCacheUseful").reason == "TooEarly" and not d.reasons()
    day(d, 3.2, num_requests_total=9, evicted_tokens_total=3600)
    assert d.condition("HostCacheUseful").reason == "HostCacheUnused"


def test_a_pool_that_is_read_back_is_useful() -> None:
    d = Deployment(tick_s=120.0).start()
    day(d, 25, evicted_tokens_total=500, cached_tokens_total__host=300, load_back_tokens_total=300)
    c = d.condition("HostCacheUseful")
    assert (c.status, c.reason) == (Status.TRUE, "ReadBack") and "10.0% of all prompt tokens" in c.message


def test_versions_without_these_counters_say_nothing() -> None:
    d = Deployment(version="0.5.4.post3", tick_s=120.0).start()
    day(d, 25, evicted_tokens_total=500)
    assert d.condition("HostCacheUseful").status is Status.UNKNOWN and not d.reasons()


# ---- short answers, and no lines


def spells(d: Deployment, minutes: int, between_s: float, *, running: float = 1.0, prompts: float = 50.0, **hide: bool) -> None:
    """Scrapes of requests of 200 tokens, so many of them at once in the mean; each ends between two scrapes."""
    counters = d.__dict__.setdefault("counters", {})
    for _ in range(minutes * 6):
        d.t += 10.0
        tokens = 10.0 * running / between_s
        grown = {
            "inter_token_latency_seconds_sum": 10.0 * running,
            "inter_token_latency_seconds_count": tokens,
            "e2e_request_latency_seconds_sum": 10.0 * running + 0.3 * tokens / 200,
            "time_to_first_token_seconds_sum": 0.3 * tokens / 200,
            "generation_tokens_total": tokens + tokens / 200,
            "num_requests_total": tokens / 200,
            "prompt_tokens_total": prompts * 10,
            "realtime_tokens_total.prefill_compute": prompts * 10,
        }
        for name, more in grown.items():
            counters[name] = counters.get(name, 0.0) + more
        values = {name: value for name, value in counters.items() if not any(name.startswith(h) for h in hide)}
        d.feed(o.Metrics(t=d.t, inv=INV, ok=True, values={"num_running_reqs": round(running), **values}))


@pytest.mark.parametrize("hidden", ["none", "inter_token", "realtime"])
def test_the_times_between_tokens_tell_the_speed_where_nothing_else_does(hidden: str) -> None:
    d = deployed()
    spells(d, 45, 0.02, **{hidden: True})
    assert d.condition("DecodeSpeed").reason == "AsUsual"
    spells(d, 25, 0.06, **{hidden: True})
    c = d.condition("DecodeSpeed")
    assert c.reason == "DecodeSlow" and "60 ms with 1 running (usually 20 ms), by the times between tokens" in c.message
    assert not d.reasons("restart")


@pytest.mark.parametrize(("running", "prompts"), [(9.0, 50.0), (1.0, 900.0)])
def test_larger_batches_and_long_prompts_are_not_slow_by_the_times_between_tokens(running: float, prompts: float) -> None:
    d = deployed()
    spells(d, 45, 0.02)
    spells(d, 25, 0.06, running=running, prompts=prompts)
    assert d.condition("DecodeSpeed").status is not Status.FALSE
    assert not d.reasons()


def test_a_burst_in_a_quiet_minute_does_not_count_as_a_small_batch() -> None:
    d = deployed()
    spells(d, 45, 0.02)
    for _ in range(25):
        spells(d, 1, 0.06)
        values = {**d.__dict__["counters"], "num_running_reqs": 30.0}
        d.feed(o.Metrics(t=d.t + 1, inv=INV, ok=True, values=values))
    assert d.condition("DecodeSpeed").status is Status.UNKNOWN


def test_short_answers_that_may_not_stream_say_nothing_without_the_times_between_tokens() -> None:
    d = deployed()
    made = 0.0
    for i in range(90 * 6):
        d.t += 10.0
        made += 100.0
        slow = 0.06 if i > 270 else 0.02
        values = {
            "e2e_request_latency_seconds_sum": made * slow,
            "time_to_first_token_seconds_sum": 0.0,
            "generation_tokens_total": made,
            "num_requests_total": made / 60,
            "num_running_reqs": 1.0,
        }
        d.feed(o.Metrics(t=d.t, inv=INV, ok=True, values=values))
    assert d.condition("DecodeSpeed").status is Status.UNKNOWN
