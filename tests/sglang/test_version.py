"""Versions and their order."""

import pytest

from watchdog.sglang.version import at_least, is_new, parse_version

ORDER = [
    "0.4.6.post5",
    "0.4.10.post2",
    "0.5.1.post3",
    "0.5.9rc1",
    "0.5.9",
    "0.5.9.post1",
    "0.5.9.post12",
    "0.5.10rc0",
    "0.5.10",
    "0.5.10.post1",
    "0.5.23",
    "1.0",
]


def test_order() -> None:
    parsed = [parse_version(text) for text in ORDER]
    assert None not in parsed
    assert parsed == sorted(parsed)  # type: ignore[type-var]
    assert len(set(parsed)) == len(ORDER)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v0.5.9", (0, 5, 9, 0)),
        ("0.5.9+cu128", (0, 5, 9, 0)),
        ("0.5.4.post3", (0, 5, 4, 3)),
        ("0.5.10.dev12+g1a2b3c4", (0, 5, 10, -1)),
        ("0.5.10rc1.dev3", (0, 5, 10, -1)),
        ("0.5.9.post1.dev31+g8a2c", (0, 5, 9, 1)),
        (" 0.5.9\n", (0, 5, 9, 0)),
        ("0.0.0", None),
        ("0.0.0.dev1+gdeadbee", None),
        ("main", None),
        ("", None),
        ("5", None),
        ("0.5.9 or so", None),
        (None, None),
    ],
)
def test_parse(text: str | None, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_unknown_is_neither() -> None:
    assert at_least("0.5.9", "0.5.9") is True
    assert at_least("0.5.8.post1", "0.5.9") is False
    assert at_least(None, "0.5.9") is None
    assert at_least("unknown", "0.5.9") is None


def test_between_two_known_versions_is_unknown() -> None:
    assert is_new("0.5.3.post3", "0.5.3.post3", "0.5.4.post3") is False
    assert is_new("0.5.4.post3", "0.5.3.post3", "0.5.4.post3") is True
    assert is_new("0.5.4", "0.5.3.post3", "0.5.4.post3") is None
    assert is_new(None, "0.5.3.post3", "0.5.4.post3") is None
