"""How long users wait for their first token, by the size of the prompt: from counters that do not tell both together."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.reference import INV, STAMP, Deployment
from watchdog import observation as o
from watchdog.baseline import completed, learn
from watchdog.judge.facts.baseline import Baseline, identity_of
from watchdog.judge.facts.prompts import COMPUTED, WAITS, Prompts
from watchdog.judge.verdict import Status


class Traffic:
    """Users' requests, one after the other, told by counters alone; all tokens and all times can be scaled."""

    def __init__(self, tokens: float = 1.0, seconds: float = 1.0, *, lines: bool = False) -> None:
        self.d = Deployment(ranks=1)
        self.d.unit()
        self.d.server()
        self.d.ready()
        self.tokens, self.seconds, self.lines = tokens, seconds, lines
        self.values = dict.fromkeys(("time_to_first_token_seconds_count", "time_to_first_token_seconds_sum"), 0.0)
        if not lines:
            self.values["realtime_tokens_total.prefill_compute"] = 0.0
        self.scrape()

    def scrape(self, queue: float = 0.0) -> None:
        self.d.t += 10.0
        self.d.feed(o.Metrics(t=self.d.t, inv=INV, ok=True, values={**self.values, "num_queue_reqs": queue}))

    def compute(self, tokens: float) -> None:
        if self.lines:
            text = f"Prefill batch. #new-seq: 1, #new-token: {tokens * self.tokens:.0f}, #cached-token: 0, token usage: 0.00"
            self.d.log(f"{STAMP} TP0] {text}, #running-req: 0, #queue-req: 0")
        else:
            self.values["realtime_tokens_total.prefill_compute"] += tokens * self.tokens

    def first(self, seconds: float, count: int = 1) -> None:
        self.values["time_to_first_token_seconds_count"] += count
        self.values["time_to_first_token_seconds_sum"] += seconds * self.seconds

    def one(self, tokens: float, wait: float) -> None:
        """One request: its prompt and its first token between two scrapes."""
        self.compute(tokens)
        self.first(wait)
        self.scrape()

    def mixed(self, rounds: int, slower: float = 1.0) -> None:
        """Short and long prompts in turn, each at a tenth of a millisecond a token and a tenth of a second besides."""
        for _ in range(rounds):
            for tokens in (300, 3000, 30_000):
                self.one(tokens, slower * (0.1 + tokens / 10_000))

    def verdict(self) -> tuple[str, str]:
        c = self.d.condition("FirstTokenSpeed")
        return str(c.status), c.reason


@pytest.mark.parametrize("lines", [False, True])
def test_slow_first_tokens_of_users_are_told_and_never_restarted(lines: bool) -> None:
    t = Traffic(lines=lines)
    t.mixed(30)
    assert t.verdict() == ("True", "AsUsual")
    assert "Users' prompts with" in t.d.condition("FirstTokenSpeed").message
    t.mixed(25, slower=6.0)
    c = t.d.condition("FirstTokenSpeed")
    assert (c.status, c.reason) == (Status.FALSE, "FirstTokenSlow")
    assert "take 2.40 s to the first token (usually 0.40 s)" in c.message and "no request waits for another" in c.message
    assert t.d.reasons() == {"FirstTokenSlow"} and not t.d.reasons("restart") and not t.d.reasons("plan_restart")


def test_another_mix_of_sizes_is_not_slow() -> None:
    t = Traffic()
    t.mixed(30)
    for _ in range(70):
        t.one(30_000, 3.1)
    assert t.verdict() == ("True", "AsUsual")
    for _ in range(70):
        t.one(300, 0.13)
    assert t.verdict() == ("True", "AsUsual")


def test_what_the_cache_had_does_not_count() -> None:
    """The same long prompts, of which now little must be computed: quick is as usual for so few tokens, and no rule for many."""
    t = Traffic()
    t.mixed(30)
    for _ in range(70):
        t.one(300, 0.13)  # of a prompt of 30,000
    assert "256 to 511 new tokens take 0.13 s" in t.d.condition("FirstTokenSpeed").message


