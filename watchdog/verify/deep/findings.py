"""What a deep check has found. Pure."""

import statistics

from watchdog.judge.facts.baseline import Baseline
from watchdog.judge.speed import FIRST_LEAST_S, FIRST_SLOW, SLOW
from watchdog.observation import Answer, Probe
from watchdog.verify.deep.done import Counted, Done, said
from watchdog.verify.deep.plan import CACHE, LOAD, LOAD_BACK, SPECULATION, Plan
from watchdog.verify.findings import Item, bad, odd, ok, unknown
from watchdog.verify.seen import Seen
from watchdog.wording import counted, span

AREA = "deep"
HIT = 0.5
"""The prefix counts as found where so much of the prompt was cached: the last page and the question's end never are."""
QUICKER, QUICKER_S = 0.5, 0.05
"""Without any count, a first token that comes in so small a share of the time, and so much earlier, shows a hit."""
DRAFTED = 1.02
"""A smaller accept length means that no draft token is accepted."""
FEWER = 0.5
"""Tokens gained a step, against the usual, that no other mix of requests explains (as the judge of speculation has it)."""
TO_COUNT = "start the server with --enable-cache-report and --enable-metrics"
NOT_TRIED = "not tried"


def check(seen: Seen, plan: Plan, done: Done, baseline: Baseline | None) -> list[Item]:
    """The findings; `baseline` is that of the same deployment, where there is one."""
    if plan.refused is not None:
        return [unknown(AREA, "deep check", "a server that answers", f"{NOT_TRIED}: {plan.refused}")]
    if done.refused is not None:
        cure = "ask again when it is idle, or load it all the same with --force"
        return [unknown(AREA, "deep check", "an idle server", f"{NOT_TRIED}: {done.refused}", cure)]
    judged = {
        CACHE: lambda: [*prefix_cache(done), *long_prompt(done, baseline)],
        SPECULATION: lambda: speculation(seen, done, baseline),
        LOAD: lambda: load(plan, done, baseline),
        LOAD_BACK: lambda: load_back(done),
    }
    items = []
    for step in plan.steps:
        expected = EXPECTED[step.name]
        if step.why_not is not None:
            items.append(unknown(AREA, step.name, expected, f"{NOT_TRIED}: {step.why_not}", step.cure))
            continue
        found = judged[step.name]()
        items += found or [unknown(AREA, step.name, expected, f"not done: {done.stopped or 'nothing came of it'}")]
    return [*items, cost(plan, done)]


EXPECTED = {
    CACHE: "a long prompt is found in the cache when it comes again",
    SPECULATION: "draft tokens are accepted",
    LOAD: "every request is answered",
    LOAD_BACK: "a prompt comes back from the host pool, with the same answer",
}


def cost(plan: Plan, done: Done) -> Item:
    """What the check itself took."""
    shown = f"{counted(done.requests, 'request')}, {counted(done.tokens, 'token')}, {span(done.took_s)}"
    if done.stopped is not None:
        return odd(AREA, "cost", plan.ceiling, f"{shown}; ended early: {done.stopped}", "ask again when the cause is gone")
    return ok(AREA, "cost", plan.ceiling, shown)


# ---- the cache


def prefix_cache(done: Done) -> list[Item]:
    """The same long, new prompt twice; none where it did not come to the second."""
    cold, warm = done.cold, done.warm
    if cold is None or warm is None or warm.answer is None:
        return []
    expected = EXPECTED[CACHE]
    size = warm.answer.prompt_tokens
    cached, source = cached_tokens(warm.answer, done.warm_counted)
    times = _times(cold, warm)
    if cached is None or not size:
        if cold.ttft_s and warm.ttft_s and warm.ttft_s < QUICKER * cold.ttft_s and warm.ttft_s < cold.ttft_s - QUICKER_S:
            return [ok(AREA, CACHE, expected, f"{times}; cached tokens are not told")]
        return [
            unknown(AREA, CACHE, expected, f"cannot be told: neither usage nor metrics have cached tokens, and {times}", TO_COUNT)
        ]
    shown = f"{cached:.0f} of {size} tokens cached ({source}); {times}"
    if cached >= HIT * size:
        return [ok(AREA, CACHE, expected, shown)]
    cure = "look for what changes prompts on the way, and whether the cache is full of running requests"
    if cached > 0:
        return [odd(AREA, CACHE, expected, shown, cure)]
    return [bad(AREA, CACHE, expected, f"{shown}: all of it was computed anew", cure)]


def long_prompt(done: Done, baseline: Baseline | None) -> list[Item]:
    """The first token of the long, new prompt against that of users' prompts of its size; none without a usual time."""
    cold = done.cold
    if cold is None or cold.answer is None or cold.ttft_s is None or baseline is None:
        return []
    tokens = (cold.answer.prompt_tokens or 0) - (cold.answer.cached_tokens or 0)
    usual = baseline.prompts.get(str(1 << (tokens.bit_length() - 1))) if tokens > 0 else None
    if usual is None:
        return []
    most = max(FIRST_SLOW * usual, usual + FIRST_LEAST_S)
    expected = f"within {most:.2f} s (users' prompts of this size usually {usual:.3f} s)"
    shown = f"after {cold.ttft_s:.3f} s with {tokens} new tokens"
    if cold.ttft_s > most:
        return [odd(AREA, "long prompt", expected, shown, "look at what else runs on the host: `sglang-watchdog explain`")]
    return [ok(AREA, "long prompt", expected, shown)]


