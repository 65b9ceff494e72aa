"""Servers in containers of podman and docker under a real systemd: found, watched and cured (`make test-containers`).

ROOT is the folder of a fresh root with both, DEB the package that was built for its suite (tests/install/run.sh).
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box.box import Box, wait_for

ROOT = Path(os.environ["ROOT"]).resolve()
DEB = Path(os.environ["DEB"]).resolve()
CONFIG = "/etc/sglang-watchdog/sglang-watchdog.toml"
LONG = 90.0
BUNDLE = "$(ls -d /var/lib/sglang-watchdog/kimi/incidents/*Z-* | tail -n 1)"
# The box's own root is an overlay, on which there can be no other. Of a container's limits nothing is tested here; a machine
# without CAP_SYS_RESOURCE, or with its controllers in cgroup v1, could not grant them.
STORAGE = '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n'
CONTAINERS = '[containers]\npids_limit = 0\ndefault_ulimits = []\n[engine]\nruntime = "{runtime}"\n'
# The image has links alone; the program comes from the host.
IMAGE = """set -e
mkdir -p /t/etc /t/tmp /t/run/faults /t/usr; cd /t; for d in bin sbin lib lib64; do ln -sfn usr/$d $d; done
tar -c . | podman import - tiny"""
RUN = "--network host -v /usr:/usr:ro -v /run/faults:/run/faults"
SERVER = (
    "/usr/bin/sglang-watchdog standin --served-model-name {name} --host 0.0.0.0 --port {port} --start-seconds 2 --tp 2 "
    "--enable-metrics --watchdog-timeout 7200 --fault-dir /run/faults/{name}"
)
UNIT = """[Unit]
Description=SGLang in a container
[Service]
Type={type}
NotifyAccess=all
Delegate=yes
ExecStart=/usr/bin/podman run --name {name} --replace --rm {options} {run} tiny {server}
ExecStop=/usr/bin/podman stop -t 5 {name}
TimeoutStopSec=20
"""
SPLIT = "--cgroups=split --sdnotify=conmon -d --log-driver journald"
DOCKERD = {
    "storage-driver": "vfs",
    "exec-opts": ["native.cgroupdriver=systemd"],
    "bridge": "none",
    "iptables": False,
    "ip-forward": False,
    "ip-masq": False,
}
QUADLET = """[Container]
Image=localhost/tiny
ContainerName={name}
Pull=never
Network=host
Volume=/usr:/usr:ro
Volume=/run/faults:/run/faults
Exec={server}
[Service]
TimeoutStopSec=20
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("package")
    shutil.copy(DEB, folder / "watchdog.deb")
    shutil.copy(Path(sys.executable).with_name("py-spy"), folder)
    with Box(root=ROOT, shown=(folder,)) as box:
        box.run("dpkg", "-i", f"{folder}/watchdog.deb")
        box.run("install", "-m755", f"{folder}/py-spy", "/usr/local/bin/py-spy")
        box.write("/etc/containers/storage.conf", STORAGE)
        box.write("/etc/containers/containers.conf", CONTAINERS.format(runtime="crun"))
        box.run("mkdir", "-p", "/run/faults")
        box.run("sh", "-c", IMAGE)
        first = ("podman", "run", "--rm", *RUN.split(), "tiny", "/usr/bin/true")
        if box.run(*first, check=False).returncode != 0:
            # crun before 1.9 raises limits, for which it needs CAP_SYS_RESOURCE.
            box.write("/etc/containers/containers.conf", CONTAINERS.format(runtime="runc"))
            box.run(*first)
        yield box


def install(host: Box, name: str, port: int, options: str, kind: str = "notify") -> str:
    """A unit that runs a server in a container; started."""
    unit = f"sglang-{name}.service"
    server = SERVER.format(name=name, port=port)
    host.unit(unit, UNIT.format(type=kind, name=name, options=options, run=RUN, server=server))
    host.run("systemctl", "start", unit)
    wait_for(lambda: f":{port}" in host.run("ss", "-tln").stdout, LONG, f"{unit} listens\n{host.journal('-u', unit)}")
    return unit


def view(host: Box, name: str) -> dict[str, Any]:
    """What the daemon tells of a server; empty while it cannot be asked."""
    said = host.run("sglang-watchdog", "status", "--json", check=False).stdout
    servers = json.loads(said)["servers"] if said.startswith("{") else []
    return next((server for server in servers if server["name"] == name), {})


