"""Numbers and lengths of time in words."""

import pytest

from watchdog.wording import ago, counted, gist, lasting, quoted, span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (float("inf"), "?"),
        (float("nan"), "?"),
        (-3, "0 s"),
        (0.41, "0.4 s"),
        (3.0, "3 s"),
        (9.97, "10 s"),
        (12.4, "12 s"),
        (59.9, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (18720, "5 h 12 min"),
        (86399, "23 h 59 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_lengths_of_time(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "just now"), (0.9, "just now"), (1.4, "1 s ago"), (3599.7, "1 h ago")])
def test_how_long_ago(seconds: float, text: str) -> None:
    assert ago(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 canaries"), (1, "1 canary"), (1.0, "1 canary"), (2, "2 canaries"), (1000, "1000 canaries")]
)
def test_one_thing_is_not_several(number: float, text: str) -> None:
    assert counted(number, "canary", "canaries") == text


def test_most_words_take_an_s() -> None:
    assert [counted(1, "line"), counted(2, "line")] == ["1 line", "2 lines"]


def test_for_how_long() -> None:
    assert [lasting(0.4), lasting(200)] == ["just now", "for 3 min 20 s"]


def test_the_words_of_others_are_in_quotation_marks_and_bounded() -> None:
    assert quoted("a line\n  and more") == "“a line and more”"
    assert quoted("x" * 20, 10) == f"“{'x' * 9}…”"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("hung for 9 s: no batch for 9 s", "hung for 1 min 9 s: no batch for 1 min 9 s; more", True),
        ("serving, idle", "serving, 3 running, canary 0.41 s", True),
        (
            "in doubt: canaries have failed for 6.5 s: chat gave 500 (2 times)",
            "in doubt: canaries have failed for 9 s: chat gave 500",
            True,
        ),
        ("starting for 8 s: weights 3%", "starting for 9 s: weights 45%, about 3 s to go", True),
        ("starting for 8 s: weights 3%", "starting for 9 s: graphs", False),
        ("serving, idle", "hung for 9 s", False),
    ],
)
def test_what_a_sentence_says_without_its_figures(one: str, other: str, alike: bool) -> None:
    assert (gist(one) == gist(other)) is alike