def cached_tokens(answer: Answer, count: Counted | None) -> tuple[float | None, str]:
    """Cached tokens of a prompt, wherever they lay, and who says so; None where nobody does."""
    if answer.cached_tokens is not None:
        return answer.cached_tokens, "usage"
    if answer.cached_device is not None or answer.cached_host is not None:
        return (answer.cached_device or 0) + (answer.cached_host or 0), "details of the answer"
    if count is not None and count.alone and "cached_tokens_total" in count.grew:
        return count.grew["cached_tokens_total"], "metrics"
    return None, ""


def host_tokens(answer: Answer, count: Counted | None) -> tuple[float | None, str]:
    """Tokens of a prompt that came from the host pool, and who says so; None where nobody does."""
    if answer.cached_host is not None:
        return answer.cached_host, "details of the answer"
    if count is None or not count.alone:
        return None, ""
    # The second counts once for each rank that reports.
    for name in ("cached_tokens_total.host", "load_back_tokens_total"):
        if count.grew.get(name):
            return count.grew[name], name
    # A labelled counter that is absent counts nothing; that none of the two is there only means an old version.
    return (0.0, "metrics") if "load_back_tokens_total" in count.grew else (None, "")


def load_back(done: Done) -> list[Item]:
    """The long prompt once more, after others have pushed it out of the GPU's cache."""
    cold, warm, again = done.cold, done.warm, done.again
    if cold is None or warm is None or again is None or cold.answer is None or warm.answer is None or again.answer is None:
        return []
    expected = EXPECTED[LOAD_BACK]
    size = again.answer.prompt_tokens or 0
    evicted = "" if done.evicted is None else f", {done.evicted:.0f} evicted"
    filled = f"after {done.filled} tokens of others{evicted}"
    host, source = host_tokens(again.answer, done.again_counted)
    cached, _ = cached_tokens(again.answer, done.again_counted)
    if host is None:
        return [
            unknown(
                AREA,
                LOAD_BACK,
                expected,
                f"cannot be told: neither answer nor metrics have tokens of the host {filled}",
                TO_COUNT,
            )
        ]
    if host >= HIT * size:
        return [_answers(expected, f"{host:.0f} of {size} tokens came back ({source}) {filled}; {_times(cold, again)}", done)]
    if cached is not None and cached - host >= HIT * size:
        seen = f"cannot be told: {cached - host:.0f} of {size} tokens were still in the GPU's cache {filled}"
        return [unknown(AREA, LOAD_BACK, expected, seen)]
    shown = f"{host:.0f} of {size} tokens came back {filled}; {_times(cold, again)}"
    cure = "look for load_back and write-through lines in the journal, and at --hicache-write-policy"
    return [odd(AREA, LOAD_BACK, expected, shown, cure) if host > 0 else bad(AREA, LOAD_BACK, expected, shown, cure)]


def _answers(expected: str, shown: str, done: Done) -> Item:
    """What came back must also be what went in: the answers at temperature 0 are the same."""
    if done.same_answer:
        return ok(AREA, LOAD_BACK, expected, f"{shown}; the same answer")
    if done.cold is None or done.warm is None or said(done.cold) != said(done.warm):
        return ok(AREA, LOAD_BACK, expected, f"{shown}; its answers at temperature 0 differ anyway")
    # Asked once more, the GPU holds what came back: it computes what it computed for the second request, so noise is no excuse.
    if done.settled is None or said(done.settled) == said(done.warm):
        return odd(AREA, LOAD_BACK, expected, f"{shown}; another answer, and then again the first", "ask again: it may be noise")
    cure = "look at the condition LoadBackFaithful, try another --hicache-io-backend, or without --enable-hierarchical-cache"
    return bad(AREA, LOAD_BACK, expected, f"{shown}; from then on another answer than before", cure)


def _times(first: Probe, second: Probe) -> str:
    if first.ttft_s is None or second.ttft_s is None:
        return "times to the first token are not known"
    return f"first token after {second.ttft_s:.3f} s (at first {first.ttft_s:.3f} s)"


# ---- speculation


