"""journald's own limit, as its configuration files set it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.verify import journald


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30),
        ("1min 30s", 90),
        ("5", 5),
        ("0", 0),
        ("500ms", 0.5),
        ("1h", 3600),
        ("", None),
        ("soon", None),
        ("3 fortnights", None),
    ],
)
def test_spans(text: str, expected: float | None) -> None:
    assert journald.seconds(text) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], (30, 10_000)),
        (["[Journal]\n#RateLimitBurst=5\n"], (30, 10_000)),
        (["[Journal]\nRateLimitIntervalSec=0\n"], (0, 10_000)),
        (["RateLimitBurst = 5\n", "RateLimitBurst=7\nRateLimitInterval=1min\n"], (60, 7)),
        (["RateLimitBurst=5\n", "RateLimitBurst=\n"], (30, 10_000)),
        (["RateLimitBurst=many\n"], (30, None)),
    ],
)
def test_later_files_win(texts: list[str], expected: tuple[float, int | None]) -> None:
    assert journald.limit(texts) == expected


def test_files_are_found_where_systemd_finds_them(tmp_path: Path) -> None:
    assert journald.read(root=tmp_path) == (30, 10_000)
    etc = tmp_path / "etc/systemd"
    (etc / "journald.conf.d").mkdir(parents=True)
    (etc / "journald.conf").write_text("[Journal]\nRateLimitBurst=1\n")
    lib = tmp_path / "usr/lib/systemd/journald.conf.d"
    lib.mkdir(parents=True)
    (lib / "50-a.conf").write_text("[Journal]\nRateLimitBurst=2\n")
    assert journald.read(root=tmp_path) == (30, 2)
    (etc / "journald.conf.d/50-a.conf").write_text("[Journal]\nRateLimitIntervalSec=1s\n")
    assert journald.read(root=tmp_path) == (1, 1)
    assert journald.read("gpu", root=tmp_path) == (30, 10_000)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    interval, burst = journald.limit([text])
    assert interval is None or interval >= 0
    assert burst is None or burst >= 0
