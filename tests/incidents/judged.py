"""Plays the cases of one module: each is judged right in each of its variants, in words that people can read.

A module of cases has a file of tests of its own, so that the files can be run beside each other.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.incidents.case import CASES, Case, judge
from tests.incidents.readable import Reader
from watchdog.judge.engine import Engine
from watchdog.observation import Header
from watchdog.replay import settings_of

SEED = 7


def cases_of(module: ModuleType) -> Callable[[Case, str], None]:
    """The test of a module's cases."""
    cases = [case for case in CASES.values() if case.play.__module__ == module.__name__]
    assert cases, module.__name__
    played = [pytest.param(case, variant, id=f"{case.name}/{variant}") for case in cases for variant in case.variants]

    @pytest.mark.parametrize(("case", "variant"), played)
    def test(case: Case, variant: str) -> None:
        wrong, unreadable = judged(case, variant)
        assert wrong == []
        assert unreadable == []

    return test


def judged(case: Case, variant: str) -> tuple[list[str], list[str]]:
    """What is wrong with the decisions, and with the words.

    Words are read in two variants of each case: of the others, they would be the same.
    """
    sim = case.sim(variant, SEED)
    engine = Engine(settings_of(Header(server="kimi")), mid_life=sim.setup.mid_life)
    reader = Reader(engine)
    said: list[dict[str, Any]] = []
    for x in sim.out:
        events = list(engine.observe(x))
        said += [{**e.as_line(), "inv": engine.facts.life.inv} for e in events]
        if variant in (case.variants[0], case.variants[-1]):
            reader.read(x, events)
    return judge(case.wishes, [e for e in said if e["event"] == "intent"]), sorted(set(reader.found))
