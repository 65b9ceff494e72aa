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


@pytest.mark.parametrize("line", ["Killed", "CUDA error: unspecified launch failure"])
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
