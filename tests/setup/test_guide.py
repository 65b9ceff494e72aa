"""To which unit the values belong that a person gave to setup."""

from argparse import Namespace

import pytest

from watchdog.cli.setup import _wanted
from watchdog.setup.guide import SetupError, Wanted, _belongs, _of

KEY = "/etc/sglang/a=b.key"


def wanted(*units: str, keys: tuple[str, ...]) -> Wanted:
    return _wanted(
        Namespace(
            unit=list(units), url=[], name=[], key_file=list(keys), mode="act", no_server_drop_in=False, no_start=False,
            replace=False, stacks=False,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "keys", "found"),
    [
        ((), (KEY,), ["a.service"]),
        ((), (f"a={KEY}",), ["a.service"]),
        (("a",), (KEY,), ["a.service"]),
        (("a", "b"), (f"a={KEY}",), ["a.service", "b.service"]),
    ],
)
def test_a_value_belongs_to_its_unit_or_to_the_only_one(asked: tuple[str, ...], keys: tuple[str, ...], found: list[str]) -> None:
    ours = wanted(*asked, keys=keys)
    _belongs(ours, found)
    assert _of(ours.keys, "a.service") == KEY


@pytest.mark.parametrize(
    ("keys", "found", "said"),
    [
        ((KEY,), ["a.service", "b.service"], "say for which unit of a.service, b.service"),
        ((f"c={KEY}",), ["a.service"], "c.service is not set up here, but a.service"),
    ],
)
def test_a_value_that_belongs_to_none_or_to_several(keys: tuple[str, ...], found: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        _belongs(wanted(keys=keys), found)
