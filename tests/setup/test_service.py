"""The service's own files."""

import os
import re
import subprocess
import sys
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


def installation(folder: Path) -> tuple[Path, frozenset[int]]:
    """One that root and this user may change; its interpreter is a link, as in a virtual environment."""
    (folder / "base/bin").mkdir(parents=True)
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/lib/watchdog").mkdir(parents=True)
    for name in ("base/bin/python3", "venv/lib/watchdog/stacks.py"):
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    (folder / "venv/bin/python3").symlink_to("../../base/bin/python3")
    (folder / "venv/lib/round").symlink_to("../lib")
    (folder / "venv/lib/up").symlink_to("..")
    (folder / "venv/lib/nowhere").symlink_to("none")
    (folder / "venv/lib/itself").symlink_to("itself/x")
    for each in (folder, *folder.rglob("*")):
        if each.is_dir():
            each.chmod(0o755)
    return folder / "venv", frozenset((0, os.getuid()))


def test_an_installation_that_is_roots_alone_may_have_roots_rights(tmp_path: Path) -> None:
    venv, trusted = installation(tmp_path)
    assert service.changeable([venv / "bin/python3", venv / "lib"], trusted) is None


@pytest.mark.parametrize(
    "place", ["base/bin/python3", "base/bin", "base", "venv/lib/watchdog/stacks.py", "venv/lib/watchdog", "venv"]
)
@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_what_others_may_change_is_named(tmp_path: Path, place: str, mode: int) -> None:
    venv, trusted = installation(tmp_path)
    (tmp_path / place).chmod(mode)
    said = f"{tmp_path / place} can be written to by others (mode {mode:o})"
    found = service.changeable([venv / "bin/python3", venv / "lib"], trusted) or ""
    assert re.sub(r"venv/\S*?\.\./(\.\./)?", "", found) == said


def test_what_belongs_to_another_user_is_named(tmp_path: Path) -> None:
    venv, _ = installation(tmp_path)
    if os.getuid() == 0:
        os.chown(venv / "lib/watchdog/stacks.py", 12345, -1)
    assert "belongs to the user" in str(service.changeable([venv / "lib"]))


def test_this_interpreter_and_package_are_looked_at() -> None:
    places = service.code()
    assert Path(sys.executable) in places
    assert any((place / "setup/service.py").exists() for place in places)
    assert any((place / "msgspec").exists() for place in places)


def test_the_daemon_itself_is_no_root() -> None:
    assert f"\nUser={service.USER}\n" in service.shipped("sglang-watchdog.service")
