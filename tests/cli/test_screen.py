"""What is printed: nothing that can do anything to a terminal, in the width that there is."""

import io
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.cli import screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text())
def test_plain_text_has_no_control_characters_and_keeps_the_rest(text: str) -> None:
    safe = screen.plain(text)
    assert not any(unicodedata.category(c)[0] == "C" for c in safe)
    assert len(safe) == len(text)
    assert all(a == b for a, b in zip(text, safe, strict=True) if unicodedata.category(a)[0] != "C")


def test_escape_sequences_and_direction_marks_are_taken_out() -> None:
    assert screen.plain("\x1b[31mred\x1b]0;title\x07 \u202eright") == "�[31mred�]0;title� �right"


@given(st.lists(st.tuples(*[st.text(alphabet="ab \x1b\n", max_size=60)] * 4), max_size=4), st.integers(70, 150))
def test_a_table_keeps_its_width(rows: list[tuple[str, ...]], columns: int) -> None:
    rows = [(row[0][:8], row[1][:12], row[2], row[3]) for row in rows]
    text = screen.table(rows, ("verdict", "what", "seen", "expected"), columns)
    assert max(len(line) for line in text.split("\n")) <= columns
    assert "\x1b" not in text


def test_a_table_loses_no_word() -> None:
    seen = "a long sentence that has to be wrapped into several lines of its own column"
    text = screen.table([("ok", "it", seen, "short")], ("verdict", "what", "seen", "expected"), 60)
    assert all(word in text for word in seen.split())


def test_sizes_in_both_spellings() -> None:
    assert screen.size(358_158_155_520) == "358.16 GB (333.56 GiB)"
    assert screen.size(None) == "?"


@pytest.mark.parametrize("text", ["", "no time", "9999999-01-01", "\x1b[2J"])
def test_a_moment_that_is_none_is_shown_as_it_is(text: str) -> None:
    assert "\x1b" not in screen.moment(text)


def test_colours_only_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not screen.colours()
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert screen.colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not screen.colours()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not screen.colours()
