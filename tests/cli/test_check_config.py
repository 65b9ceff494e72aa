"""`check-config`: all faults at once, and warnings for what it names."""

import json
from pathlib import Path

import pytest

from watchdog import cli

GOOD = '[[servers]]\nname = "kimi"\nunit = "sglang-kimi.service"\n'


def run(file: Path, *more: str) -> int:
    return cli.main(["check-config", str(file), *more])


@pytest.fixture(autouse=True)
def no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this host is not asked; test_box_commands.py asks a real one."""
    from watchdog.cli import check_config

    monkeypatch.setattr(check_config, "BOOTED", Path("/nowhere"))


def test_a_good_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD)
    assert run(file) == 0
    assert capsys.readouterr().out == f"{file} can be used\n"
    assert cli.main(["check-config", "--config", str(file)]) == 0


def test_every_fault_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD + 'base_url = "nope"\n[daemon]\nmode = "acct"\n[probe]\nchat_limt_s = 3\n')
    assert run(file) == 78
    out = capsys.readouterr().out
    assert 'daemon.mode = "acct": is not one of the choices; write "observe", "alert" or "act"; did you mean "act"?' in out
    assert out.count("fault: ") == 3
    assert out.endswith(f"{file} cannot be used: 3 faults\n")
    assert run(file, "--json") == 78
    told = json.loads(capsys.readouterr().out)
    assert told["usable"] is False
    assert {f["key"] for f in told["faults"]} == {"daemon.mode", "probe.chat_limt_s", "servers[kimi].base_url"}
    assert all(f["problem"] and f["cure"] for f in told["faults"])


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        f'[alert]\napprise_urls_file = "{tmp_path}/none"\n{GOOD}base_url = "https://localhost:1"\n'
        f'api_key_file = "{tmp_path}/key"\nca_file = "{tmp_path}/ca"\n'
    )
    assert run(file) == 0
    out = capsys.readouterr().out
    assert [line.split(" ")[1].rstrip(":") for line in out.splitlines() if line.startswith("warning")] == [
        "servers[kimi].api_key_file",
        "servers[kimi].ca_file",
        "alert.apprise_urls_file",
    ]
    assert out.endswith("can be used, with 3 warnings\n")


def test_a_key_is_never_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_text("sk-very secret\n")
    file = tmp_path / "c.toml"
    file.write_text(f'{GOOD}api_key_file = "{key}"\n')
    assert run(file) == 0
    out = capsys.readouterr().out
    assert "not one line of printable ASCII" in out
    assert "very secret" not in out


@pytest.mark.parametrize("name", ["/nowhere/c.toml", "\x00", "/", "\udcff"])
def test_a_file_that_cannot_be_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", name]) == 78
    assert "cannot be used: 1 fault" in capsys.readouterr().out
