"""To which unit the values belong that a person gave to setup, and what it says where there is no systemd."""

from argparse import Namespace
from pathlib import Path

import pytest

from watchdog.cli.setup import _wanted
from watchdog.setup import guide
from watchdog.setup.guide import SetupError, Wanted, _belongs, _of
from watchdog.setup.plan import Manifest

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


async def test_a_host_without_systemd_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(guide, "BUS_LIMIT_S", 0.1)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    said = (
        "systemd is not the init of this host: the system bus is not available "
        f"(no connection to unix:path={tmp_path}/none: No such file or directory); look at: systemctl status dbus.service"
    )
    with pytest.raises(SetupError) as caught:
        await guide.propose(Wanted(units=["a.service"]), Manifest(tmp_path / "manifest"))
    assert str(caught.value) == said
