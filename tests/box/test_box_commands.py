"""The commands at work: a stand-in server under a real systemd, first without a daemon and then with one."""

import json
import sys
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

import pytest

from tests.box.box import Box, wait_for

ROOT = Path(__file__).parents[2]
CONFIG = "/etc/wd/config.toml"
FAULTS = "/run/standin-faults"
SERVER = f"""
[Service]
Environment=PYTHONPATH={ROOT}
ExecStart={sys.executable} -m watchdog standin --port 30000 --tp-size 2 --enable-hierarchical-cache --hicache-ratio 4 \
 --speculative-algorithm EAGLE3 --enable-metrics --sglang-version 0.5.23 --start-seconds 5 --served-model-name kimi-k2.5 \
 --fault-dir {FAULTS} --time-scale 0.05 --watchdog-timeout 7200 --host-pool-mib 64
Restart=always
KillMode=mixed
TimeoutStopSec=180
LimitMEMLOCK=infinity
LogRateLimitIntervalSec=1s
LogRateLimitBurst=1000000
"""
WATCHDOG = f"""
[Service]
Type=notify
Environment=PYTHONPATH={ROOT}
ExecStart={sys.executable} -m watchdog run --config {CONFIG}
StateDirectory=sglang-watchdog
RuntimeDirectory=sglang-watchdog
"""
SETTINGS = """
[daemon]
tick_s = 0.5
[[servers]]
name = "kimi"
unit = "sglang-kimi.service"
[servers.probe]
chat_interval_s = 2
health_interval_s = 3
"""
BROKEN = """
[daemon]
runtime_dir = "/run/none"
[[servers]]
name = "broken"
unit = "broken.service"
mode = "observe"
[[servers]]
name = "absent"
unit = "absent.service"
base_url = "http://127.0.0.1:30009"
"""


@pytest.fixture(scope="module")
def host(box: Box) -> Box:
    """The box with a server that is not started yet, and a unit that fails."""
    box.unit("sglang-kimi.service", SERVER)
    box.unit("sglang-watchdog.service", WATCHDOG)
    box.unit("broken.service", "[Service]\nExecStart=/bin/false\n")
    box.write(CONFIG, SETTINGS)
    box.write("/etc/wd/broken.toml", BROKEN)
    return box


