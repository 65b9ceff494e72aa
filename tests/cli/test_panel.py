"""`status` and `explain` from a view: ten lines, the truth in them, and nothing that can harm a terminal."""

from typing import Any

import pytest

from tests.cli.views import ILL, STARTING, condition, view
from watchdog.cli.explained import explained
from watchdog.cli.panel import bar, ill, panel, refused


def text(shown: dict[str, Any], columns: int = 120) -> str:
    return panel(shown, columns, on=False)


def line(shown: dict[str, Any], label: str) -> str:
    return next(each for each in text(shown).split("\n") if each.startswith(label))


@pytest.mark.parametrize(
    "shown", [view(), ILL, view(phase="starting", starting=STARTING), view(unit_state=None, invocation=None)]
)
@pytest.mark.parametrize("columns", [60, 200])
def test_ten_lines_that_fit(shown: dict[str, Any], columns: int) -> None:
    lines = text(shown, columns).split("\n")
    assert len(lines) == 10
    assert max(map(len, lines)) <= columns


def test_a_server_that_is_well() -> None:
    assert text(view()).startswith("kimi: serving, 3 running, canary 0.41 s\n")
    assert "358.16 GB (333.56 GiB) announced, 359.00 GB" in line(view(), "memory")
    assert line(view(), "work").endswith("3 running, 0 waiting, KV cache 12%, last step 0.2 s ago, accept length 2.74")
    assert "health ok 0.01 s, chat 503" in line(view(), "probes")
    assert not ill(view())


def test_a_server_that_is_ill() -> None:
    assert line(ILL, "conditions").endswith("1 hold, 1 do not, 1 unknown: SchedulerProgressing (Hung) for 12 s")
    assert ill(ILL)


def test_a_start_has_a_bar() -> None:
    assert "not known yet" in line(view(phase="starting", starting={**STARTING, "unsure": True}), "phase")
    assert line(view(phase="starting", starting=STARTING), "phase").endswith(
        "[########------------] weights 45% (2 of 7), about 3 min to go; last sign 2 s ago: 45% of weights"
    )


@pytest.mark.parametrize(("ratio", "full"), [(-1, 0), (0, 0), (0.5, 10), (1, 20), (7, 20)])
def test_the_bar(ratio: float, full: int) -> None:
    assert bar(ratio).count("#") == full
    assert len(bar(ratio)) == 22


def test_unknown_is_a_question_mark() -> None:
    work = dict.fromkeys(view()["work"])
    assert line(view(work=work), "work").endswith("? running, ? waiting")


def test_after_a_quiet_week_of_observing_it_says_that_it_is_time() -> None:
    week = {"s": 7 * 86400.0, "week": True, "would_restart": 0}
    assert "it is time for mode" in line(view(mode="observe", observed=week), "last")
    assert "it is time" not in line(view(mode="observe", observed={**week, "week": False}), "last")
    assert "it is time" not in line(view(mode="act", observed=None), "last")
    assert "would have restarted once within a week" in line(view(mode="observe", observed={**week, "would_restart": 1}), "last")


def test_words_of_the_server_cannot_reach_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\n\x9b31m"
    shown = view(
        sentence=evil,
        pause_reason=evil,
        paused=True,
        diary=[{"at": evil, "what": "x", "text": evil, "reason": evil}],
        conditions=[condition(evil, "False", evil, evil)],
        wrong=[evil],
    )
    for said in (text(shown), explained(shown, on=False)):
        assert not {"\x1b", "\x07", "\x9b"} & set(said)
    assert text(shown).count("\n") == 9


def test_a_doubt_is_neither_well_nor_bad() -> None:
    assert panel(view(doubts=["SchedulerProgressing"]), 120, on=True).startswith("\x1b[33m")
    assert panel(view(doubts=[]), 120, on=True).startswith("\x1b[32m")
    assert panel({**ILL, "doubts": ["AnswersSane"]}, 120, on=True).startswith("\x1b[31m")


def test_colours_are_around_the_text_only() -> None:
    coloured = panel(ILL, 120, on=True)
    assert "\x1b[31mkimi: hung for 41 s" in coloured
    assert coloured.count("\x1b[0m") == coloured.count("\x1b[") / 2


def test_explain_says_what_stands_in_the_way() -> None:
    said = explained(view(), on=False)
    assert said.endswith("A restart (0 of 2 are spent):\n  Not called for as hung: the engine last moved 1 s ago.")
    assert "Only said, not done, since the mode is observe" in explained(view(mode="observe"), on=False)
    assert "\x1b" not in explained(view(why={"restart": ["\x1b[2J"]}), on=False)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("starting", "starting since 2026-02-25 03:00:00;"),
        ("serving", "serving since 2026-02-25 03:11:00;"),
        ("stopping", "stopping;"),
    ],
)
def test_since_when_is_told_of_what_began_then(phase: str, words: str) -> None:
    """A unit that stops has not stopped since its life began."""
    shown = view(phase=phase, since_at="2026-02-25T03:00:00Z", ready_at="2026-02-25T03:11:00Z")
    assert f"Phase: {words}" in explained(shown, on=False)
    assert f"life {shown['invocation'][:8]} since 2026-02-25 03:00:00" in text(shown)


def test_explain_tells_what_fails_first() -> None:
    said = explained(ILL, on=False)
    assert said.index("SchedulerProgressing does not hold (Hung, for 12 s): No batch") < said.index(
        "SpeculationEffective unknown"
    )
    assert said.index("SpeculationEffective") < said.index("UnitActive holds")


def test_a_refused_reload_is_told_beside_the_servers() -> None:
    assert refused({"daemon": {}}, 120, on=False) == refused({"daemon": {"reload_refused": None}}, 120, on=False) == []
    [told] = refused({"daemon": {"reload_refused": "it is\x1b[2J no TOML"}}, 120, on=False)
    assert told.splitlines()[0].startswith("the last reload was refused")
    assert told.splitlines()[1] == "refused     it is\ufffd[2J no TOML"
