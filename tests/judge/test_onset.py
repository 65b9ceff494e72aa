"""When the trouble began that a finding names: what it costs counts from there."""

from typing import Any

import pytest

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.onset import onset
from watchdog.judge.verdict import Action, Intent, Severity
from watchdog.observation import Log, Metrics, Probe, Proc, Procs, Unit

INV = "a" * 32
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"
BATCH = "[2026-01-14 02:00:00] Decode batch. #running-req: 1, #token: 10, token usage: 0.00, gen throughput (token/s): 9"
FATAL = "[2026-01-14 02:01:40] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."


def engine(*seen: Any) -> Engine:
    made = Engine(Settings())
    up = Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=0.0, main_pid=1)
    for x in (up, Log(t=1.0, inv=INV, message=READY), *seen):
        list(made.observe(x))
    return made


def failed(began: float, ended: float, probe: str = "chat") -> Probe:
    return Probe(t=ended, inv=INV, probe=probe, outcome="timeout", total_s=ended - began, limit_s=ended - began, connect_s=0.0)


def procs(t: float, *states: str) -> Procs:
    return Procs(t=t, inv=INV, procs=[Proc(pid=9 + n, name="sglang::scheduler", state=s) for n, s in enumerate(states)])


DIED = Unit(
    t=100.0,
    inv=INV,
    load_state="loaded",
    active_state="failed",
    sub_state="failed",
    result="signal",
    exec_main_status=9,
    since=0.0,
)


@pytest.mark.parametrize(
    ("reason", "seen", "since"),
    [
        ("SchedulerSilent", [Log(t=50.0, inv=INV, message=BATCH), failed(60.0, 80.0)], 50.0),
        ("SchedulerHung", [], 1.0),
        ("NothingReachesUsers", [failed(60.0, 120.0), failed(125.0, 185.0)], 60.0),
        ("NothingReachesUsers", [], None),
        ("FatalLine", [Log(t=77.0, inv=INV, message=FATAL)], 77.0),
        ("ProcessGone", [procs(10.0, "S", "S"), procs(20.0, "S", "Z"), procs(30.0, "S", "Z")], 20.0),
        ("ServerDied", [DIED], 100.0),
        ("DiedUnasked", [DIED], 100.0),
        (
            "CanaryErrors",
            [Probe(t=t, inv=INV, probe="chat", outcome="status", status=500, total_s=0.1) for t in (30.0, 60.0)],
            30.0,
        ),
        ("MemoryLow", [], None),
    ],
)
def test_each_finding_names_its_moment(reason: str, seen: list[Any], since: float | None) -> None:
    intent = Intent(action=Action.RESTART, reason=reason, severity=Severity.CRITICAL, message="said")
    assert onset(engine(*seen), intent) == since


def test_a_request_that_ended_after_the_first_failure_was_before_the_trouble() -> None:
    ended = [Metrics(t=t, inv=INV, ok=True, values={"num_requests_total": n}) for t, n in ((90.0, 5.0), (100.0, 6.0))]
    made = engine(failed(60.0, 80.0), *ended, failed(110.0, 170.0))
    intent = Intent(action=Action.RESTART, reason="NothingReachesUsers", severity=Severity.CRITICAL, message="said")
    assert onset(made, intent) == made.facts.work.ended_at == 100.0


def test_what_is_withheld_lasts_since_that_which_calls_for_it() -> None:
    made = engine(DIED)
    list(made.tick(200.0))
    intent = Intent(action=Action.WITHHOLD, reason="DeviceLost", severity=Severity.CRITICAL, message="said")
    assert onset(made, intent) == 100.0
