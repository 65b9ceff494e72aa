"""Each kind of incident, made by the simulation, is judged right in each of its variants."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.incidents import (
    cases_answers,
    cases_busy,
    cases_end,
    cases_hang,
    cases_late,
    cases_partial,
    cases_queue,
    cases_slow,
    cases_start,
    cases_unseen,
)
from tests.incidents.case import CASES, Case, judge
from tests.incidents.readable import Reader, faults
from watchdog.judge.engine import Engine
from watchdog.observation import Header, decode, encode
from watchdog.replay import settings_of

MODULES = (
    cases_answers,
    cases_busy,
    cases_end,
    cases_hang,
    cases_late,
    cases_partial,
    cases_queue,
    cases_slow,
    cases_start,
    cases_unseen,
)
PLAYED = [pytest.param(c, v, id=f"{c.name}/{v}") for c in CASES.values() for v in c.variants]
SEED = 7


@pytest.mark.parametrize(("case", "variant"), PLAYED)
def test_the_kind_is_judged_right_and_told_so_that_people_can_read_it(case: Case, variant: str) -> None:
    """Words are read in two variants of each case: of the others, they would be the same."""
    sim = case.sim(variant, SEED)
    engine = Engine(settings_of(Header(server="kimi")), mid_life=sim.setup.mid_life)
    reader = Reader(engine)
    said: list[dict[str, Any]] = []
    for x in sim.out:
        events = list(engine.observe(x))
        said += [{**e.as_line(), "inv": engine.facts.life.inv} for e in events]
        if variant in (case.variants[0], case.variants[-1]):
            reader.read(x, events)

    assert judge(case.wishes, [e for e in said if e["event"] == "intent"]) == []
    assert sorted(set(reader.found)) == []


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("OOM kills None.", "a word of Python"),
        ("The server is <watchdog.judge.facts.life object at 0x7f>.", "a word of Python"),
        ("It lost {'a': 1}.", "a word of Python"),
        ("It runs at nan tokens a second.", "a number that is none"),
        ("It is full in inf s.", "a number that is none"),
        ("1 canaries in a row failed.", "one thing in the plural"),
        ("All 1 GPUs are there.", "one thing in the plural"),
        ("It died 0 min ago.", "no time at all"),
        ("Hung for 3600 s: nothing.", "a span that should be in minutes"),
        ("It died of “this”..", "two marks"),
        ("word " * 100, "500 characters"),
    ],
)
def test_what_people_cannot_read_is_found(said: str, fault: str) -> None:
    assert [f.startswith(fault) for f in faults(said)] == [True]
    assert faults("Hung for 1 min 3 s: 1 process, 2 processes; “None in self.x() ..” 1 of 8 GPUs, token usage 1.1 tokens…") == []


def test_the_simulation_is_deterministic_and_writes_true_records() -> None:
    case = CASES["healthy"]
    first, second = (case.sim("0.5.9", 3).out for _ in range(2))
    lines = [encode(x) for x in first]

    assert lines == [encode(x) for x in second]
    assert [decode(line) for line in lines] == first
    assert all(b.t >= a.t for a, b in pairwise(first))
    assert {json.loads(line)["kind"] for line in lines} >= {
        "unit",
        "log",
        "probe",
        "metrics",
        "procs",
        "cgroup",
        "host",
        "gpu",
        "self",
    }


def test_a_case_can_fail() -> None:
    wishes = CASES["one-rank-gone"].wishes
    late = {"action": "restart", "t": 900.0, "reason": "R", "severity": "critical", "message": "m", "advice": None, "inv": "a"}

    assert judge(wishes, []) == ["no restart"]
    assert "late" in judge(wishes, [late])[0]
