"""Each kind of incident, made by the simulation, is judged right in each of its variants."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.incidents import cases_answers, cases_busy, cases_end, cases_hang, cases_slow, cases_start
from tests.incidents.case import CASES, Case, judge
from watchdog.judge.engine import Engine
from watchdog.observation import Header, decode, encode
from watchdog.replay import settings_of

MODULES = (cases_answers, cases_busy, cases_end, cases_hang, cases_slow, cases_start)
PLAYED = [pytest.param(c, v, id=f"{c.name}/{v}") for c in CASES.values() for v in c.variants]
SEED = 7


def events(case: Case, variant: str, seed: int = SEED) -> list[dict[str, Any]]:
    """What the engine says of a played record, each event with the incarnation in which it was said."""
    sim = case.sim(variant, seed)
    engine = Engine(settings_of(Header(server="kimi")), mid_life=sim.setup.mid_life)
    return [{**e.as_line(), "inv": engine.facts.life.inv} for x in sim.out for e in engine.observe(x)]


@pytest.mark.parametrize(("case", "variant"), PLAYED)
def test_the_kind_is_judged_right(case: Case, variant: str) -> None:
    intents = [e for e in events(case, variant) if e["event"] == "intent"]

    assert judge(case.wishes, intents) == []


def test_what_is_said_can_be_read_by_people() -> None:
    """One sentence, no number that is none, no sentence twice in one message."""
    for name in ("hang-full-use-low-power", "dev-shm-full", "rank-leaks", "garbage-and-nothing-accepted", "one-rank-gone"):
        for e in events(CASES[name], "plain"):
            text = e["message"]
            assert text[:1] == text[:1].upper(), text
            assert text.endswith((".", "…", ")")) or ":" in text, text
            assert "nan" not in text.split() and "None" not in text and "inf" not in text.split(), text


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
