import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.observation import Log
from watchdog.observe.journal_lines import (
    ACCESS_SPARED_S,
    BATCH_SPARED_S,
    HEAD_BYTES,
    JOIN_LIMIT_S,
    MAX_OPEN,
    TAIL_BYTES,
    Backlog,
    LongLines,
    shorten,
)

ACCESS = b'[2026-01-14 02:00:00] INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
FAILED = b'INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 503 Service Unavailable'
DECODE = b"[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 3, #token: 9"
OTHER = b"[2026-01-14 02:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", ""),
        (b"plain", "plain"),
        (b"\xff\x00\x1b[31m", "�\x00\x1b[31m"),
        (b"a" * (HEAD_BYTES + TAIL_BYTES), "a" * (HEAD_BYTES + TAIL_BYTES)),
        (b"a" * HEAD_BYTES + b"-" * 77 + b"z" * TAIL_BYTES, "a" * HEAD_BYTES + " … [77 bytes left out] … " + "z" * TAIL_BYTES),
    ],
)
def test_a_message_is_text_of_bounded_length(message: bytes, text: str) -> None:
    assert shorten(message) == text


@given(st.lists(st.binary(max_size=9000), min_size=2, max_size=5), st.integers(2, 60))
def test_however_a_line_is_split_it_reads_as_if_it_were_whole(parts: list[bytes], repeat: int) -> None:
    parts = [part * repeat for part in parts]
    lines = LongLines()
    for part in parts[:-1]:
        assert lines.add(Log(t=1.0, message=shorten(part)), part, b"stream", True) is None
    whole = lines.add(Log(t=2.0, message=shorten(parts[-1])), parts[-1], b"stream", False)
    assert whole == Log(t=2.0, message=shorten(b"".join(parts)))
    assert not lines.open


def test_parts_of_different_streams_are_kept_apart() -> None:
    lines = LongLines()
    assert lines.add(Log(t=1.0, message="a", pid=1), b"a", b"one", True) is None
    assert lines.add(Log(t=1.0, message="b", pid=2), b"b", b"two", True) is None
    other = Log(t=1.0, message="c", pid=3)
    assert lines.add(other, b"c", b"three", False) is other
    assert lines.add(Log(t=1.0, message="A", pid=1), b"A", b"one", False) == Log(t=1.0, message="aA", pid=1)
    assert lines.add(Log(t=1.0, message="B", pid=2), b"B", b"two", False) == Log(t=1.0, message="bB", pid=2)


def test_a_line_whose_end_does_not_come_is_told_as_far_as_it_came() -> None:
    lines = LongLines()
    lines.add(Log(t=1.0, message="begun"), b"begun", b"one", True)
    assert lines.overdue(1.0 + JOIN_LIMIT_S) == []
    assert lines.overdue(1.1 + JOIN_LIMIT_S) == [Log(t=1.1 + JOIN_LIMIT_S, message="begun")]
    assert not lines.open


def test_lines_are_held_for_a_bounded_number_of_streams() -> None:
    lines = LongLines()
    for n in range(MAX_OPEN):
        assert lines.add(Log(t=1.0, message="x"), b"x", str(n).encode(), True) is None
    assert lines.add(Log(t=1.0, message="y"), b"y", b"one more", True) == Log(t=1.0, message="y")


@pytest.mark.parametrize(
    ("message", "behind_s", "spared"),
    [
        (ACCESS, ACCESS_SPARED_S - 0.1, False),
        (ACCESS, ACCESS_SPARED_S, True),
        (DECODE, BATCH_SPARED_S - 0.1, False),
        (DECODE, BATCH_SPARED_S, True),
        (OTHER, 1000.0, False),
    ],
)
def test_behind_the_least_valuable_lines_are_spared_first(message: bytes, behind_s: float, spared: bool) -> None:
    backlog = Backlog()
    assert not backlog.spares(message, 7.1, behind_s)
    assert backlog.spares(message, 7.9, behind_s) is spared


def test_one_line_of_each_second_and_sort_is_told() -> None:
    backlog = Backlog()
    told = [
        (second, message)
        for second, message in itertools.product((1.0, 1.5, 2.0), (ACCESS, FAILED, DECODE, DECODE.replace(b"TP0", b"TP1")))
        if not backlog.spares(message, second, 100.0)
    ]
    assert [second for second, _ in told] == [1.0] * 4 + [2.0] * 4
