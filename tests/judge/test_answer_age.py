"""What a server says is known only as long as somebody looked at it."""

import pytest

from watchdog.config import Judging
from watchdog.judge import answers
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Status
from watchdog.observation import Answer, Log, Probe, Unit

INV = "a" * 32
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


def answered(*moments: float) -> Facts:
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    f.see(Log(t=1.0, inv=INV, message=READY))
    for t in moments:
        f.see(
            Probe(t=t, inv=INV, probe="chat", outcome="ok", status=200, total_s=0.2, limit_s=60.0, answer=Answer(text="Paris."))
        )
    return f


@pytest.mark.parametrize(
    ("moments", "known_until"),
    [((60.0, 120.0), 120.0 + 1800.0), ((60.0, 3660.0, 7260.0), 7260.0 + 7200.0)],
    ids=["asked each minute", "asked each hour"],
)
def test_an_old_answer_says_nothing_of_now(moments: tuple[float, ...], known_until: float) -> None:
    f = answered(*moments)
    before, after = (answers.judge(f, Judging(), known_until + s) for s in (-1.0, 1.0))

    assert (before.status, before.reason) == (Status.TRUE, "Sane")
    assert (after.status, after.reason, after.calls) == (Status.UNKNOWN, "AnsweredLongAgo", ())
    assert "ago" in after.message
