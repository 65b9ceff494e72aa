"""To which unit the values belong that a person gave to setup, and what it says where there is no systemd."""

import asyncio
import contextlib
import tomllib
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from watchdog.cli.setup import _wanted
from watchdog.setup import guide, service
from watchdog.setup import host as host_module
from watchdog.setup.guide import Proposal, SetupError, Wanted, _belongs, _of
from watchdog.setup.host import Found
from watchdog.setup.plan import Manifest

KEY = "/etc/sglang/a=b.key"


def wanted(*units: str, keys: tuple[str, ...]) -> Wanted:
    return _wanted(
        Namespace(
            unit=list(units), url=[], name=[], key_file=list(keys), mode=None, server_drop_in=None, no_start=False,
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


class Connected:
    """A bus that is there."""

    async def until_connected(self, _limit_s: float) -> bool:
        return True


class Host:
    """A host with these servers, on which setup runs again and again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.config = folder / "sglang-watchdog.toml"
        self.servers: dict[str, Found] = {}
        self.gpus = 8

        @contextlib.asynccontextmanager
        async def running(_bus: object) -> AsyncIterator[Connected]:
            yield Connected()

        async def find(_bus: object, unit: str) -> Found:
            return self.servers[unit]

        monkeypatch.setattr(guide, "CONFIG", self.config)
        monkeypatch.setattr(guide, "running", running)
        monkeypatch.setattr(guide, "_find", find)
        monkeypatch.setattr(guide, "_service_files", lambda _: [])
        monkeypatch.setattr(guide, "_group", lambda: None)
        monkeypatch.setattr(guide, "_command", lambda *_: None)
        monkeypatch.setattr(host_module, "gpus", lambda: self.gpus)
        monkeypatch.setattr(service, "RULE", folder / "rule")
        monkeypatch.setattr(service, "CREDENTIALS", folder / "credentials")
        monkeypatch.setattr(service, "drop_in", lambda unit: folder / f"{unit}.d/50.conf")
        monkeypatch.setattr(service, "known_credentials", dict)

    def server(self, unit: str, told_by: str = "process", pinned: int = 0, **args: Any) -> None:
        self.servers[unit] = Found(
            unit=unit, properties={"Type": "simple"}, args={"model_path": "/m", **args}, told_by=told_by, pinned=pinned
        )

    def setup(self, **wanted: Any) -> Proposal:
        asked, manifest = Wanted(start=False, **wanted), Manifest(self.folder / "setup")
        proposal = asyncio.run(guide.propose(asked, manifest))
        guide.apply(proposal, asked, manifest, lambda _: None)
        return proposal

    def told(self) -> dict[str, Any]:
        return tomllib.loads(self.config.read_text())

    def has_drop_in(self, unit: str) -> bool:
        return (self.folder / f"{unit}.d/50.conf").exists()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, monkeypatch)
    made.server("sglang-kimi.service")
    made.server("kimi.service", port=30001)
    return made


KIMI, OTHER = "sglang-kimi.service", "kimi.service"


def test_the_mode_stays_until_another_is_asked_for(host: Host) -> None:
    host.setup(units=[KIMI], mode="observe")
    host.setup(units=[OTHER])
    assert host.told()["daemon"]["mode"] == "observe"
    host.setup(mode="alert")
    assert host.told()["daemon"]["mode"] == "alert"
    assert len(host.told()["servers"]) == 2


def test_the_first_mode_is_act(host: Host) -> None:
    host.setup(units=[KIMI])
    assert host.told()["daemon"]["mode"] == "act"


def test_a_unit_that_was_to_be_left_alone_stays_so_until_it_is_asked_for(host: Host) -> None:
    host.setup(units=[KIMI], server_drop_ins=False)
    proposal = host.setup(units=[OTHER])
    assert not host.has_drop_in(KIMI)
    assert host.has_drop_in(OTHER), "what was said of one is not said of another"
    assert f"{KIMI} gets no drop-in, as before; --server-drop-in changes that" in proposal.remarks
    host.setup(server_drop_ins=True)
    assert host.has_drop_in(KIMI)
    assert host.setup().remarks == [r for r in host.setup().remarks if "no drop-in" not in r]


def test_a_newcomer_takes_no_servers_name(host: Host) -> None:
    host.setup(units=[KIMI])
    host.setup(units=[OTHER])
    assert {s["unit"]: s["name"] for s in host.told()["servers"]} == {KIMI: "kimi", OTHER: "kimi-2"}


def test_a_newcomer_beside_a_configuration_that_stays_takes_no_servers_name(host: Host) -> None:
    host.setup(units=[KIMI])
    host.config.write_text(host.config.read_text() + "# mine\n")
    proposal = host.setup(units=[OTHER])
    assert any('name = "kimi-2"' in remark for remark in proposal.remarks)


def test_a_server_that_is_down_loses_nothing_that_its_process_had_told(host: Host) -> None:
    host.server(KIMI, pinned=400 * 10**9, nnodes=2, node_rank=0, served_model_name="K")
    host.setup(units=[KIMI])
    before, drop_in = host.config.read_text(), (host.folder / f"{KIMI}.d/50.conf").read_text()
    assert "stop_limit_s = 300" in before
    assert "TimeoutStopSec=300" in drop_in

    host.servers[KIMI] = Found(unit=KIMI, properties={"Type": "simple"}, args={}, told_by="nothing")
    host.gpus = 0
    host.setup()

    assert host.config.read_text() == before
    assert "TimeoutStopSec=300" in (host.folder / f"{KIMI}.d/50.conf").read_text()


def test_a_configuration_is_replaced_only_where_it_loses_nothing(host: Host) -> None:
    host.setup(units=[KIMI], mode="observe")
    host.config.write_text(host.config.read_text().replace("[daemon]", '[alert]\nwebhook_url = "http://h/x"\n\n[daemon]'))
    theirs = host.config.read_text()

    said = host.setup(units=[OTHER], replace=True, mode="alert").remarks

    assert host.config.read_text() == theirs
    assert any("would lose alert.webhook_url; move it away" in remark for remark in said)
    assert any('mode = "alert"' in remark and f'unit = "{OTHER}"' in remark for remark in said)
    assert OTHER in (host.folder / "rule").read_text()


def test_a_configuration_of_a_person_is_replaced_with_what_it_says(host: Host) -> None:
    host.config.write_text(
        f'[daemon]\nmode = "observe"\n[[servers]]\nname = "k"\nunit = "{KIMI}"\nbase_url = "http://127.0.0.1:5"\n'
    )
    host.setup(units=[OTHER], replace=True)

    told = host.told()
    assert told["daemon"]["mode"] == "observe"
    assert [(s["name"], s["base_url"]) for s in told["servers"]] == [
        ("kimi", "http://127.0.0.1:30001"),
        ("k", "http://127.0.0.1:5"),
    ]


def test_a_configuration_whose_mode_cannot_be_told_is_not_replaced_without_one(host: Host) -> None:
    host.config.write_text("[")
    with pytest.raises(SetupError, match="--mode"):
        host.setup(units=[KIMI], replace=True)
    host.setup(units=[KIMI], replace=True, mode="alert")
    assert host.told()["daemon"]["mode"] == "alert"


def test_a_key_file_is_handed_over_whatever_its_unit_is_called(host: Host, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    host.servers["alias.service"] = host.servers[KIMI]
    host.setup(units=["alias.service"], keys={"alias.service": str(tmp_path / "key")})
    assert host.told()["servers"][0]["api_key_file"] == "kimi-key"
    assert f"LoadCredential=kimi-key:{tmp_path / 'key'}" in (tmp_path / "credentials").read_text()


def test_the_stacks_helper_is_not_for_an_installation_that_others_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "unreachable", lambda _: None)
    monkeypatch.setattr(service, "packaged", lambda: False)
    monkeypatch.setattr(service, "changeable", lambda _: "/opt/x can be written to by others (mode 777)")
    with pytest.raises(SetupError, match=r"/opt/x can be written to .*chown -R root:root"):
        guide._service_files(Wanted(stacks=True))
    assert len(guide._service_files(Wanted())) == 2


def test_a_type_that_forbids_a_line_of_the_drop_in_is_told(host: Host) -> None:
    host.servers[KIMI] = Found(unit=KIMI, properties={"Type": "oneshot"}, args={"model_path": "/m"}, told_by="process")
    said = host.setup(units=[KIMI]).remarks
    assert any(remark.startswith(f"{KIMI}: with Type=oneshot systemd refuses Restart=always") for remark in said)
    assert "Restart=always" not in (host.folder / f"{KIMI}.d/50.conf").read_text()
