"""Answers that change after load-backs: told where noise does not explain them, and only then."""

import hashlib
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.judge import load_back
from watchdog.judge.facts import Facts
from watchdog.judge.load_back import by_noise
from watchdog.judge.verdict import Status, Verdict
from watchdog.observation import Answer, Metrics, Probe, Server, Unit

INV = "a" * 32
HOUR = 3600.0
SIZE = 1500
GPU, HOST, NONE = (SIZE - 4, None), (3, SIZE - 10), (None, None)


def serving() -> Facts:
    f = Facts(mid_life=True)
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=-7200.0))
    f.see(Probe(t=1.0, inv=INV, probe="health", outcome="ok", status=200, total_s=1.0))
    return f


def said(text: str, cached: tuple[int | None, int | None], finish: str = "stop") -> Answer:
    return Answer(
        text=text,
        finish_reason=finish,
        model="m",
        prompt_tokens=SIZE,
        completion_tokens=2,
        cached_device=cached[0],
        cached_host=cached[1],
    )


def asked(t: float, first: Answer, second: Answer, fresh: Answer | None = None) -> Probe:
    return Probe(
        t=t,
        inv=INV,
        probe="prefix",
        outcome="ok",
        status=200,
        ttft_s=0.1,
        total_s=0.2,
        limit_s=60.0,
        answer=second,
        earlier=first,
        earlier_ttft_s=0.4,
        fresh=fresh,
    )


def cold(f: Facts, t: float = 60.0, text: str = "16") -> None:
    f.see(asked(t, said(text, NONE), said(text, GPU)))


def back(f: Facts, t: float, text: str, then: str | None = None, fresh: str | None = None) -> None:
    anew = said(fresh, NONE) if fresh is not None else None
    f.see(asked(t, said(text, HOST), said(text if then is None else then, GPU), anew))


def verdict(f: Facts, now: float) -> Verdict:
    return load_back.judge(f, now)


def test_load_backs_that_change_nothing() -> None:
    f = serving()
    assert verdict(f, 2.0).reason == "NothingSeen"
    cold(f)
    assert verdict(f, 61.0).reason == "NothingSeen", "nothing was loaded back yet"
    for n in range(1, 6):
        back(f, n * HOUR, "16")
    v = verdict(f, 6 * HOUR)
    assert (v.status, v.reason) == (Status.TRUE, "SameAnswers") and "0 of 5 answers" in v.message


def test_a_server_without_a_host_pool_says_so() -> None:
    f = serving()
    f.see(Server(t=2.0, inv=INV, version="0.5.23", args={"enable_hierarchical_cache": False}))
    cold(f)
    assert verdict(f, 61.0).reason == "NoHostPool"


def test_one_difference_is_weak_and_three_are_a_finding() -> None:
    f = serving()
    cold(f)
    for n in range(1, 4):
        f.see(asked(n * HOUR, said("16", GPU), said("16", GPU)))
    seen = []
    for n in range(4, 7):
        back(f, n * HOUR, "seventeen hundred")
        seen.append((verdict(f, n * HOUR).status, verdict(f, n * HOUR).reason))
    assert seen[:2] == [(Status.UNKNOWN, "OddLoadBack")] * 2
    v = verdict(f, 6 * HOUR + 60)
    assert (v.status, v.reason) == (Status.FALSE, "LoadBackChangesAnswers")
    assert "3 of 3 answers after a load-back from the host pool differ" in v.message and "0 of 7 without one do" in v.message
    digest = hashlib.sha256(b"16\0").hexdigest()[:8]
    assert f"computed {digest} (text, finish_reason stop, model m), loaded back 1 min ago " in v.message
    assert "seventeen" not in v.message and len(v.calls) == 1 and len(v.calls[0].evidence) == 4
    assert "--enable-hierarchical-cache" in (v.calls[0].advice or "")


def test_what_the_gpu_holds_of_a_spoilt_load_back_is_no_noise() -> None:
    """The second asking of each pair, and all until the next computing, use the same spoilt cache."""
    f = serving()
    cold(f)
    cold(f, 0.5 * HOUR)
    for n in range(1, 4):
        back(f, n * HOUR, "wrong")
        f.see(asked((n + 0.5) * HOUR, said("wrong", GPU), said("wrong", GPU)))
    assert verdict(f, 5 * HOUR).status is Status.FALSE


def test_a_race_that_spoils_only_the_request_that_loads_back() -> None:
    f = serving()
    cold(f)
    cold(f, 0.5 * HOUR)
    for n in range(1, 5):
        back(f, n * HOUR, "wr0ng", then="16")
    assert verdict(f, 5 * HOUR).status is Status.FALSE


def test_a_server_whose_answers_vary_by_themselves_is_not_accused() -> None:
    f = serving()
    cold(f)
    for n in range(1, 13):
        f.see(asked((n - 0.5) * HOUR, said("16" if n % 2 else "Sixteen", NONE), said("16", GPU)))
        back(f, n * HOUR, "Sixteen" if n % 2 else "16")
    v = verdict(f, 13 * HOUR)
    assert (v.status, v.reason) == (Status.UNKNOWN, "OddLoadBack")


