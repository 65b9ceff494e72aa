"""The Debian package in a fresh root: installed, set up, upgraded, downgraded and purged (`make test-install`).

ROOT is the folder of the root, DEB the package that was built for its suite (tests/install/run.sh).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.box import Box, wait_for

CLEAN = Path(os.environ["ROOT"]).resolve()
DEB = Path(os.environ["DEB"]).resolve()
CONFIG = "/etc/sglang-watchdog/sglang-watchdog.toml"
RULE = "/etc/polkit-1/rules.d/50-sglang-watchdog.rules"
STATE = "/var/lib/sglang-watchdog/kimi/state.json"
STACKS = "sglang-watchdog-stacks.socket"
THEIRS = "/etc/systemd/system/sglang-two.service.d/50-sglang-watchdog.conf"
ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("/run/sglang-watchdog-stacks.sock")
s.sendall(b"sglang-kimi.service\\n")
while piece := s.recv(65536):
    sys.stdout.write(piece.decode())
"""
SERVER = """[Unit]
Description=SGLang (stand-in)
[Service]
Environment=PORT={port}
ExecStart={program} standin --served-model-name {name} --host 0.0.0.0 --port ${{PORT}} --start-seconds 2 --enable-metrics
[Install]
Alias={name}-alias.service
"""


def repacked(deb: Path, version: str, into: Path) -> Path:
    """The same package under another version."""
    folder, fresh = into / version, into / f"sglang-watchdog_{version}.deb"
    subprocess.run(["dpkg-deb", "-R", deb, folder], check=True)
    control = folder / "DEBIAN/control"
    lines = control.read_text().splitlines(keepends=True)
    control.write_text("".join(f"Version: {version}\n" if line.startswith("Version:") else line for line in lines))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", folder, fresh], check=True, stdout=subprocess.DEVNULL)
    return fresh


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    shutil.copy(Path(sys.executable).with_name("py-spy"), folder)
    return {version: repacked(DEB, version, folder) for version in ("1", "2")}


@pytest.fixture(scope="module")
def host(packages: dict[str, Path]) -> Iterator[Box]:
    with Box(root=CLEAN, shown=(packages["1"].parent,)) as box:
        box.run("dpkg", "-i", str(packages["1"]))
        yield box


def server(host: Box, name: str, port: int, program: str = "/usr/bin/sglang-watchdog") -> str:
    unit = f"sglang-{name}.service"
    host.unit(unit, SERVER.format(name=name, port=port, program=program))
    host.run("systemctl", "enable", "--now", unit)
    wait_for(lambda: f":{port}" in host.run("ss", "-tln").stdout, 60, f"{unit} listens")
    return unit


def status(host: Box) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.run("sglang-watchdog", "status", "--json", check=False).stdout)
    return found


def up(host: Box) -> bool:
    return host.run("sglang-watchdog", "status", "--json", check=False).stdout.startswith("{")


def test_lintian_finds_no_fault() -> None:
    """But those that packaging/debian/overrides gives reasons for."""
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", DEB],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_is_installed_but_does_not_start_before_it_is_set_up(host: Box) -> None:
    assert host.run("sglang-watchdog", "--version").stdout.startswith("sglang-watchdog ")
    assert "sglang-watchdog" in host.run("id", "sglang-watchdog").stdout
    assert "systemd-journal" in host.run("id", "-nG", "sglang-watchdog").stdout
    assert host.show("sglang-watchdog.service", "LoadState") == "loaded"
    assert host.show("sglang-watchdog.service", "ActiveState") == "inactive"
    for unit in ("sglang-watchdog.service", STACKS):
        assert host.run("systemctl", "is-enabled", unit, check=False).stdout.strip() == "disabled"
    assert host.run("dpkg-query", "-W", "-f", "${Conffiles}", "sglang-watchdog").stdout == "", "README.Debian says why"
    assert not host.run("find", "/etc", "-name", "*sglang-watchdog*").stdout
    assert host.run("test", "-s", "/usr/share/bash-completion/completions/sglang-watchdog")
    shut = host.run(
        "find", "/usr/lib/sglang-watchdog", "/usr/share/doc/sglang-watchdog", "-perm", "/o+w", "!", "-type", "l"
    ).stdout
    assert shut == ""


