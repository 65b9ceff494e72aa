"""What a deep check concludes, by tables: each source of a count alone, and what no source tells."""

from typing import Any

import msgspec
import pytest

from tests.verify.seens import ARGS, SERVER, life, well
from watchdog.judge.facts.baseline import Baseline, Identity
from watchdog.observation import Answer, Metrics, Probe, Server
from watchdog.verify.deep import findings
from watchdog.verify.deep.done import Counted, Done, growth
from watchdog.verify.deep.lookout import Lookout
from watchdog.verify.deep.plan import CACHE, LOAD, LOAD_BACK, SPECULATION, Limits, Plan, plan
from watchdog.verify.findings import Item, Verdict
from watchdog.verify.seen import Seen

PLENTY = Limits(tokens=10**6, seconds=60.0)


def asked(text: str = "7", ttft_s: float | None = 0.5, **answer: Any) -> Probe:
    told = {"prompt_tokens": 1000, "completion_tokens": 24, "finish_reason": "length", **answer}
    return Probe(t=0.0, probe="chat", outcome="ok", ttft_s=ttft_s, total_s=1.5, answer=Answer(text=text, **told))


def grew(requests: float = 1.0, **more: float) -> Counted:
    return Counted({"num_requests_total": requests, **{k.replace("__", "."): v for k, v in more.items()}}, {})


def seen(**args: Any) -> Seen:
    values = {"num_running_reqs": 0.0, "max_total_num_tokens": 159_277.0}
    return well(engine=Server(t=0.0, version="0.5.9", args={**ARGS, **args}), metrics=Metrics(t=0.0, ok=True, values=values))


def one(name: str, done: Done, baseline: Baseline | None = None) -> Item:
    s = seen()
    items = {item.item: item for item in findings.check(s, plan(s, PLENTY), done, baseline)}
    return items[name]


CACHES: list[tuple[Probe, Probe, Counted | None, Verdict, str]] = [
    (asked(), asked(cached_tokens=960, ttft_s=0.1), None, Verdict.OK, "960 of 1000 tokens cached (usage)"),
    (asked(), asked(cached_device=960), grew(cached_tokens_total=5), Verdict.OK, "960 of 1000 tokens cached (details"),
    (asked(), asked(cached_device=60, cached_host=900), None, Verdict.OK, "960 of 1000"),
    (asked(), asked(), grew(cached_tokens_total=960), Verdict.OK, "960 of 1000 tokens cached (metrics)"),
    (asked(), asked(), grew(cached_tokens_total=0), Verdict.BAD, "all of it was computed anew"),
    (asked(), asked(cached_tokens=300), None, Verdict.ODD, "300 of 1000"),
    # Somebody else's request ended meanwhile: the counter may be theirs.
    (asked(), asked(), grew(2, cached_tokens_total=960), Verdict.UNKNOWN, "cannot be told"),
    (asked(), asked(ttft_s=0.05), grew(2, cached_tokens_total=960), Verdict.OK, "first token after 0.050 s (at first 0.500 s)"),
    (asked(), asked(ttft_s=0.3), None, Verdict.UNKNOWN, "cannot be told"),
    (asked(ttft_s=0.02), asked(ttft_s=0.005), None, Verdict.UNKNOWN, "cannot be told"),
    (asked(ttft_s=None), asked(ttft_s=None), None, Verdict.UNKNOWN, "are not known"),
]


@pytest.mark.parametrize(("cold", "warm", "count", "verdict", "shown"), CACHES)
def test_the_prefix_cache(cold: Probe, warm: Probe, count: Counted | None, verdict: Verdict, shown: str) -> None:
    item = one(CACHE, Done(cold=cold, warm=warm, warm_counted=count))
    assert item.verdict is verdict and shown in item.seen, item


def back(again: Probe, count: Counted | None = None, **more: Any) -> Done:
    return Done(
        **{"cold": asked(), "warm": asked(cached_tokens=960), "again": again, "again_counted": count, "filled": 170_000, **more}
    )


