"""The stacks helper as it is shipped: socket activation, who may ask, what is told, and what its sandbox refuses."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "units"
SOCKET = "/run/sglang-watchdog-stacks.sock"
CONFIG = "/etc/wd/sglang-watchdog.toml"
SECRET = "s3cr3tXYZ0123456789"
LONG = 60.0
SEEN = f"ProtectHome=no\nBindReadOnlyPaths={ROOT}"
"""The checkout may lie in a home, or below /tmp: DynamicUser= has one of its own, whatever PrivateTmp= says (systemd.exec(5))."""

SERVER = Server(
    "sglang",
    32011,
    arguments=f"--traffic 0.5 --tp 2 --api-key {SECRET}",
    service=f"User=daemon\nRuntimeDirectory=faults\nEnvironment=HF_TOKEN={SECRET}",
)
ASK = f"""
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect("{SOCKET}")
s.sendall(sys.argv[1].encode().decode("unicode_escape").encode())
while piece := s.recv(65536):
    sys.stdout.write(piece.decode())
"""
TRY = """
import ctypes, os, socket, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
def tried(what, call):
    try:
        call()
        print(what, "done")
    except OSError as e:
        print(what, e.strerror)
def syscall(*words):
    if libc.syscall(*[ctypes.c_long(word) for word in words]) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
with open(f"/proc/{pid}/maps", "rb") as maps:
    at = int(maps.read(12).partition(b"-")[0], 16)
tried("read", lambda: os.pread(os.open(f"/proc/{pid}/mem", os.O_RDONLY), 8, at))
tried("write", lambda: os.open(f"/proc/{pid}/mem", os.O_WRONLY))
tried("own", lambda: os.open("/proc/self/comm", os.O_WRONLY))
tried("ptrace", lambda: syscall(101, 0x4206, pid, 0, 0))
tried("vm_writev", lambda: syscall(311, pid, 0, 0, 0, 0, 0))
tried("signal", lambda: os.kill(pid, 18))
tried("unix", lambda: socket.socket(socket.AF_UNIX))
tried("file", lambda: os.open("/var/tmp/x", os.O_CREAT | os.O_WRONLY))
tried("etc", lambda: os.open("/etc/x", os.O_CREAT | os.O_WRONLY))
tried("setuid", lambda: os.setuid(0))
"""
# Somebody who may make cgroups of his own, as every user manager may, gives one the name of the server's unit.
PRETENDER = """[Service]
Delegate=yes
ExecStart=/bin/sh -c 'own=$$(sed -n "s/^0:://p" /proc/self/cgroup); top=$$(findmnt -n -t cgroup2 -o TARGET | head -n 1); \\
 mkdir -p "$$top$$own/a.slice/sglang.service" && echo $$$$ > "$$top$$own/a.slice/sglang.service/cgroup.procs" && exec sleep 601'
"""


@pytest.fixture(scope="module")
def host(box: Box) -> Iterator[Box]:
    """A server of another user, the watchdog's user and configuration, and the helper's units, not enabled."""
    box.write("/usr/lib/sysusers.d/sglang-watchdog.conf", (UNITS / "sglang-watchdog.sysusers").read_text())
    box.run("systemd-sysusers")
    box.let_others_in()
    SERVER.install(box)
    for name in ("sglang-watchdog-stacks.socket", "sglang-watchdog-stacks@.service"):
        box.write(f"/etc/systemd/system/{name}", (UNITS / name).read_text())
    box.write(
        "/etc/systemd/system/sglang-watchdog-stacks@.service.d/test.conf",
        f"[Service]\n{SEEN}\nExecStart=\nExecStart={sys.executable} -I -m watchdog.stacks {CONFIG}\n",
    )
    box.write("/etc/systemd/system/other.service", "[Service]\nExecStart=/bin/sleep 602\n")
    box.write("/etc/systemd/system/pretender.service", PRETENDER)
    box.write("/opt/ask.py", ASK)
    box.write("/opt/try.py", TRY)
    yield box


@pytest.fixture(scope="module")
def dog(host: Box) -> Iterator[Watchdog]:
    """The daemon under the shipped unit."""
    dog = Watchdog(host, "sglang-watchdog", [SERVER])
    dog.write(re.sub(r'^unit = "sglang.service"', rf'\g<0>\napi_key_file = "{host_key(host)}"', dog.config, flags=re.MULTILINE))
    host.write("/etc/systemd/system/sglang-watchdog.service", (UNITS / "sglang-watchdog.service").read_text())
    host.write(
        "/etc/systemd/system/sglang-watchdog.service.d/test.conf",
        f"[Service]\nProtectHome=no\nPrivateTmp=no\nExecStart=\nExecStart={COMMAND} run --config {CONFIG}\n",
    )
    host.write("/etc/polkit-1/rules.d/50-sglang-watchdog.rules", (UNITS / "sglang-watchdog.rules").read_text())
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", SERVER.unit, "other.service", "pretender.service", dog.unit)
    wait_for(lambda: dog.view("sglang").get("verified"), LONG, f"verified\n{dog.told()}")
    yield dog


def host_key(box: Box) -> str:
    """A file with the server's API key that the watchdog may read."""
    box.write("/etc/wd/key", SECRET)
    box.run("chmod", "0644", "/etc/wd/key")
    return "/etc/wd/key"