def test_computed_anew_beside_each_load_back_it_needs_no_earlier_asking() -> None:
    """The daemon came in the middle of a life; and what it computes has changed since (a LoRA, new weights)."""
    f = serving()
    for n in range(1, 5):
        back(f, n * HOUR, "old", fresh="16")
    assert verdict(f, 5 * HOUR).status is Status.FALSE
    f = serving()
    for n in range(1, 6):
        back(f, n * HOUR, f"answer {n}", fresh=f"answer {n}")
    assert verdict(f, 6 * HOUR).reason == "SameAnswers"


def test_a_salt_that_is_not_heeded_computes_nothing() -> None:
    f = serving()
    f.see(asked(HOUR, said("wrong", HOST), said("wrong", GPU), said("wrong", GPU)))
    assert f.prefix.computed is None and verdict(f, HOUR + 1).reason == "NothingSeen"


def test_half_a_hit_a_broken_answer_and_a_failure_prove_nothing() -> None:
    f = serving()
    cold(f)
    f.see(asked(HOUR, said("16", (SIZE // 2, None)), said("odd", GPU)))
    f.see(asked(2 * HOUR, said("wr", HOST, "abort"), said("16", GPU)))
    f.see(Probe(t=3 * HOUR, inv=INV, probe="prefix", outcome="timeout", total_s=60.0))
    f.see(asked(4 * HOUR, said("odd", GPU), said("odd", GPU)))
    assert not f.prefix.loaded and all(pair.same for pair in f.prefix.steady)


def test_a_new_life_begins_anew() -> None:
    f = serving()
    cold(f)
    for n in range(1, 5):
        back(f, n * HOUR, "wrong")
    f.see(Unit(t=5 * HOUR, inv="b" * 32, load_state="loaded", active_state="active", sub_state="running", since=5 * HOUR))
    assert not f.prefix.loaded and f.prefix.computed is None


class Old:
    """A server that tells nothing of the cache in its answers (before 0.5.12), but counts (0.5.5 and later)."""

    def __init__(self) -> None:
        self.f = serving()
        self.counts = {"num_requests_total": 100.0, "load_back_tokens_total": 0.0, "cached_tokens_total": 5000.0}
        self.scrape(20.0)

    def scrape(self, t: float) -> None:
        self.f.see(Metrics(t=t, inv=INV, ok=True, values=dict(self.counts)))

    def ask(self, t: float, text: str, *, cached: float, loaded: float = 0.0, others: int = 0) -> None:
        self.scrape(t - 8.0)
        self.f.see(asked(t, said(text, NONE), said(text, NONE)))
        self.counts["num_requests_total"] += 2 + others
        self.counts["cached_tokens_total"] += cached * SIZE
        self.counts["load_back_tokens_total"] += loaded * SIZE
        self.scrape(t + 2.0)


def test_an_old_server_is_judged_by_its_counters() -> None:
    old = Old()
    old.ask(60.0, "16", cached=1.0)
    old.ask(600.0, "16", cached=2.0)
    for n in range(1, 4):
        old.ask(n * HOUR, "wrong", cached=2.0, loaded=8.0)
    v = verdict(old.f, 4 * HOUR)
    assert (v.status, v.reason) == (Status.FALSE, "LoadBackChangesAnswers") and "0 of 3 without one do" in v.message


def test_requests_of_others_between_the_scrapes_blur_the_counters() -> None:
    old = Old()
    old.ask(60.0, "16", cached=1.0)
    old.ask(HOUR, "wrong", cached=2.0, loaded=1.0, others=1)
    assert not old.f.prefix.loaded
    old.ask(2 * HOUR, "16", cached=0.0)
    old.ask(3 * HOUR, "16", cached=1.4)
    assert len(old.f.prefix.steady) == 3 and verdict(old.f, 4 * HOUR).reason == "NothingSeen"


cached = st.tuples(st.none() | st.integers(0, SIZE), st.none() | st.integers(0, SIZE))
reply = st.builds(said, st.sampled_from(["16", "odd", ""]), cached, st.sampled_from(["stop", "length", "abort"]))
turns = st.lists(st.tuples(reply, reply, st.none() | reply), max_size=40)


@given(turns)
def test_it_is_never_told_of_fewer_than_three_differences(
    turns: list[tuple[Answer, Answer, Answer | None]],
) -> None:
    f = serving()
    for n, (first, second, fresh) in enumerate(turns, 1):
        f.see(asked(n * HOUR, first, second, fresh))
    v = verdict(f, (len(turns) + 1) * HOUR)
    differing = sum(not pair.same for pair in f.prefix.loaded)
    assert v.status is not Status.FALSE or differing >= 3
    assert v.status is not Status.TRUE or differing == 0


@pytest.mark.parametrize(("differing", "of", "noise", "steady"), [(3, 3, 0, 3), (0, 5, 0, 5), (7, 7, 0, 0), (2, 24, 5, 48)])
def test_the_chance_by_noise(differing: int, of: int, noise: int, steady: int) -> None:
    p = (noise + 1) / (steady + 2)
    other = 1.0 - sum(comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(differing))
    assert by_noise(differing, of, noise, steady) == pytest.approx(other) and 0.0 <= other <= 1.0
