"""What the cases are made with: the simulation, what is asked of a decision, and what of words. Each module of cases has its own
tests."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.incidents import cases_busy, cases_hang  # noqa: F401  # fill CASES
from tests.incidents.case import CASES, judge
from tests.incidents.readable import faults
from watchdog.observation import decode, encode

ROOT = Path(__file__).parent


def test_each_module_of_cases_is_judged() -> None:
    cases = {path.name for path in ROOT.glob("cases_*.py")}
    assert cases
    assert cases == {path.name.removeprefix("test_") for path in ROOT.glob("test_cases_*.py")}


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
