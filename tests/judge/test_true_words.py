"""What is said of a server that is off, stopping or just dying is true at that moment."""

from collections.abc import Iterable
from typing import Any

import pytest

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.explain import explain
from watchdog.judge.facts.deaths import ending
from watchdog.judge.sentence import sentence
from watchdog.judge.verdict import Condition, Status
from watchdog.observation import Answer, Gpu, Log, Observation, Probe, Proc, Procs, Server, Unit

INV = "a" * 32
STAMP = "[2026-01-14 02:00:00]"
READY = f"{STAMP} The server is fired up and ready to roll!"
FATAL = f"{STAMP} Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
GOOD = Answer(text="Paris.", finish_reason="stop")


def unit(t: float, active: str, sub: str, **more: Any) -> Unit:
    return Unit(t=t, inv=INV, load_state="loaded", active_state=active, sub_state=sub, since=0.0, restart="always", **more)


def asked(t: float, outcome: str = "ok") -> Probe:
    status = 200 if outcome == "ok" else None
    return Probe(t=t, inv=INV, probe="chat", outcome=outcome, status=status, total_s=0.1, answer=GOOD if status else None)


UP = unit(0.0, "active", "running", main_pid=1)
SERVED = (UP, Log(t=1.0, inv=INV, message=READY), asked(5.0))
KILLED = {"result": "signal", "exec_main_code": "killed", "exec_main_status": 9}
WAITS = unit(100.0, "activating", "auto-restart", **KILLED)
FAILED = unit(100.0, "failed", "failed", **KILLED)


def seen(*observations: Observation, now: float) -> Engine:
    engine = Engine(Settings())
    events: list[Iterable[Any]] = [list(engine.observe(x)) for x in observations]
    events.append(list(engine.tick(now)))
    return engine


def held(engine: Engine, kind: str) -> Condition:
    return engine.conditions[kind]


def test_a_log_is_not_clean_that_has_told_of_its_end() -> None:
    dying = held(seen(*SERVED, Log(t=99.0, inv=INV, message=FATAL), now=102.0), "LogClean")
    assert (dying.status, dying.reason) == (Status.UNKNOWN, "FatalLine")
    assert "crashed with exit code -9" in dying.message
    assert held(seen(*SERVED, WAITS, now=108.0), "LogClean").message == "The server is off."
    assert held(seen(*SERVED, now=108.0), "LogClean").status is Status.TRUE


def test_nothing_is_accepted_by_a_server_that_is_off_or_refuses() -> None:
    assert held(seen(*SERVED, now=20.0), "ProbesAccepted").message == "The server accepts our requests."
    assert held(seen(*SERVED, FAILED, now=108.0), "ProbesAccepted").message == "The server is off."
    refused = held(seen(*SERVED, asked(30.0, "refused"), asked(35.0, "refused"), now=40.0), "ProbesAccepted")
    assert (refused.status, refused.message) == (
        Status.UNKNOWN,
        "The 2 newest requests did not come to the server (refused, 5 s ago).",
    )


@pytest.mark.parametrize(
    ("end", "now", "words"),
    [
        (
            WAITS,
            108.0,
            "Left to systemd: it ended 8 s ago although nobody asked for it (killed by SIGKILL), and",
        ),
        (FAILED, 108.0, "systemd goes first (Restart=always); if it does not start it, a restart is called for in 12 s."),
        (FAILED, 130.0, "Called for: Down for 30 s although nobody asked for it: killed by SIGKILL"),
    ],
)
def test_an_end_that_nobody_asked_for_is_left_to_systemd_first(end: Unit, now: float, words: str) -> None:
    told = explain(seen(*SERVED, end, now=now), now)["restart"]
    assert any(words in line for line in told), told
    assert not any("an end that nobody asked for" in line for line in told)


def test_how_many_processes_are_to_come_is_not_known_in_a_start() -> None:
    procs = Procs(t=4.0, inv=INV, procs=[Proc(pid=9, name="sglang::scheduler", state="S")])
    assert held(seen(UP, procs, now=5.0), "ProcessesPresent").message == "1 engine process so far, none gone."
    assert held(seen(*SERVED, procs, now=6.0), "ProcessesPresent").message == "1 engine process, all present."


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"speculative_algorithm": None}, "The server does not speculate."),
        ({"speculative_algorithm": "EAGLE"}, "Too few decode batches to compare."),
        ({}, "Too few decode batches to compare."),  # a command line that leaves it out may have been cut
    ],
)
def test_what_does_not_speculate_lacks_no_batches(args: dict[str, Any], words: str) -> None:
    engine = seen(*SERVED, Server(t=6.0, inv=INV, args=args), now=60.0)
    assert held(engine, "SpeculationEffective").message == words


