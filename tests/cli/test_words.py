"""Lengths of time on the command line."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.cli.words import LONGEST_S, limit, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("30m", 1800), ("30min", 1800), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("0.5h", 1800), (" 2H ", 7200)],
)
def test_what_people_write(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "30", "m", "1 h", "-1h", "1w", "1h30", "0s", "366d", "1e3s", "nan", "inf", "٣m", "1h;", "m30"]
)
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"no length of time; write|must be more than nothing"):
        seconds(text)


def test_a_limit_may_be_a_plain_number_of_seconds() -> None:
    assert (limit("90"), limit("1.5"), limit("2m")) == (90, 1.5, 120)
    with pytest.raises(argparse.ArgumentTypeError):
        limit("0")


@given(st.text(max_size=20))
def test_any_text_is_a_length_or_a_clear_error(text: str) -> None:
    try:
        assert 0 < seconds(text) <= LONGEST_S
    except argparse.ArgumentTypeError as e:
        assert "length of time" in str(e) or "at most a year" in str(e)