def test_setup_without_a_word_finds_the_server_and_does_nothing_with_dry_run(host: Box) -> None:
    server(host, "kimi", 31000)
    said = host.run("sglang-watchdog", "setup", "--dry-run").stdout
    assert "sglang-kimi.service: taken from its process" in said
    assert 'base_url = "http://127.0.0.1:31000"' in said
    for path in (CONFIG, RULE, "/etc/systemd/system/sglang-kimi.service.d"):
        assert host.run("test", "-e", path, check=False).returncode != 0, path
    refused = host.run("sglang-watchdog", "setup", check=False)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)


def test_setup_makes_a_watched_server_of_it(host: Box) -> None:
    life = host.show("sglang-kimi.service", "InvocationID")
    said = host.run("sglang-watchdog", "setup", "--unit", "kimi-alias", "--yes")
    assert "its user may read the journal and the configuration, and may restart these units" in said.stdout, said.stdout
    assert host.show("sglang-kimi.service", "InvocationID") == life
    assert '"sglang-kimi.service"' in host.run("cat", RULE).stdout
    assert host.run("stat", "-c", "%a %U:%G", CONFIG).stdout.strip() == "640 root:sglang-watchdog"
    assert host.show("sglang-kimi.service", "KillMode") == "mixed"
    assert host.show("sglang-kimi.service", "TimeoutStopUSec") == "3min"
    wait_for(lambda: up(host), 20, "the daemon answers")
    wait_for(lambda: status(host)["servers"][0]["well"], 60, "the server is well")


def test_setup_again_changes_nothing_and_another_server_is_added(host: Box) -> None:
    said = host.run("sglang-watchdog", "setup", "--dry-run").stdout
    assert "will write" not in said, said
    server(host, "two", 31001)
    host.write(THEIRS, "# theirs\n")
    host.run("sglang-watchdog", "setup", "--unit", "sglang-two", "--replace", "--yes")
    assert "KillMode=mixed" in host.run("cat", THEIRS).stdout
    rule = host.run("cat", RULE).stdout
    assert '["sglang-kimi.service", "sglang-two.service"]' in rule
    wait_for(lambda: up(host) and [s["name"] for s in status(host)["servers"]] == ["two", "kimi"], 20, "both are watched")


def test_the_stacks_helper_is_a_choice(host: Box, packages: dict[str, Path]) -> None:
    assert "optional: --stacks installs a helper" in host.run("sglang-watchdog", "setup", "--dry-run").stdout
    said = host.run("sglang-watchdog", "setup", "--stacks", "--yes").stdout
    assert "py-spy is not installed" in said and f"{STACKS} is enabled and listens" in said
    ask = ("runuser", "-u", "sglang-watchdog", "--", "python3", "-c", ASK)
    told = host.run(*ask).stdout
    assert told.startswith("ok\nStacks of sglang-kimi.service") and "waits in " in told
    assert "Python stacks: py-spy is not installed (looked for /usr/lib/sglang-watchdog/bin/py-spy" in told
    host.run("install", "-m755", str(packages["1"].with_name("py-spy")), "/usr/local/bin/py-spy")
    told = host.run(*ask).stdout
    assert "    <module> (" in told and "py-spy failed" not in told, told
    assert "optional: --stacks" not in host.run("sglang-watchdog", "setup", "--dry-run").stdout


def test_a_configuration_that_a_person_changed_stays(host: Box) -> None:
    host.run("sh", "-c", f"echo '# mine' >> {CONFIG}")
    said = host.run("sglang-watchdog", "setup", "--unit", "sglang-kimi", "--mode", "alert", "--yes").stdout
    assert f"leaves {CONFIG} (the configuration): changed by a person" in said
    assert "# mine" in host.run("cat", CONFIG).stdout
    assert "sglang-two.service" in host.run("cat", RULE).stdout


