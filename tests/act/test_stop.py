"""A stop that we ordered: when it is ended by force, what is told of it, and whether an engine is left to wait for."""

import pytest

from watchdog.act.stop import Stop, engine_left
from watchdog.observation import Proc, Procs

LIFE, OTHER = "a" * 32, "b" * 32


def look(*states: str, t: float = 50.0, inv: str = LIFE) -> Procs:
    return Procs(t=t, inv=inv, procs=[Proc(pid=n, name="sglang::scheduler", state=state) for n, state in enumerate(states)])


@pytest.mark.parametrize(
    ("seen", "known", "left"),
    [
        (look("S", "Z", "Z"), {1, 2}, False),  # the main process waits for connections to close
        (look("S"), {1, 2}, False),
        (look("S", "Z", "D"), {1, 2}, True),  # its memory is being unpinned
        (look("S", "S", "Z"), {1, 2}, True),
        (look("S", "T", "Z"), {1, 2}, True),
        (look("S", "Z", "Z", t=9.0), {1, 2}, True),  # from before the stop
        (look("S", inv=OTHER), {1, 2}, True),
        (look("S"), set(), True),  # never seen, never missed
        (look(), {1, 2}, True),  # nothing could be seen
        (None, {1, 2}, True),
    ],
)
def test_whether_an_engine_process_is_left(seen: Procs | None, known: set[int], left: bool) -> None:
    assert engine_left(seen, known, LIFE, 10.0) is left


def test_what_is_told_of_a_stop() -> None:
    stop = Stop(began=100.0, end_at=280.0)
    assert stop.said(112.0) == "for 12 s; SIGKILL in 2 min 48 s if it has not ended by then"
    assert stop.see_gone(120.0) and not stop.see_gone(125.0)
    assert stop.said(125.0) == "for 25 s; its engine is gone, SIGKILL in 25 s if it has not ended by then"
    stop.killed_at = 150.0
    assert stop.said(154.0) == "for 54 s; SIGKILL was sent 4 s ago"


@pytest.mark.parametrize(("gone_at", "end_at"), [(120.0, 150.0), (270.0, 280.0)])
def test_an_engine_that_is_gone_is_waited_for_no_longer_than_before(gone_at: float, end_at: float) -> None:
    stop = Stop(began=100.0, end_at=280.0)
    stop.see_gone(gone_at)
    assert stop.end_at == end_at


@pytest.mark.parametrize(("closing_at", "end_at"), [(120.0, 125.0), (140.0, 145.0), (148.0, 150.0)])
def test_of_a_gone_engine_whoever_is_still_connected_is_answered_by_nobody(closing_at: float, end_at: float) -> None:
    stop = Stop(began=100.0, end_at=280.0)
    assert not stop.see_closing(110.0), "an engine that is there may answer yet"
    stop.see_gone(120.0)
    assert stop.see_closing(closing_at) and not stop.see_closing(closing_at + 1)
    assert stop.end_at == end_at


def test_where_we_may_not_kill_no_sigkill_is_promised() -> None:
    may = True
    stop = Stop(began=100.0, end_at=280.0, may_kill=lambda: may)
    assert "SIGKILL in 2 min" in stop.said(160.0)
    may = False
    assert stop.said(160.0) == "for 1 min; we send no SIGKILL in this mode"