def well(host: Box, name: str) -> bool:
    return bool(view(host, name).get("well")) and bool(view(host, name).get("verified"))


def cured(host: Box, unit: str, name: str) -> None:
    """A scheduler dies, and the watchdog starts the container anew."""
    life = host.show(unit, "InvocationID")
    host.run("sglang-watchdog", "standin", "fault", "kill-scheduler", "--fault-dir", f"/run/faults/{name}")
    said = ("journalctl", "-u", "sglang-watchdog", "-o", "cat", "-n", "40", "--no-pager")
    wait_for(lambda: host.show(unit, "InvocationID") not in (life, ""), LONG, f"a new life\n{host.run(*said).stdout}")
    wait_for(lambda: well(host, name), LONG, f"{unit} is well\n{host.run(*said).stdout}")
    acted = host.run("journalctl", "-u", "sglang-watchdog", "-o", "cat", "--no-pager", "SGLANG_WATCHDOG_EVENT=acted").stdout
    assert f"restarting {unit}" in acted, acted


def refusal(host: Box, *words: str) -> str:
    said = host.run("sglang-watchdog", "setup", *words, "--dry-run", check=False)
    assert said.returncode == 2, said.stdout
    return said.stderr


def test_a_service_that_keeps_its_container_is_found_and_watched(host: Box) -> None:
    unit = install(host, "kimi", 31000, SPLIT)
    said = host.run("sglang-watchdog", "setup", "--stacks", "--yes").stdout
    assert "sglang-kimi.service: taken from its process" in said
    assert 'base_url = "http://127.0.0.1:31000"' in said and "comes twice" not in said
    wait_for(lambda: well(host, "kimi"), LONG, "the server is well")
    pid = host.run("pgrep", "-f", "^sglang::scheduler_TP1").stdout.strip()
    assert f"/system.slice/{unit}/" in host.run("cat", f"/proc/{pid}/cgroup").stdout


def test_a_scheduler_that_dies_in_it_brings_a_new_container(host: Box) -> None:
    before = host.run("podman", "inspect", "--format", "{{.Id}}", "kimi").stdout
    cured(host, "sglang-kimi.service", "kimi")
    assert host.run("podman", "inspect", "--format", "{{.Id}}", "kimi").stdout != before


def test_its_log_lines_are_conmons_and_are_read_as_the_servers_own(host: Box) -> None:
    lines = host.run("journalctl", "-u", "sglang-kimi", "CONTAINER_NAME=kimi", "-o", "json", "--no-pager").stdout.splitlines()
    ready = [json.loads(line) for line in lines if "fired up" in line]
    assert ready and {entry["_COMM"] for entry in ready} == {"conmon"}
    # What the daemon made of them is in the record that was kept with the evidence.
    told = host.run("sh", "-c", f"zcat {BUNDLE}/record.jsonl.gz | grep 'fired up'").stdout.splitlines()
    assert {json.loads(line)["message"].partition("] ")[2] for line in told} == {"The server is fired up and ready to roll!"}


def test_its_stacks_are_seen_from_outside(host: Box) -> None:
    told = host.run("sh", "-c", f"cat {BUNDLE}/stacks.txt").stdout
    assert re.search(r"== Python stacks of \d+\nthread ", told), told
    assert "watchdog/standin/" in told, told


def test_a_quadlet_is_found_and_watched(host: Box) -> None:
    if not (ROOT / "usr/lib/systemd/system-generators/podman-system-generator").exists():
        pytest.skip("this podman has no quadlets (they came with 4.4)")
    host.write(
        "/etc/containers/systemd/sglang-quad.container",
        QUADLET.format(name="quad", server=SERVER.format(name="quad", port=31001)),
    )
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "sglang-quad.service")
    wait_for(lambda: ":31001" in host.run("ss", "-tln").stdout, LONG, "it listens")
    said = host.run("sglang-watchdog", "setup", "--unit", "sglang-quad", "--yes").stdout
    assert "sglang-quad.service: taken from its process" in said
    wait_for(lambda: well(host, "quad"), LONG, "the server is well")
    cured(host, "sglang-quad.service", "quad")
    host.run("systemctl", "stop", "sglang-quad.service")