def speculation(seen: Seen, done: Done, baseline: Baseline | None) -> list[Item]:
    """How many tokens a decode step yields; none where the request was not made."""
    if done.drafted is None or done.drafted.answer is None:
        return []
    expected = f"{seen.args.get('speculative_algorithm')}: {EXPECTED[SPECULATION]}"
    tokens = done.drafted.answer.completion_tokens or 0
    cure = "read the start's log for why it was turned off, and compare the draft model with the target"
    accepted, source = accept_length(done)
    if accepted is None:
        if done.decodes > 0 and not done.accepting:
            lines = counted(done.decodes, "decode line")
            shown = f"configured but not active: {lines} without an accept length, over {tokens} tokens"
            return [bad(AREA, SPECULATION, expected, shown, cure)]
        return [unknown(AREA, SPECULATION, expected, f"no accept length was told over {tokens} tokens", TO_COUNT)]
    if accepted <= 0:
        return [
            bad(AREA, SPECULATION, expected, f"configured but not active: no accept length over {tokens} tokens ({source})", cure)
        ]
    shown = f"accept length {accepted:.2f} over {tokens} tokens ({source})"
    if accepted < DRAFTED:
        return [bad(AREA, SPECULATION, expected, f"{shown}: no draft token is accepted", cure)]
    usual = baseline.accept_length if baseline is not None else None
    if usual is not None:
        shown += f", usually {usual:.2f}"
        if accepted - 1.0 < FEWER * (usual - 1.0):
            return [odd(AREA, SPECULATION, expected, shown, "compare with the traffic: `sglang-watchdog explain`")]
    return [ok(AREA, SPECULATION, expected, shown)]


def accept_length(done: Done) -> tuple[float | None, str]:
    """Tokens that a decode step yielded, and who says so; 0 where nothing is speculated, None where nobody says."""
    count = done.drafted_counted
    if count is not None:
        calls, tokens = count.grew.get("spec_verify_calls_total"), count.grew.get("generation_tokens_total")
        if calls and tokens:
            return tokens / calls, "metrics"
    if done.accepted is not None:
        return done.accepted, "decode lines"
    gauge = count.gauges.get("spec_accept_length") if count is not None else None
    if gauge is None or count is None:
        return None, ""
    # The gauge is written with the decode line; where tokens were counted meanwhile, its zero is no mere beginning.
    return (gauge, "metrics") if gauge > 0 or count.grew.get("realtime_tokens_total.decode") else (None, "")


# ---- the load


def load(plan: Plan, done: Done, baseline: Baseline | None) -> list[Item]:
    """Answers, speed and first tokens of some requests at once; none where it was not begun."""
    if not done.load:
        return []
    failed = [probe for probe in done.load if probe.outcome != "ok"]
    good = [probe for probe in done.load if probe.outcome == "ok"]
    shown = f"{len(good)} of {len(done.load)} answered, {plan.concurrent} at a time"
    if failed:
        why = failed[0].detail or failed[0].outcome
        return [
            bad(AREA, LOAD, EXPECTED[LOAD], f"{shown}; the first that was not: {why}", "look at its journal, and at `status`")
        ]
    if done.load_s is None:
        return []
    return [ok(AREA, LOAD, EXPECTED[LOAD], shown), *_speed(plan, done, good, baseline), *_first_tokens(good, baseline)]


def _speed(plan: Plan, done: Done, good: list[Probe], baseline: Baseline | None) -> list[Item]:
    """Tokens a second of one request, and of all."""
    each = [
        (tokens - 1) / (probe.total_s - probe.ttft_s)
        for probe in good
        if (tokens := _tokens(probe)) > 1 and probe.total_s and probe.ttft_s is not None and probe.total_s > probe.ttft_s
    ]
    if not each or not done.load_s:
        return []
    speed, total = statistics.median(each), sum(map(_tokens, good)) / done.load_s
    shown = f"{speed:.1f} tokens a second for each request, {total:.1f} in all"
    usual = _usual_speed(plan.concurrent, baseline)
    if usual is None:
        return [ok(AREA, "decode speed", "no baseline to compare with", shown)]
    expected = f"more than {usual / SLOW:.1f} tokens a second for each request (usually {usual:.1f})"
    if speed < usual / SLOW:
        cure = "look at GPU clocks and power, and at what else runs on the host: `sglang-watchdog explain`"
        return [odd(AREA, "decode speed", expected, shown, cure)]
    return [ok(AREA, "decode speed", expected, shown)]


def _usual_speed(running: int, baseline: Baseline | None) -> float | None:
    """Tokens a second of one request at this batch size, as the baseline has it."""
    if baseline is None:
        return None
    step = baseline.steps.get(str(1 << (running.bit_length() - 1)))
    return (baseline.accept_length or 1.0) / step if step else None


def _first_tokens(good: list[Probe], baseline: Baseline | None) -> list[Item]:
    waits = [probe.ttft_s for probe in good if probe.ttft_s is not None]
    if not waits:
        return []
    wait = statistics.median(waits)
    shown = f"after {wait:.3f} s, at worst {max(waits):.3f} s"
    usual = baseline.first_token.get("chat") if baseline is not None else None
    if usual is None:
        return [ok(AREA, "first token", "no baseline to compare with", shown)]
    most = max(FIRST_SLOW * usual, usual + FIRST_LEAST_S)
    expected = f"within {most:.2f} s (alone usually {usual:.3f} s)"
    if wait > most:
        return [odd(AREA, "first token", expected, shown, "look at what else runs on the host: `sglang-watchdog explain`")]
    return [ok(AREA, "first token", expected, shown)]


def _tokens(probe: Probe) -> int:
    return (probe.answer.completion_tokens or 0) if probe.answer is not None else 0
