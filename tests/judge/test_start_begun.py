"""A start in which nothing moves: stuck if the server has begun, and only told if what runs is what comes before it."""

import pytest

from watchdog.config import Judging
from watchdog.judge import startup
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Want
from watchdog.observation import Log, Proc, Procs, Unit

INV = "a" * 32
DOCKER = "/usr/bin/docker run --rm lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model-path /m"


@pytest.mark.parametrize(
    ("names", "line", "reason", "want"),
    [
        ([DOCKER], "d9802f032d67: Download complete", "StartNotBegun", Want.ALERT),
        ([], "d9802f032d67: Download complete", "StartNotBegun", Want.ALERT),
        (["/bin/bash /opt/serve.sh", "wget -q https://models/x"], "fetching", "StartNotBegun", Want.ALERT),
        ([DOCKER], "[2026-01-14 02:00:05] Load weight begin. avail mem=138.48 GB", "StartStuck", Want.RESTART),
        ([DOCKER, "python3"], "x", "StartStuck", Want.RESTART),
        (["python3 /opt/serve.py"], "x", "StartStuck", Want.RESTART),
        (["/bin/bash serve.sh", "/venv/bin/sglang serve --model-path /m"], "x", "StartStuck", Want.RESTART),
    ],
)
def test_only_what_has_begun_is_stuck(names: list[str], line: str, reason: str, want: Want) -> None:
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    f.see(Log(t=5.0, inv=INV, message=line))
    for t in range(10, 1300, 10):
        procs = [Proc(pid=7 + n, ppid=1, name=name, state="S", cpu_s=1.0) for n, name in enumerate(names)]
        f.see(Procs(t=float(t), inv=INV, procs=procs, cpu_s=1.0))
    v = startup.judge(f, Judging(), 1300.0)
    assert (v.reason, [call.want for call in v.calls]) == (reason, [want])