BACKS: list[tuple[Done, Verdict, str]] = [
    (back(asked(cached_host=960)), Verdict.OK, "960 of 1000 tokens came back (details of the answer)"),
    (back(asked(), grew(cached_tokens_total__host=960, load_back_tokens_total=960)), Verdict.OK, "the same answer"),
    (back(asked(), grew(load_back_tokens_total=960)), Verdict.OK, "came back (load_back_tokens_total)"),
    (back(asked(), grew(load_back_tokens_total=0)), Verdict.BAD, "0 of 1000 tokens came back"),
    (back(asked(cached_host=100)), Verdict.ODD, "100 of 1000"),
    (back(asked(), grew(2, load_back_tokens_total=960)), Verdict.UNKNOWN, "cannot be told"),
    (back(asked(), None), Verdict.UNKNOWN, "cannot be told"),
    # Nothing had to come back: the GPU still held it.
    (back(asked(cached_device=960, cached_host=0)), Verdict.UNKNOWN, "still in the GPU's cache"),
    # The answers: as one of the two before; another one for good; another one once; never the same.
    (back(asked("8", cached_host=960), warm=asked("8")), Verdict.OK, "the same answer"),
    (back(asked("8", cached_host=960), settled=asked("8")), Verdict.BAD, "from then on another answer"),
    (back(asked("8", cached_host=960), settled=asked("7")), Verdict.ODD, "then again the first"),
    (back(asked("9", cached_host=960), warm=asked("8")), Verdict.OK, "differ anyway"),
    (back(asked("7", cached_host=960, reasoning="!!!"), settled=asked("7", reasoning="!!!")), Verdict.BAD, "another answer"),
]


@pytest.mark.parametrize(("done", "verdict", "shown"), BACKS)
def test_load_back(done: Done, verdict: Verdict, shown: str) -> None:
    item = one(LOAD_BACK, done)
    assert item.verdict is verdict and shown in item.seen, item


def gauge(value: float, **more: float) -> Counted:
    return msgspec.structs.replace(grew(**more), gauges={"spec_accept_length": value})


BASELINE = Baseline(identity=Identity(), accept_length=2.7, steps={"4": 0.02}, first_token={"chat": 0.1}, prompts={"512": 0.3})
SPECULATIONS: list[tuple[Done, Verdict, str]] = [
    (Done(drafted_counted=grew(spec_verify_calls_total=70, generation_tokens_total=189)), Verdict.OK, "accept length 2.70"),
    (Done(decodes=2, accepting=2, accepted=2.6), Verdict.OK, "2.60 over 24 tokens (decode lines), usually 2.70"),
    (Done(drafted_counted=gauge(2.5)), Verdict.OK, "2.50 over 24 tokens (metrics)"),
    (Done(decodes=2, accepting=2, accepted=1.0), Verdict.BAD, "no draft token is accepted"),
    (Done(decodes=2, accepting=2, accepted=1.4), Verdict.ODD, "1.40"),
    (Done(decodes=2), Verdict.BAD, "configured but not active: 2 decode lines"),
    (Done(drafted_counted=gauge(0.0, realtime_tokens_total__decode=40)), Verdict.BAD, "configured but not active"),
    (Done(drafted_counted=gauge(0.0)), Verdict.UNKNOWN, "no accept length was told"),
    (Done(), Verdict.UNKNOWN, "no accept length was told"),
]


@pytest.mark.parametrize(("done", "verdict", "shown"), SPECULATIONS)
def test_speculation(done: Done, verdict: Verdict, shown: str) -> None:
    done.drafted = asked()
    item = one(SPECULATION, done, BASELINE)
    assert item.verdict is verdict and shown in item.seen, item


def test_the_load_against_the_baseline() -> None:
    done = Done(load=[asked(ttft_s=0.2, completion_tokens=64)] * 8, load_s=3.0)
    item = one("decode speed", done, BASELINE)  # 63 tokens in 1.3 s; usually 2.7 every 20 ms
    assert item.verdict is Verdict.ODD and "48.5 tokens a second for each request, 170.7 in all" in item.seen
    assert "usually 135.0" in item.expected
    assert one("first token", done, BASELINE).verdict is Verdict.OK
    done.load = [asked(ttft_s=1.3, completion_tokens=64)] * 8
    assert one("first token", done, BASELINE).verdict is Verdict.ODD
    done.load = [msgspec.structs.replace(asked(), outcome="status", detail="saturated (503)"), *done.load]
    item = one(LOAD, done, BASELINE)
    assert item.verdict is Verdict.BAD and "8 of 9 answered" in item.seen and "saturated (503)" in item.seen


