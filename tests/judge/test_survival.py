"""Lines that servers die of, printed by one that lives; and batches that were never seen."""

import pytest

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.verdict import Action
from watchdog.observation import Log, Observation, Probe, Procs, Unit

INV = "a" * 32


def up(t: float = 0.0) -> Unit:
    return Unit(t=t, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=-7200.0)


def actions(seen: list[Observation]) -> list[tuple[Action, str]]:
    engine = Engine(Settings())
    found = [e.intent for x in sorted(seen, key=lambda x: x.t) for e in engine.observe(x) if e.intent is not None]
    return [(i.action, i.reason) for i in found]


def health(t: float, outcome: str = "ok") -> Probe:
    status = {"ok": 200, "status": 503}[outcome]
    return Probe(
        t=t, inv=INV, probe="health", outcome=outcome, status=status, total_s=1.0 if outcome == "ok" else 20.0, limit_s=25.0
    )


def chat(t: float) -> Probe:
    return Probe(t=t, inv=INV, probe="chat", outcome="timeout", total_s=30.0, limit_s=30.0)


@pytest.mark.parametrize("line", ["Killed", "RuntimeError: CUDA error: unspecified launch failure"])
def test_one_line_of_a_server_that_answers_on_is_no_death(line: str) -> None:
    seen: list[Observation] = [up(), Log(t=10.0, inv=INV, message=line), *(health(20.0 * n) for n in range(1, 40)), up(900.0)]

    assert not [a for a in actions(seen) if a[0] in (Action.RESTART, Action.WITHHOLD)]


def test_one_line_of_an_idle_server_that_is_not_asked_proves_nothing() -> None:
    seen: list[Observation] = [
        up(),
        Log(t=10.0, inv=INV, message="Killed"),
        *(Procs(t=10.0 * n, inv=INV) for n in range(60)),
        up(900.0),
    ]

    assert not [a for a in actions(seen) if a[0] is Action.RESTART]


def test_a_hang_after_a_line_that_was_outlived_is_still_found() -> None:
    batch = "[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 4, #token: 900, token usage: 0.10, #queue-req: 0, "
    seen: list[Observation] = [up(), Log(t=10.0, inv=INV, message="Killed")]
    seen += [Log(t=float(t), inv=INV, message=batch) for t in range(12, 300, 4)]
    seen += [health(float(t), "status") for t in range(330, 500, 30)]
    seen += [up(600.0)]

    assert (Action.RESTART, "SchedulerHung") in actions(seen)


def test_batches_that_were_never_seen_are_not_missed() -> None:
    only_chats: list[Observation] = [up(), *(chat(40.0 * n) for n in range(1, 20)), up(900.0)]
    with_health = [*only_chats, *(health(41.0 * n, "status") for n in range(1, 20))]

    assert not [a for a in actions(only_chats) if a[0] is Action.RESTART]
    assert (Action.RESTART, "SchedulerHung") in actions(with_health)


SIGQUIT = "[2026-01-14 02:00:00] Received sigquit from a child process. It usually means the child failed."
FATAL = ("Killed", "[2026-01-14 02:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):", SIGQUIT)
ANSWERED = 'INFO:     10.0.0.5:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
BATCH = "[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 4, #token: 900, token usage: 0.10, #queue-req: 0, "
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


def first_look(*past: tuple[float, str], then: list[Observation] | None = None) -> tuple[Engine, list[str]]:
    """A daemon that starts now, without state, and reads what was written before; what it said of the processes, or ordered."""
    engine, said = Engine(Settings()), []
    for x in [up(0.0), *(Log(t=0.5, at=at, inv=INV, message=message) for at, message in past), *(then or [])]:
        for e in engine.observe(x):
            if e.condition is not None and e.condition.type == "ProcessesPresent":
                said.append(e.condition.reason)
            if e.intent is not None:
                said.append(f"{e.intent.action} {e.intent.reason}")
    return engine, said


@pytest.mark.parametrize("line", FATAL)
@pytest.mark.parametrize("after", [BATCH, ANSWERED, READY, None])
def test_a_line_from_long_before_we_looked_is_no_death(line: str, after: str | None) -> None:
    """The server is up minutes later: it has outlived it, whatever of that is in the log."""
    past = [(-3600.0, READY), (-372.0, line), *([(-150.0, after)] if after else [])]
    engine, said = first_look(*past, then=[Procs(t=1.0, inv=INV), *(health(10.0 * n) for n in range(1, 20)), up(200.0)])

    assert not [s for s in said if s in ("Dying", "DyingNeverEnded") or s.startswith(("restart", "diagnose"))], said
    assert engine.facts.life.dying_at is None


@pytest.mark.parametrize("line", FATAL)
def test_a_line_from_just_before_we_looked_counts_once_something_fails(line: str) -> None:
    well = [health(10.0 * n) for n in range(1, 20)]
    _, said = first_look((-3600.0, READY), (-8.0, line), then=[*well, up(200.0)])
    assert not [s for s in said if s.startswith(("restart", "diagnose"))] and "Dying" not in said, said

    ill = [health(10.0 * n, "status") for n in range(1, 20)]
    _, said = first_look((-3600.0, READY), (-8.0, line), then=[*ill, up(200.0)])
    assert {"diagnose FatalLine", "restart DyingNeverEnded"} <= set(said), said


def test_a_hang_is_found_though_an_old_fatal_line_is_in_the_log() -> None:
    ill = [health(20.0 * n, "status") for n in range(1, 20)]
    _, said = first_look((-3600.0, READY), (-372.0, SIGQUIT), (-150.0, BATCH), then=[*ill, up(500.0)])
    assert "restart SchedulerHung" in said, said


@pytest.mark.parametrize(("after", "survived"), [(ANSWERED, True), (READY, True), ("INFO:     Waiting.", False)])
def test_what_the_log_says_long_after_a_fatal_line_counts_as_survival(after: str, survived: bool) -> None:
    engine = Engine(Settings())
    for x in (up(), Log(t=10.0, inv=INV, message=FATAL[0]), Log(t=60.0, inv=INV, message=after)):
        list(engine.observe(x))
    assert engine.facts.life.dying_at == 10.0  # so soon it may still be on its way out
    list(engine.observe(Log(t=140.0, inv=INV, message=after)))
    assert (engine.facts.life.dying_at is None) is survived


def test_what_was_outlived_before_we_looked_is_not_diagnosed() -> None:
    past = [(-3600.0, READY), (-30.0, FATAL[1]), *((-30.0 + n, BATCH) for n in range(1, 29))]
    _, said = first_look(*past, then=[Procs(t=1.0, inv=INV), up(5.0), up(30.0), up(200.0)])
    assert not [s for s in said if s == "Dying" or s.startswith(("restart", "diagnose"))], said