@pytest.mark.parametrize("version", ["2", "1"])
def test_an_upgrade_and_a_downgrade_keep_the_state_and_leave_the_server(
    host: Box, packages: dict[str, Path], version: str
) -> None:
    host.run("sglang-watchdog", "pause", "2h", "--reason", f"before {version}")
    host.run("systemctl", "kill", "--signal=STOP", "sglang-kimi.service")  # it hangs meanwhile
    life, pid = host.show("sglang-kimi.service", "InvocationID"), host.show("sglang-watchdog.service", "MainPID")
    done = host.run("dpkg", "-i", "--force-downgrade", str(packages[version]))
    assert "warning: unable" not in done.stderr
    wait_for(lambda: up(host), 30, "the new daemon answers")
    assert host.show("sglang-watchdog.service", "MainPID") != pid
    assert host.show("sglang-kimi.service", "InvocationID") == life
    assert f"before {version}" in host.run("cat", STATE).stdout
    assert "# mine" in host.run("cat", CONFIG).stdout
    host.run("systemctl", "kill", "--signal=CONT", "sglang-kimi.service")
    host.run("sglang-watchdog", "resume")


@pytest.mark.parametrize("damage", ['sed -i \'s/"version":1/"version":99/\' {0}', "truncate -s 40 {0}"])
def test_a_state_file_from_the_future_or_cut_in_half_costs_no_service(host: Box, damage: str) -> None:
    host.run("systemctl", "stop", "sglang-watchdog.service")
    host.run("sh", "-c", damage.format(STATE))
    host.run("systemctl", "start", "sglang-watchdog.service")
    wait_for(lambda: up(host), 20, "the daemon answers")
    assert ".bad" in host.run("ls", "/var/lib/sglang-watchdog/kimi").stdout
    assert "one restart held as spent" in host.journal("-u", "sglang-watchdog.service")


def test_a_removal_keeps_the_configuration_and_a_purge_leaves_nothing(host: Box, packages: dict[str, Path]) -> None:
    # A copy for the next test: the way without a package.
    host.run("cp", "-a", "/usr/lib/sglang-watchdog", "/opt/sglang-watchdog")
    host.run("sed", "-i", "1s|.*|#!/opt/sglang-watchdog/bin/python3|", "/opt/sglang-watchdog/bin/sglang-watchdog")
    host.run("systemctl", "stop", "sglang-kimi.service", "sglang-two.service")
    host.run("dpkg", "-r", "sglang-watchdog")
    assert host.run("test", "-e", CONFIG).returncode == 0
    assert host.show("sglang-watchdog.service", "ActiveState") == "inactive"
    host.run("dpkg", "-i", str(packages["1"]))
    wait_for(lambda: up(host), 30, "the daemon runs again")
    assert host.show(STACKS, "ActiveState") == "active"
    host.run("dpkg", "-P", "sglang-watchdog")
    left = host.run(
        "find", "/etc", "/usr", "/var", "/run", "-xdev", "-name", "*sglang-watchdog*", "-not", "-path", "/var/log/journal/*"
    ).stdout
    assert left == f"{THEIRS}\n", "what setup had replaced has come back"
    assert host.run("cat", THEIRS).stdout == "# theirs\n"
    assert host.run("id", "sglang-watchdog", check=False).returncode != 0


def test_without_a_package_setup_brings_unit_and_user_and_takes_them_back(host: Box) -> None:
    program = "/opt/sglang-watchdog/bin/sglang-watchdog"
    host.run("rm", "-rf", "/etc/systemd/system/sglang-two.service", str(Path(THEIRS).parent))
    server(host, "kimi", 31002, program)
    said = host.run(program, "setup", "--stacks", "--yes", check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert host.show("sglang-watchdog.service", "ActiveState") == "active"
    assert f"path={program}" in host.show("sglang-watchdog.service", "ExecStart")
    told = host.run("runuser", "-u", "sglang-watchdog", "--", "python3", "-c", ASK).stdout
    assert told.startswith("ok\nStacks of sglang-kimi.service") and "    <module> (" in told, told
    host.run(program, "setup", "--undo", "--yes")
    assert host.run("test", "-e", "/run/sglang-watchdog-stacks.sock", check=False).returncode != 0
    left = host.run("find", "/etc", "-name", "*sglang-watchdog*").stdout
    assert left == ""
    assert host.show("sglang-watchdog.service", "ActiveState") == "inactive"
    assert host.show("sglang-kimi.service", "ActiveState") == "active"