@pytest.mark.parametrize(("wait", "verdict"), [(0.35, Verdict.OK), (1.25, Verdict.OK), (1.4, Verdict.ODD)])
def test_a_long_prompt_against_those_of_users(wait: float, verdict: Verdict) -> None:
    item = one("long prompt", Done(cold=asked(ttft_s=wait), warm=asked()), BASELINE)
    assert item.verdict is verdict and "usually 0.300 s" in item.expected


def test_what_was_not_done_is_unknown_and_says_why() -> None:
    s = seen()
    planned = plan(s, PLENTY)
    items = findings.check(s, planned, Done(stopped="requests of users wait (3 in the queue)"), None)
    assert [item.item for item in items] == [CACHE, SPECULATION, LOAD, LOAD_BACK, "cost"]
    assert {item.verdict for item in items[:-1]} == {Verdict.UNKNOWN}
    assert all("requests of users wait" in item.seen for item in items)


# ---- the plan


def reasons(planned: Plan) -> dict[str, str | None]:
    return {step.name: step.why_not for step in planned.steps}


def test_a_plan_says_what_each_part_costs() -> None:
    planned = plan(seen(), Limits(tokens=50_000, seconds=120.0))
    assert planned.pool_tokens == 159_277
    why = reasons(planned)
    assert why[CACHE] is why[LOAD] is why[SPECULATION] is None
    assert (why[LOAD_BACK] or "").startswith("would cost 2")
    cure = next(step.cure for step in planned.steps if step.name == LOAD_BACK)
    needed = int(cure.rpartition(" ")[2])
    enough = plan(seen(), Limits(tokens=needed, seconds=120.0))
    assert enough.step(LOAD_BACK) is not None and enough.tokens == needed
    assert reasons(plan(seen(), Limits(tokens=needed - 1, seconds=120.0)))[LOAD_BACK] is not None
    assert any("it stays in the host pool" in line for line in enough.words())


@pytest.mark.parametrize(
    ("changes", "name", "shown"),
    [
        ({"disable_radix_cache": True}, CACHE, "--disable-radix-cache"),
        ({"disable_radix_cache": True}, LOAD_BACK, "--disable-radix-cache"),
        ({"dp_size": 2}, CACHE, "--dp-size"),
        ({"dp_size": 2}, LOAD_BACK, "--dp-size"),
    ],
)
def test_what_cannot_be_told_is_not_tried(changes: dict[str, Any], name: str, shown: str) -> None:
    assert shown in (reasons(plan(seen(**changes), PLENTY))[name] or "")


def test_nothing_is_tried_on_a_server_that_does_not_answer() -> None:
    s = msgspec.structs.replace(seen(), probes={"chat": Probe(t=0.0, probe="chat", outcome="timeout")})
    planned = plan(s, PLENTY)
    assert planned.refused is not None and planned.tokens == planned.requests == 0
    assert [item.seen for item in findings.check(s, planned, Done(), None)] == ["not tried: the canary was not answered"]
    off = msgspec.structs.replace(SERVER, probe=msgspec.structs.replace(SERVER.probe, chat=False))
    assert "probe.chat is false" in (plan(msgspec.structs.replace(seen(), server=off), PLENTY).refused or "")


def test_prompts_fit_into_the_context() -> None:
    line = "[2026-02-25 03:08:10] max_total_num_tokens=8000, chunked_prefill_size=2048, max_prefill_tokens=16384, "
    small = life(f"{line}max_running_requests=2, context_len=4096, available_gpu_mem=1.00 GB")
    assert small.context == 4096
    planned = plan(msgspec.structs.replace(seen(), life=small), PLENTY)
    assert planned.prefix_chars == 2048 and planned.filler_tokens == 1024
    body = '{"data":[{"id":"kimi","max_model_len":2000}]}'
    probes = {**well().probes, "models": Probe(t=0.0, probe="models", outcome="ok", body=body)}
    assert plan(msgspec.structs.replace(seen(), probes=probes), PLENTY).prefix_chars == 1000
    assert plan(seen(context_length=262_144), PLENTY).prefix_chars == 6000