def test_the_time_beside_a_reason_is_that_of_the_reason() -> None:
    """Nothing was known of its answers before it was off either; that was told as "NotServing, for 10 min"."""
    engine = seen(*SERVED, WAITS, now=108.0)
    started = held(engine, "Started")
    assert (started.reason, started.since, started.reason_since) == ("NotStarting", 100.0, 100.0)
    speculation = held(engine, "SpeculationEffective")
    assert (speculation.reason, speculation.since, speculation.reason_since) == ("NotServing", 0.0, 100.0)
    told = {c["type"]: c["since"] for c in explain(engine, 108.0)["conditions"]}
    assert told["SpeculationEffective"] == 100.0


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("no_driver", "No NVIDIA driver is loaded on this host: GPUs are not looked at."),
        ("Unknown Error 9", "GPUs cannot be read: Unknown Error 9."),
        (None, "GPUs cannot be read: no reason was given."),
    ],
)
def test_why_gpus_cannot_be_read_is_told_in_words(error: str | None, words: str) -> None:
    assert held(seen(*SERVED, Gpu(t=6.0, ok=False, error=error), now=7.0), "DevicesHealthy").message == words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("killed with status 9", "killed by SIGKILL"),
        ("dumped with status 6", "killed by SIGABRT with a core dump"),
        ("killed with status 99", "killed by signal 99"),
        ("killed with status None", "killed with status None"),
        ("exited with status 9", "exited with status 9"),
        ("oom-kill", "oom-kill"),
    ],
)
def test_signals_are_named(code: str, words: str) -> None:
    assert ending(code) == words


def decode(t: float) -> Log:
    line = "Decode batch, #running-req: 1, #token: 900, token usage: 0.01, gen throughput (token/s): 40.00, #queue-req: 0"
    return Log(t=t, inv=INV, message=f"{STAMP} {line}")


def look(t: float, state: str) -> Procs:
    return Procs(t=t, inv=INV, procs=[Proc(pid=8, ppid=1, name="sglang::scheduler", state=state)])


def timed_out(t: float) -> Probe:
    return Probe(t=t, inv=INV, probe="chat", outcome="timeout", connect_s=0.01, total_s=20.0, limit_s=20.0)


def test_a_process_that_is_stopped_is_named_first_and_not_called_slow() -> None:
    steps = (*(decode(10.0 + 5.0 * n) for n in range(4)), *(decode(60.0 + 5.0 * n) for n in range(4)))
    before = (*SERVED, look(9.0, "S"), *steps)
    stopped = (look(80.0, "T"), look(90.0, "T"), timed_out(110.0))
    engine = seen(*before, *stopped, now=112.0)
    assert "; sglang::scheduler (pid 8) is stopped by a signal (state T); chat" in held(engine, "SchedulerProgressing").message
    assert held(engine, "RequestsCompleting").reason == "CanariesFail"
    slow = seen(*before, timed_out(110.0), now=112.0)
    assert held(slow, "RequestsCompleting").reason == "TooSlowToTell", "a pause of half a minute was its own"


def test_that_the_next_start_is_under_way_is_told_beside_how_the_others_ended() -> None:
    deaths = []
    for n in range(3):
        up: dict[str, Any] = {"inv": f"{n:032x}", "load_state": "loaded", "restart": "always", "since": 60.0 * n, "n_restarts": n}
        end = {"result": "exit-code", "exec_main_code": "exited", "exec_main_status": 1}
        deaths += [
            Unit(t=60.0 * n, active_state="active", sub_state="running", main_pid=n + 1, **up),
            Log(t=60.0 * n + 19.0, inv=up["inv"], message="ValueError: Loaded weights leave no GPU memory for the KV cache"),
            Unit(t=60.0 * n + 20.0, active_state="activating", sub_state="auto-restart", **end, **up),
        ]
    again = Unit(t=180.0, inv="f" * 32, load_state="loaded", active_state="active", sub_state="running", main_pid=9, since=180.0)
    engine = seen(*deaths, again, now=192.0)
    assert sentence(engine, 192.0).endswith("; the next start has lasted 12 s")
