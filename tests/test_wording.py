"""Numbers and lengths of time in words."""

import pytest

from watchdog.wording import ago, counted, span


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
