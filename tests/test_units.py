"""GB and GiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.units import GB, GIB, format_bytes, format_gb, format_gib, from_gb, from_gib


def test_exactness() -> None:
    assert from_gib("10.42") == 11_188_389_806
    assert from_gb("44.77") == 44_770_000_000
    assert from_gb(44.77) == 44_770_000_000
    assert from_gb("-1.5") == -1_500_000_000


@pytest.mark.parametrize("text", ["", "None", "1.2.3", "nan", "inf", "12 GB"])
def test_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of memory"):
        from_gib(text)


def test_spellings() -> None:
    assert format_gb(358_167_389_184) == "358.17 GB"
    assert format_gib(358_167_389_184) == "333.6 GiB"
    assert [format_bytes(size) for size in (0, 512, 1536, 3 * GIB, 5000 * GIB)] == [
        "0 B",
        "512 B",
        "1.5 KiB",
        "3.0 GiB",
        "4.9 TiB",
    ]


@given(st.integers(0, 10**6))
def test_hundredths_survive(hundredths: int) -> None:
    text = f"{hundredths // 100}.{hundredths % 100:02}"
    assert from_gb(text) * 100 == hundredths * GB
    assert format_gib(from_gib(text), 2) == f"{text} GiB"