def ask(box: Box, request: str, *who: str) -> str:
    """What the helper answers to these users' request."""
    who = who or ("-u", "sglang-watchdog")
    done = box.run("runuser", *who, "--", sys.executable, "/opt/ask.py", request, check=False)
    return done.stdout + done.stderr


def bundle(dog: Watchdog, *, after: int) -> str:
    """The folder of the bundle after so many others."""
    saved = wait_for(lambda: (e := [x for x in dog.entries(event="evidence") if "saved" in x["message"]])[after:] and e, LONG)
    return saved[-1]["bundle"]


def restarted(dog: Watchdog) -> str:
    """Let the scheduler hang, wait for the cure, and return the folder of the evidence."""
    box = dog.box
    before, life = len(dog.entries(event="evidence")) // 2, box.show(SERVER.unit, "InvocationID")
    SERVER.fault(box, "hang")
    wait_for(lambda: box.show(SERVER.unit, "InvocationID") != life, 2 * LONG, f"a restart\n{dog.told()}")
    folder = bundle(dog, after=before)
    wait_for(lambda: dog.view("sglang").get("verified"), LONG, f"verified\n{dog.told()}")
    return folder


def test_without_the_helper_the_bundle_says_so_in_one_line(dog: Watchdog) -> None:
    folder = restarted(dog)
    summary = dog.box.run("cat", f"{folder}/summary.md").stdout
    assert "* stacks.txt is missing: the stacks helper is not installed (`sglang-watchdog setup --stacks`)\n" in summary
    assert "stacks.txt" not in dog.box.run("ls", folder).stdout


def test_with_the_helper_the_bundle_shows_the_function_that_hangs(dog: Watchdog) -> None:
    box = dog.box
    box.run("systemctl", "start", "sglang-watchdog-stacks.socket")
    assert box.run("stat", "-c", "%a %U:%G", SOCKET).stdout.strip() == "660 root:sglang-watchdog"
    folder = restarted(dog)
    told = box.run("cat", f"{folder}/stacks.txt").stdout
    assert re.search(r"^    Forward\.hold \(\S*forward\.py:\d+\)$\n^    Forward\.run \(", told, re.MULTILINE), told
    assert re.search(r"state S, waits in \w*nanosleep\w*\n    \w*nanosleep", told), told
    assert "Known as: " in told and "sglang::scheduler_TP1" in told
    everything = box.run("sh", "-c", f"cat {folder}/*.txt").stdout
    assert SECRET not in told and SECRET not in everything
    assert "--api-key" not in told


def test_each_request_has_a_process_of_its_own_which_ends_and_nothing_is_stopped(dog: Watchdog) -> None:
    box = dog.box
    life = box.show(SERVER.unit, "InvocationID")
    told = ask(box, r"sglang.service\n")
    assert told.startswith("ok\nStacks of sglang.service: "), told
    assert told.count("== Python stacks of") >= 3 and "py-spy failed" not in told, told
    assert "state T" not in told and "state t" not in told
    units = ("systemctl", "list-units", "--all", "--plain", "--no-legend", "sglang-watchdog-stacks@*")
    wait_for(lambda: not box.run(*units).stdout, 10, "no instance is left")
    assert box.show(SERVER.unit, "InvocationID") == life
    assert dog.view("sglang").get("verified")


