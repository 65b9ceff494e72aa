"""The service's own files."""

import subprocess
from pathlib import Path

import pytest

from watchdog.setup import service


def test_the_rule_names_the_units_and_nothing_else_changes() -> None:
    text = service.rule(["b.service", "a.service", "b.service"])

    assert 'var units = ["a.service", "b.service"];' in text
    shipped = service.shipped("sglang-watchdog.rules")
    assert [line for line in text.splitlines() if "units = " not in line] == [
        x for x in shipped.splitlines() if "units = " not in x
    ]


def test_a_unit_name_cannot_leave_its_string() -> None:
    assert '["a\\"];evil();//.service"];' in service.rule(['a"];evil();//.service'])


def test_the_unit_starts_this_program_and_systemd_understands_it(tmp_path: Path) -> None:
    unit = tmp_path / "sglang-watchdog.service"
    unit.write_text(service.unit(Path("/bin/true")))

    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert "ExecStart=/usr/bin/x run" in service.unit(Path("/usr/bin/x"))


def test_the_stacks_helper_starts_this_interpreter() -> None:
    text = service.stacks_unit("sglang-watchdog-stacks@.service", Path("/opt/x/bin/python3"))
    assert "\nExecStart=/opt/x/bin/python3 -I -m watchdog.stacks /etc/sglang-watchdog/sglang-watchdog.toml\n" in text
    assert service.stacks_unit(service.STACKS_SOCKET, Path("/opt/x")) == service.shipped(service.STACKS_SOCKET)


def test_a_program_that_the_service_cannot_see_is_told() -> None:
    assert "below /root" in str(service.unreachable(Path("/root/.local/bin/sglang-watchdog")))
    assert "below /home" in str(service.unreachable(Path("/home/me/.venv/bin/sglang-watchdog")))


def test_a_program_whose_place_systemd_would_read_otherwise_is_told() -> None:
    assert "characters" in str(service.unreachable(Path("/opt/100% mine/sglang-watchdog")))


def test_a_program_that_other_users_cannot_enter_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HIDDEN", ())
    program = tmp_path / "bin/sglang-watchdog"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    tmp_path.chmod(0o700)

    assert "closed to other users" in str(service.unreachable(program))


def test_credentials_are_read_again(tmp_path: Path) -> None:
    files = {"kimi-key": "/etc/a%b.key", "two-key": "/etc/two.key"}
    path = tmp_path / "credentials.conf"
    path.write_text(service.credentials(files))

    assert service.known_credentials(path) == files
    assert service.known_credentials(tmp_path / "none") == {}


def test_how_to_install_for_all_users_is_said_in_the_same_words_everywhere() -> None:
    """And without --global, which the pipx of Debian 12 and Ubuntu 24.04 does not know."""
    root = Path(__file__).parents[2]
    for name in ("README.md", "docs/installation.md", "packaging/debian/README.Debian"):
        text = (root / name).read_text()
        assert service.PIPX in text
        assert "pipx install --global" not in text