def test_the_load_neither_waits_for_itself_nor_is_refused() -> None:
    assert plan(seen(max_running_requests=2), PLENTY).concurrent == 2
    assert plan(seen(max_running_requests=48), PLENTY).concurrent == 4
    assert plan(seen(max_running_requests=48, max_queued_requests=1), PLENTY).concurrent == 1


# ---- counters and gauges


def test_labelled_counters_begin_at_zero() -> None:
    found = growth({"num_requests_total": 3.0}, {"num_requests_total": 4.0, "cached_tokens_total.host": 64.0, "x": 1.0})
    assert found.alone and found.grew == {"num_requests_total": 1.0, "cached_tokens_total.host": 64.0}


@pytest.mark.parametrize(
    ("scraped", "ours", "shown"),
    [
        ({"num_queue_reqs": 0.0}, 4, None),
        ({"num_queue_reqs": 3.0}, 4, None),  # three of our four wait while the first is read
        ({"num_queue_reqs": 4.0}, 4, "requests of users wait (4 in the queue)"),
        ({"num_queue_reqs": 1.0}, 1, "requests of users wait (1 in the queue)"),
        ({"num_queue_reqs": 1.0}, 0, "requests of users wait (1 in the queue)"),
        # More are under way than ours: one of those that wait is a user's.
        ({"num_queue_reqs": 1.0, "http_requests_active./v1/chat/completions": 7.0}, 4, "requests of users wait (1 in the queue)"),
        ({"num_queue_reqs": 1.0, "http_requests_active./v1/chat/completions": 6.0}, 4, None),
        ({"num_queue_reqs": 0.0, "http_requests_active./v1/chat/completions": 99.0}, 4, None),
    ],
)
async def test_whose_requests_wait(scraped: dict[str, float], ours: int, shown: str | None) -> None:
    """Two requests were left over in the HTTP process before: its level means nothing, its growth does."""
    calm = {"num_running_reqs": 0.0, "num_queue_reqs": 0.0, "http_requests_active./v1/chat/completions": 2.0}
    said = [calm, calm, scraped]

    async def scrape() -> Metrics:
        found = said.pop(0) if said else None
        return Metrics(t=0.0, ok=found is not None, values=found or {})

    lookout = Lookout(scrape, look_s=0.0)
    assert await lookout.busy() is None
    lookout.in_flight = ours
    assert await lookout.trouble() == (shown or "its metrics cannot be read any more")


async def test_a_gauge_that_stays_is_waited_for_and_no_longer() -> None:
    """Something runs and nothing moves: after the 30 s in which gauges may lag it counts as busy."""
    looks = 0

    async def scrape() -> Metrics:
        nonlocal looks
        looks += 1
        return Metrics(t=0.0, ok=True, values={"num_running_reqs": 1.0, "realtime_tokens_total": 5.0})

    assert await Lookout(scrape, look_s=0.0).busy() == "it is busy: 1 running, 0 waiting"
    assert looks > 30


def test_what_is_known_of_nothing_but_an_answer_is_planned_without_what_needs_more() -> None:
    bare = Seen(server=SERVER, probes={"chat": asked()})
    planned = plan(bare, PLENTY)
    assert [step.name for step in planned.done] == [CACHE, LOAD]
    assert planned.pool_tokens is None
    assert findings.check(bare, planned, Done(cold=asked(), warm=asked()), None)


@pytest.mark.parametrize("tokens", [1, 3, 100])
def test_a_pool_of_a_few_tokens_is_planned_too(tokens: int) -> None:
    values = {"num_running_reqs": 0.0, "max_total_num_tokens": float(tokens)}
    small = msgspec.structs.replace(seen(), life=None, metrics=Metrics(t=0.0, ok=True, values=values))
    planned = plan(small, PLENTY)
    assert planned.pool_tokens == tokens and planned.filler_tokens == max(1, tokens // 4)