def wd(host: Box, *words: str, config: str = CONFIG, timeout: float = 60) -> "CompletedProcess[str]":
    done = host.run(
        "env",
        f"PYTHONPATH={ROOT}",
        sys.executable,
        "-m",
        "watchdog",
        *words,
        "--config",
        config,
        check=False,
        timeout=timeout,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "this is a fault of sglang-watchdog" not in done.stderr
    return done


def findings(host: Box, *more: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status of `verify`, and its findings by name."""
    done = wd(host, "verify", "--json", *more)
    assert done.stderr == ""
    report = json.loads(done.stdout)["servers"][0]
    return done.returncode, {item["item"]: item for item in report["items"]}


def test_a_unit_that_fails_and_one_that_is_not_there(host: Box) -> None:
    host.run("systemctl", "start", "broken.service")
    done = wd(host, "wait", "--server", "broken", "--timeout", "30", config="/etc/wd/broken.toml")
    assert (done.returncode, "broken: broken.service has failed (exit-code)" in done.stderr) == (1, True), done
    done = wd(host, "wait", "--server", "absent", "--timeout", "30", config="/etc/wd/broken.toml")
    assert (done.returncode, "systemd knows no absent.service" in done.stderr) == (1, True), done
    done = wd(host, "check-config", config="/etc/wd/broken.toml")
    assert (done.returncode, "servers[absent].unit = absent.service: systemd knows no such unit" in done.stdout) == (0, True), (
        done
    )


def test_a_server_that_is_not_started(host: Box) -> None:
    status, items = findings(host)
    assert status == 1
    assert (items["state"]["verdict"], items["port"]["verdict"], items["health"]["verdict"]) == ("bad", "bad", "bad")
    done = wd(host, "wait", "--timeout", "1.5")
    assert (done.returncode, "kimi: not verified within 1.5 s" in done.stderr) == (3, True), done
    done = wd(host, "status")
    assert (done.returncode, "no daemon listens on /run/sglang-watchdog/control.sock" in done.stderr) == (2, True), done


def test_wait_without_a_daemon(host: Box) -> None:
    command = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "watchdog", "wait", "--timeout", "60", "--config", CONFIG)
    with host.popen(*command, stdout=PIPE) as waiting:
        assert waiting.stdout is not None
        assert "kimi: " in waiting.stdout.readline()
        host.run("systemctl", "start", "sglang-kimi.service")
        told = waiting.stdout.read()
    assert waiting.returncode == 0, told
    assert told.endswith("kimi: verified\n")
    phases = [line for line in told.splitlines() if " of 7)" in line]
    assert len(phases) >= 2


def test_verify_without_a_daemon(host: Box) -> None:
    status, items = findings(host)
    assert {name: item["seen"] for name, item in items.items() if item["verdict"] not in ("ok", "odd")} == {}
    assert status == 0
    assert items["canary"]["seen"].startswith("a sensible answer")
    assert items["processes"]["seen"].startswith("2 schedulers, 1 detokenizer")
    assert "159277 tokens" in items["KV cache"]["seen"]
    assert "from 2 ranks" in items["host pool"]["seen"]
    assert (items["LogRateLimit"]["verdict"], items["LogRateLimit"]["seen"]) == ("ok", "1000000 lines in 1 s")
    assert items["restarts"]["seen"].startswith("none, 1 start within a day")
    done = wd(host, "verify")
    assert done.stdout.splitlines()[-1].startswith("kimi ") or "does not change the exit status" in done.stdout


def test_verify_finds_what_the_rate_limit_would_swallow(host: Box) -> None:
    """LogRateLimitIntervalSec=0 is what people write to turn the limit off, and it does not."""
    host.write(
        "/etc/systemd/system/sglang-kimi.service.d/limit.conf", "[Service]\nLogRateLimitIntervalSec=0\nLogRateLimitBurst=0\n"
    )
    host.run("systemctl", "daemon-reload")
    status, items = findings(host)
    assert (status, items["LogRateLimit"]["verdict"]) == (0, "odd")
    assert findings(host, "--strict")[0] == 1
    host.run("rm", "-r", "/etc/systemd/system/sglang-kimi.service.d")
    host.run("systemctl", "daemon-reload")


def test_with_a_daemon(host: Box) -> None:
    host.run("systemctl", "start", "sglang-watchdog.service")
    done = wd(host, "wait", "--timeout", "40")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "kimi: verified"), done
    wait_for(lambda: wd(host, "status").returncode == 0, 20, "status says that it is well")
    done = wd(host, "status")
    assert len(done.stdout.splitlines()) == 10
    assert "\x1b" not in done.stdout
    told = json.loads(wd(host, "status", "--json").stdout)
    assert (told["servers"][0]["well"], told["servers"][0]["verified"], told["servers"][0]["wrong"]) == (True, True, [])
    assert "UnitActive holds" in wd(host, "explain").stdout
    assert wd(host, "status", "--server", "glm").stderr.count("\n") == 1


def test_health_is_asked_by_the_daemon_alone(host: Box) -> None:
    before = host.journal("-u", "sglang-kimi.service").count('"GET /health HTTP')
    counted = json.loads(wd(host, "status", "--json").stdout)["servers"][0]["observations"]["probe"]
    status, items = findings(host)
    assert (status, items["health"]["verdict"]) == (0, "ok"), items["health"]
    after = json.loads(wd(host, "status", "--json").stdout)["servers"][0]["observations"]["probe"]
    asked = host.journal("-u", "sglang-kimi.service").count('"GET /health HTTP') - before
    assert asked <= after - counted


def test_a_hang_behind_a_200(host: Box) -> None:
    wd(host, "pause", "1h", "--reason", "a drill")
    host.write(f"{FAULTS}/hang-behind-200", "{}")
    status, items = findings(host, "--limit", "3")
    host.run("rm", "-f", f"{FAULTS}/hang-behind-200")
    assert (status, items["canary"]["verdict"]) == (1, "bad"), items["canary"]
    assert "no answer (at most the beginning of its headers)" in items["canary"]["seen"]


def test_a_persons_words(host: Box) -> None:
    done = wd(host, "pause", "2h", "--reason", "new weights\x1b[2J")
    assert (done.returncode, done.stdout) == (0, "kimi: paused for 2 h\n")
    said = wd(host, "status").stdout
    assert "paused: new weights�[2J" in said
    assert "Forbidden now: paused by a person" in wd(host, "explain").stdout
    assert wd(host, "resume").stdout == "kimi: resumed\n"
    assert "paused" not in wd(host, "status").stdout.split("last")[0]
    assert wd(host, "acknowledge", "--json").stdout.count('"acknowledge"') == 1
    assert wd(host, "repaired").stdout == "kimi: noted as repaired\n"
    assert "operator" in wd(host, "history").stdout
    assert wd(host, "incident", "list").returncode == 0


def watched(host: Box, *more: str) -> str:
    """What `watch` prints in two seconds, ended with Ctrl-C."""
    watch = (sys.executable, "-m", "watchdog", "watch", "--interval", "0.2", "--config", CONFIG, *more)
    done = host.run("timeout", "-s", "INT", "2", "env", f"PYTHONPATH={ROOT}", *watch, check=False)
    assert done.stderr == ""
    return done.stdout


def test_watch_without_a_terminal_prints_changes(host: Box) -> None:
    assert " kimi: " in watched(host)
    objects = [json.loads(line) for line in watched(host, "--json").splitlines()]
    assert {o["servers"][0]["name"] for o in objects} == {"kimi"}


def test_somebody_who_may_not_ask(host: Box) -> None:
    host.let_others_in()
    command = f"cd / && PYTHONPATH={ROOT} exec setpriv --reuid=65534 --clear-groups {sys.executable} -m watchdog status"
    done = host.run("sh", "-c", command, check=False)
    assert done.returncode == 2
    assert "may not be used: run this as root or as the daemon's user" in done.stderr
    assert done.stderr.count("\n") == 1