def test_a_container_with_a_scope_of_its_own_is_refused_with_what_helps(host: Box) -> None:
    unit = install(host, "scope", 31002, "--sdnotify=conmon -d --log-driver journald")
    said = refusal(host, "--unit", unit)
    assert "starts a container whose processes are in a scope of their own" in said and "add --cgroups=split" in said
    host.run("systemctl", "stop", unit)
    assert "add --cgroups=split" in refusal(host, "--unit", unit), "known from the unit file, too"


def test_a_container_that_a_person_started_is_named_with_its_log_driver(host: Box) -> None:
    host.run("systemctl", "stop", "sglang-watchdog.service", "sglang-kimi.service")
    host.run("mv", CONFIG, f"{CONFIG}.away")
    server = SERVER.format(name="hand", port=31003).split()
    host.run("podman", "run", "-d", "--rm", "--name", "hand", "--log-driver", "k8s-file", *RUN.split(), "tiny", *server)
    wait_for(lambda: ":31003" in host.run("ss", "-tln").stdout, LONG, "it listens")
    said = refusal(host)
    assert re.search(r"The server in the container hand runs in libpod-[0-9a-f]{64}\.scope", said), said
    assert "Its log driver is k8s-file" in said
    host.run("podman", "stop", "-t", "2", "hand")


def test_podman_in_the_foreground_says_each_line_twice_and_setup_says_so(host: Box) -> None:
    unit = install(host, "front", 31004, "--cgroups=split --log-driver journald", "exec")
    said = host.run("sglang-watchdog", "setup", "--unit", unit, "--dry-run").stdout
    wait_for(lambda: host.journal("-u", unit).count("fired up and ready to roll") == 2, LONG, "the line comes twice")
    assert f"{unit}: each of its lines comes twice" in said, said
    host.run("systemctl", "stop", unit)

    unit = install(host, "once", 31006, "--cgroups=split --log-driver=passthrough", "exec")
    wait_for(lambda: "fired up and ready to roll" in host.journal("-u", unit), LONG, "the line comes")
    said = host.run("sglang-watchdog", "setup", "--unit", unit, "--dry-run").stdout
    assert "sglang-once.service: taken from its process" in said and "comes twice" not in said
    assert host.journal("-u", unit).count("fired up and ready to roll") == 1
    host.run("systemctl", "stop", unit)


def test_docker_in_a_slice_of_its_own_is_found_and_watched(host: Box) -> None:
    host.write("/etc/docker/daemon.json", json.dumps(DOCKERD))
    host.run("systemctl", "start", "docker.service")
    host.run("sh", "-c", IMAGE.replace("podman", "docker"))
    unit = "sglang-dock.service"
    text = UNIT.format(type="exec", name="dock", options="{options}", run=RUN, server=SERVER.format(name="dock", port=31005))
    text = text.replace("podman", "docker").replace("--replace ", "")
    host.unit(unit, text.format(options=""))
    said = refusal(host, "--unit", unit)
    assert "add" not in said and "with --cgroup-parent=sglang-dock.slice" in said, said

    host.unit(unit, text.format(options="--cgroup-parent=sglang-dock.slice"))
    host.run("systemctl", "start", unit)
    wait_for(lambda: ":31005" in host.run("ss", "-tln").stdout, LONG, f"it listens\n{host.journal('-u', unit)}")
    said = host.run("sglang-watchdog", "setup", "--unit", unit, "--stacks", "--yes").stdout
    assert "sglang-dock.service: taken from its process" in said
    assert 'cgroup = "/sglang.slice/sglang-dock.slice"' in said and "comes twice" not in said
    wait_for(lambda: well(host, "dock"), LONG, "the server is well")
    cured(host, unit, "dock")
    stacks = "ls -d /var/lib/sglang-watchdog/dock/incidents/*/stacks.txt | tail -n 1"
    told = host.run("sh", "-c", f"cat $({stacks})").stdout
    assert re.search(r"== Python stacks of \d+\nthread ", told), told
    host.run("systemctl", "stop", unit)


def test_the_package_was_built_for_this_root() -> None:
    assert (
        subprocess.run(["dpkg-deb", "-f", DEB, "Package"], capture_output=True, text=True, check=True).stdout.strip()
        == "sglang-watchdog"
    )
