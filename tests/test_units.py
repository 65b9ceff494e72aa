"""The shipped units, as systemd's own tools see them (the unit at work: tests/box/test_box_units.py)."""

import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[1] / "units"
SERVICE = UNITS / "sglang-watchdog.service"
STACKS = UNITS / "sglang-watchdog-stacks@.service"
STACKS_SOCKET = UNITS / "sglang-watchdog-stacks.socket"
EXPOSURE_LIMIT = {SERVICE: 1.6, STACKS: 1.6}


@pytest.mark.parametrize("service", EXPOSURE_LIMIT, ids=lambda path: path.name)
def test_a_service_is_little_exposed(service: Path) -> None:
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", service], capture_output=True, text=True, check=False, timeout=60
    ).stdout
    exposure = re.search(r"Overall exposure level for .*: ([0-9.]+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= EXPOSURE_LIMIT[service], said


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    # The program is not installed at its place while this is tested.
    unit = tmp_path / SERVICE.name
    unit.write_text(SERVICE.read_text().replace("/usr/bin/sglang-watchdog", "/bin/true"))
    stacks, socket = tmp_path / STACKS.name, tmp_path / STACKS_SOCKET.name
    stacks.write_text(re.sub(r"^ExecStart=.*", "ExecStart=/bin/true", STACKS.read_text(), flags=re.MULTILINE))
    socket.write_text(STACKS_SOCKET.read_text())
    server = tmp_path / "sglang.service"
    server.write_text("[Service]\nExecStart=/bin/true\n")
    drop_in = tmp_path / "sglang.service.d" / "50-sglang-watchdog.conf"
    drop_in.parent.mkdir()
    drop_in.write_text((UNITS / "server.conf").read_text())
    done = subprocess.run(
        ["systemd-analyze", "verify", unit, server, socket, stacks], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_ties_the_watchdog_to_a_server() -> None:
    lines = SERVICE.read_text().splitlines()
    assert not [line for line in lines if re.match(r"(Wants|Requires|Requisite|BindsTo|PartOf|Upholds)=", line)]