def test_only_the_watchdog_and_root_may_ask(dog: Watchdog) -> None:
    box = dog.box
    assert "PermissionError" in ask(box, r"sglang.service\n", "-u", "nobody")
    # In the group he gets through to the helper, which asks the kernel who he is.
    refused = ask(box, r"sglang.service\n", "-u", "nobody", "-g", "sglang-watchdog")
    assert refused == "refused: only root and the user sglang-watchdog may ask, not the user 65534\n"
    assert ask(box, r"sglang.service\n", "-u", "root").startswith("ok\n")


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (r"other.service\n", "other.service is no server of"),
        ("{pid}\\n", "a request is the name of a service unit"),
        (r"../other.service\n", "a request is the name of a service unit"),
        (r"sglang.service\nother.service\n", "a request is the name of a service unit"),
        (r"sglang.service", "no request came"),
        ("x" * 300, "a request is the name of a service unit"),
        (r"\xff\xfe.service\n", "a request is the name of a service unit"),
    ],
)
def test_nothing_but_a_configured_unit_is_answered(dog: Watchdog, request_: str, why: str) -> None:
    pid = dog.box.show("other.service", "MainPID")
    told = ask(dog.box, request_.replace("{pid}", pid))
    assert told.startswith("refused: ") and why in told and told.count("\n") == 1


def test_only_processes_of_the_unit_are_told(dog: Watchdog) -> None:
    box = dog.box
    foreign = [box.show(unit, "MainPID") for unit in ("other.service", "pretender.service")]
    assert "sglang.service" in box.run("cat", f"/proc/{foreign[1]}/cgroup").stdout, "the pretender has a cgroup of that name"
    own = set(box.run("sh", "-c", "pgrep -u daemon").stdout.split())
    told = ask(box, r"sglang.service\n")
    assert set(re.findall(r"^== (\d+) ", told, re.MULTILINE)) == own
    box.run("systemctl", "stop", SERVER.unit)
    assert ask(box, r"sglang.service\n") == "ok\nStacks of sglang.service: 0 processes\n"


def test_a_process_that_is_in_another_unit_is_left_out_even_if_its_pid_was_listed(dog: Watchdog) -> None:
    """As where a pid is given to another process between the listing and the look."""
    box = dog.box
    pid = box.show("other.service", "MainPID")
    code = f"from watchdog.stacks import kernel; print(kernel.look({pid}, '/system.slice/sglang.service'), "
    code += f"kernel.is_in({pid}, '/system.slice/sglang.service'), kernel.look({pid}, '/system.slice/other.service').name)"
    assert box.run(sys.executable, "-c", code).stdout == "None False sleep\n"


def test_its_sandbox_lets_it_read_and_nothing_else(dog: Watchdog) -> None:
    box = dog.box
    shipped = (UNITS / "sglang-watchdog-stacks@.service").read_text()
    pid = box.show("other.service", "MainPID")
    text = re.sub(r"^ExecStart=.*", f"ExecStart={sys.executable} -I /opt/try.py {pid}", shipped, flags=re.MULTILINE)
    text = text.replace("StandardInput=socket", "Type=oneshot\nStandardOutput=file:/run/tried")
    text = text.replace("ProtectHome=yes", SEEN)
    box.unit("trial.service", text.replace("RuntimeMaxSec=20\n", ""))
    box.run("systemctl", "start", "trial.service")
    tried = dict(line.split(" ", 1) for line in box.run("cat", "/run/tried").stdout.splitlines())
    assert tried.pop("read") == "done"
    assert tried.pop("write") == "Permission denied", "the file is its owner's, and the right to go over that is not given"
    assert tried.pop("own") == "Read-only file system", "all of /proc is"
    assert tried.pop("file") == "done", "a /tmp of its own"
    assert tried.pop("etc") == "Read-only file system"
    assert tried == {
        "ptrace": "Operation not permitted",
        "vm_writev": "Operation not permitted",
        "signal": "Operation not permitted",
        "unix": "Address family not supported by protocol",
        "setuid": "Operation not permitted",
    }
