"""A start that somebody ordered and systemd refused; a stop that only SIGKILL ended."""

from collections.abc import Iterable

import pytest
from msgspec import structs

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.verdict import Action, Event, Intent
from watchdog.observation import Job, Log, Observation, Proc, Procs, Unit

OLD, NEW = "a" * 32, "b" * 32
READY = Log(t=1.0, inv=OLD, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!")


def unit(t: float, active: str, sub: str, *, inv: str = OLD, pid: int | None = None, result: str = "success") -> Unit:
    return Unit(
        t=t,
        inv=inv,
        load_state="loaded",
        active_state=active,
        sub_state=sub,
        result=result,
        main_pid=pid,
        since=0.0,
        timeout_stop_s=60.0,
        restart="on-failure",
    )


UP = unit(0.0, "active", "running", pid=7)
DOWN = unit(130.0, "inactive", "dead")
STOPPING = unit(100.0, "deactivating", "stop-sigterm", pid=7)


def job(t: float, phase: str, kind: str, result: str | None = None, *, mine: bool = False) -> Job:
    return Job(t=t, inv=OLD, phase=phase, job=kind, result=result, mine=mine)


def line(t: float, text: str, inv: str = OLD) -> Log:
    return Log(t=t, inv=inv, message=f"sglang.service: {text}", pid=1, ident="systemd", origin="systemd")


def intents(*seen: Observation, ready: bool = True, until: float = 400.0) -> list[Intent]:
    engine = Engine(Settings())
    found: list[Event] = []

    def take(events: Iterable[Event]) -> None:
        found.extend(events)

    for x in (UP, *((READY,) if ready else ()), *seen):
        take(engine.observe(x))
    take(engine.tick(until))
    return [e.intent for e in found if e.intent is not None and e.intent.action is not Action.DIAGNOSE]


def told(*seen: Observation, ready: bool = True) -> list[tuple[str, str]]:
    return [(str(i.action), i.reason) for i in intents(*seen, ready=ready)]


STOP = (job(100.0, "new", "stop"), STOPPING, DOWN, job(130.0, "removed", "stop", "done"))
RESTART = (job(100.0, "new", "restart"), STOPPING)
DIED = (unit(130.0, "failed", "failed", result="exit-code"),)


@pytest.mark.parametrize(
    ("kind", "result", "words"),
    [
        ("start", "dependency", "requires could not be started"),
        ("", "dependency", "requires could not be started"),
        ("start", "failed", "could not start it"),
        ("start", "timeout", "JobTimeoutSec"),
        ("start", "assert", "'assert'"),
    ],
)
def test_a_start_that_is_refused_after_a_stop_is_told(kind: str, result: str, words: str) -> None:
    """And never followed by a restart, which would be refused alike."""
    said = intents(*STOP, job(300.0, "new", kind), job(300.1, "removed", kind, result))

    assert [(i.action, i.reason) for i in said] == [(Action.ALERT, "StartRefused")]
    assert words in said[0].message
    assert said[0].advice


def test_a_restart_whose_start_is_refused_is_told() -> None:
    limited = unit(130.0, "failed", "failed", result="start-limit-hit")
    said = intents(*RESTART, limited, job(130.0, "removed", "restart", "failed"))

    assert [(i.action, i.reason) for i in said] == [(Action.ALERT, "StartRefused")]
    assert "start limit is hit" in said[0].message
    assert "reset-failed" in str(said[0].advice)


@pytest.mark.parametrize("result", ["canceled", "done", None])
def test_what_was_not_refused_is_not_told(result: str | None) -> None:
    assert told(*STOP, job(300.0, "new", "start"), job(300.1, "removed", "start", result)) == []


def test_a_later_stop_is_the_last_word() -> None:
    refused = (job(300.0, "new", "start"), job(300.1, "removed", "start", "failed"))
    stop = (job(301.0, "new", "stop"), job(301.1, "removed", "stop", "done"))
    assert told(*STOP, *refused, *stop) == []


def test_a_start_that_brought_a_life_was_not_refused() -> None:
    """Its end is a death like any other."""
    died = (unit(301.0, "failed", "failed", inv=NEW, result="exit-code"), job(301.2, "removed", "start", "failed"))
    assert ("alert", "StartRefused") not in told(*STOP, job(300.0, "new", "start"), *died)


def test_what_died_unasked_is_restarted_though_a_start_by_hand_met_the_limit() -> None:
    """Its own restart lifts the limit; against a dependency it can do nothing."""
    start = (job(140.0, "new", "start"),)
    assert ("restart", "DiedUnasked") in told(*DIED, *start, job(140.1, "removed", "start", "failed"))
    refused = told(*DIED, *start, job(140.1, "removed", "start", "dependency"))
    assert ("alert", "StartRefused") in refused
    assert ("restart", "DiedUnasked") not in refused


KILLED = [
    [unit(160.0, "deactivating", "stop-sigkill", pid=7, result="timeout")],
    [unit(160.0, "failed", "failed", result="timeout")],
    [line(160.0, "State 'stop-sigterm' timed out. Killing.")],
    [line(160.0, "State 'final-sigterm' timed out. Killing.")],
    [line(160.0, "stop-sigterm timed out. Killing.")],
    [line(160.0, "State 'stop-sigterm' timed out. Killing."), unit(160.1, "failed", "failed", result="timeout")],
]


@pytest.mark.parametrize("end", KILLED)
@pytest.mark.parametrize("kind", ["stop", "restart"])
def test_a_stop_that_only_sigkill_ended_is_told_once(kind: str, end: list[Observation]) -> None:
    said = intents(job(100.0, "new", kind), STOPPING, *end, unit(170.0, "failed", "failed", result="timeout"))

    assert [(i.action, i.reason) for i in said] == [(Action.ALERT, "StopKilled")]
    assert "after 1 min (TimeoutStopSec= is 1 min)" in said[0].message


@pytest.mark.parametrize(
    "text", ["Killing process 7 (python3) with signal SIGKILL.", "State 'stop-sigterm' timed out. Skipping SIGKILL.", "Stopped."]
)
def test_other_lines_about_a_stop_tell_of_none(text: str) -> None:
    assert told(job(100.0, "new", "stop"), STOPPING, line(160.0, text), unit(161.0, "inactive", "dead")) == []


def test_a_start_ignores_sigterm_and_is_killed_as_ever() -> None:
    assert told(job(100.0, "new", "stop"), STOPPING, *KILLED[5], ready=False) == []


def test_a_stop_that_sigkill_does_not_end_is_not_told_as_one_that_it_ended() -> None:
    left = unit(160.0, "deactivating", "stop-sigkill", pid=7, result="timeout")
    assert told(job(100.0, "new", "stop"), STOPPING, left, line(160.0, "State 'stop-sigterm' timed out. Killing.")) == []


def test_our_own_restart_tells_it_itself() -> None:
    assert told(job(100.0, "new", "restart", mine=True), STOPPING, *KILLED[5]) == []


def test_what_a_crash_leaves_behind_is_no_stop() -> None:
    crash = unit(100.0, "deactivating", "stop-sigterm", result="signal")
    assert ("alert", "StopKilled") not in told(crash, line(160.0, "State 'stop-sigterm' timed out. Killing."))


@pytest.mark.parametrize("mine", [True, False])
def test_the_end_of_a_job_that_was_missed_hides_no_later_death(mine: bool) -> None:
    """A reload makes the source that would tell of it anew."""
    before = (job(100.0, "new", "restart", mine=True), STOPPING) if mine else (job(100.0, "new", "start"),)
    life = NEW if mine else OLD
    up = unit(140.0, "active", "running", inv=life, pid=8)
    died = unit(300.0, "failed", "failed", inv=life, result="exit-code")
    assert ("restart", "DiedUnasked") in told(*before, up, died)


@pytest.mark.parametrize(
    ("sub", "limit_s", "mine", "stuck"),
    [
        ("stop-sigkill", 60.0, False, True),
        ("final-sigkill", None, False, True),
        ("stop-sigterm", 60.0, True, True),  # we have sent it
        ("stop-sigterm", None, False, False),  # TimeoutStopSec=infinity: a drain may last
        ("stop-sigterm", 60.0, False, False),
        ("stop-post", None, False, False),
    ],
)
def test_only_what_sigkill_did_not_end_is_stuck_in_the_kernel(sub: str, limit_s: float | None, mine: bool, stuck: bool) -> None:
    at_work = Procs(t=800.0, inv=OLD, procs=[Proc(pid=7, name="python3", state="S"), Proc(pid=8, name="sglang::scheduler")])
    left = structs.replace(unit(100.0, "deactivating", sub, pid=7), timeout_stop_s=limit_s)
    found = intents(job(99.0, "new", "restart" if mine else "stop", mine=mine), left, at_work, until=900.0)
    assert ("Unkillable" in {i.reason for i in found}) is stuck