def test_a_prompt_that_takes_many_scrapes_is_one_prompt() -> None:
    t = Traffic()
    for _ in range(25):
        for _ in range(4):  # chunks
            t.compute(8192)
            t.scrape()
        t.first(40.0)
        t.scrape()
    assert t.d.engine.facts.prompts.usual() == {32768: 40.0}


def test_what_waits_for_others_says_nothing_about_speed() -> None:
    """A crowd, once because the queue is seen, once because many first tokens come together."""
    t = Traffic()
    t.mixed(30)
    learnt = len(t.d.engine.facts.prompts.recent)
    for _ in range(60):
        t.compute(3000)
        t.scrape(queue=3.0)
        t.first(30.0)
        t.scrape()
        t.compute(30_000)
        t.first(300.0, count=10)
        t.scrape()
    assert len(t.d.engine.facts.prompts.recent) == learnt
    assert not t.d.reasons()


def test_a_request_that_comes_after_a_crowd_counts_again() -> None:
    t = Traffic()
    t.compute(3000)
    t.scrape(queue=1.0)
    t.first(9.0)
    t.scrape()
    t.one(3000, 0.4)
    assert [(size, round(wait, 6)) for _, size, wait in t.d.engine.facts.prompts.recent] == [(2048, 0.4)]


def test_little_is_unknown() -> None:
    t = Traffic()
    t.mixed(3)
    assert t.verdict() == ("Unknown", "NotLearned")


def test_a_little_late_is_nobodys_trouble() -> None:
    t = Traffic()
    for _ in range(40):
        t.one(100, 0.02)
    for _ in range(70):
        t.one(100, 0.2)
    assert t.verdict() == ("True", "AsUsual")


def test_the_baseline_learns_it_and_is_the_measure() -> None:
    t = Traffic()
    t.mixed(30)
    f = t.d.engine.facts
    made = learn(f, identity_of(t.d.args, t.d.version, ""), "", "")
    assert made.prompts == pytest.approx({"256": 0.13, "2048": 0.4, "16384": 3.1})
    known = Baseline(identity=made.identity, prompts={"2048": 0.01})
    more = completed(known, made)
    assert more is not None and more.prompts["2048"] == 0.01 and more.prompts["16384"] == pytest.approx(3.1)
    assert msgspec.json.decode(msgspec.json.encode(more), type=Baseline) == more
    f.baseline = Baseline(identity=made.identity, prompts={"256": 0.01, "2048": 0.01, "16384": 0.01})
    t.mixed(20, slower=10.0)
    assert "usually 0.01 s" in t.d.condition("FirstTokenSpeed").message


PACES = st.sampled_from([1.0, 1.5, 3.0, 5.0, 6.0, 12.0])
SCALES = st.floats(min_value=8.0, max_value=400.0)
"""In seconds of the test's own traffic: below, a first token is late by less than is anybody's trouble."""


@settings(max_examples=25, deadline=None)
@given(PACES, SCALES, st.integers(0, 6))
def test_the_verdict_does_not_change_when_all_quantities_are_scaled(slower: float, seconds: float, doublings: int) -> None:
    """A machine that is so many times slower, and a tokenizer that makes so many times the tokens: the same verdict."""

    def told(traffic: Traffic) -> list[tuple[str, str]]:
        out = []
        for pace in (1.0, slower):
            traffic.mixed(22, pace)
            out.append(traffic.verdict())
        return out

    assert told(Traffic(tokens=2.0**doublings, seconds=seconds)) == told(Traffic(seconds=8.0))


@pytest.mark.parametrize("interval_s", [0.5, 1.0, 10.0])
def test_the_last_minutes_are_known_however_often_it_is_scraped(interval_s: float) -> None:
    prompts = Prompts()
    for n in range(int(1200 / interval_s)):
        values = {f"{WAITS}_count": float(n), f"{WAITS}_sum": 0.4 * n, COMPUTED: 3000.0 * n}
        prompts.see_metrics(o.Metrics(t=n * interval_s, ok=True, values=values))
    found = prompts.now(1200.0, prompts.usual())
    assert found and all(size == 2048 and wait == pytest.approx(0.4) for size, wait in found)
    assert len(prompts.recent) <= 602
