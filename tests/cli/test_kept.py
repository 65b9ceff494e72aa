"""What commands say of a state folder that they may not read, or only in part, where no daemon runs."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.cli.unreadable import forbid
from watchdog import cli
from watchdog.act import bundles
from watchdog.baseline import Kept
from watchdog.cli import incident
from watchdog.judge.facts.baseline import Baseline, Identity

BUNDLE = "2026-01-14T02-00-00Z-SchedulerHung"
CURE = "cannot be read (Permission denied): run this as root or as the daemon's user"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The state folder of two servers: each has a bundle, a baseline and a flight record."""
    home = tmp_path / "state"
    for server in ("glm", "kimi"):
        bundles.write(home / server / "incidents", BUNDLE, {"summary.md": b"# SchedulerHung\n"})
        known = Kept(baselines=[Baseline(identity=Identity(version="0.5.9"))])
        (home / server / "baseline.json").write_bytes(msgspec.json.encode(known))
        (home / server / "state.json").write_text("{}", encoding="utf-8")
        (home / server / "flight").mkdir()
    (home / "lock").touch()
    return home


def run(home: Path, *words: str) -> int:
    config = home.parent / "c.toml"
    config.write_text(f'[daemon]\nstate_dir = "{home}"\nruntime_dir = "{home.parent}"\n', encoding="utf-8")
    return cli.main([*words, "--config", str(config)])


COMMANDS = ["history", "incident list", "incident show latest", "baseline show", "explain --at 2026-01-14T02:00:00Z"]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_state_folder_that_may_not_be_read(
    home: Path, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forbid(monkeypatch, home)
    assert run(home, *words.split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and f"{home} {CURE}" in said.err


@pytest.mark.parametrize("words", COMMANDS)
def test_a_servers_folder_that_may_not_be_read(
    home: Path, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forbid(monkeypatch, home / "kimi")
    assert run(home, *words.split(), "--server", "kimi") == 2
    said = capsys.readouterr()
    assert said.out == "" and f"{home / 'kimi'}/" in said.err and CURE in said.err


def test_history_tells_what_may_be_read_and_names_the_rest(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forbid(monkeypatch, home / "kimi/incidents")
    assert run(home, "history", "--json") == 2
    said = capsys.readouterr()
    assert [i["server"] for i in json.loads(said.out)["incidents"]] == ["glm"]
    assert said.err.startswith("sglang-watchdog history: no daemon listens on ") and f"{home}/kimi/incidents {CURE}" in said.err


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("name", ["/x", "*", "..", "k*", "kimi/../glm", "lock", "", "\x00", "**"])
def test_what_somebody_types_as_a_name_is_no_path_and_no_pattern(
    home: Path, words: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(home, *words.split(), "--server", name)
    said = capsys.readouterr()
    assert status in (0, 1, 2) and "fault of sglang-watchdog" not in said.err
    assert "SchedulerHung" not in said.out and "0.5.9" not in said.out


def test_a_baseline_is_shown_without_a_daemon(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "baseline", "show", "--server", "glm") == 0
    assert "glm: baseline of" in capsys.readouterr().out
    assert run(home, "baseline", "show", "--server", "other") == 1
    assert f"no baseline of a server 'other' below {home}: none has been made yet" in capsys.readouterr().err


def test_before_the_daemon_ever_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / "state"
    assert run(nowhere, "baseline", "show") == 1
    assert run(nowhere, "incident", "list") == 2
    assert run(nowhere, "history") == 2
    assert capsys.readouterr().err.count("has the daemon ever run?") == 2


def test_a_bundle_that_is_cleared_away_meanwhile_is_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = incident.os.scandir

    def gone(path: object) -> object:
        if str(path).endswith(BUNDLE):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return really(path)  # type: ignore[call-overload]

    monkeypatch.setattr(incident.os, "scandir", gone)
    assert incident.listed(home / "kimi/incidents", "kimi") == []
