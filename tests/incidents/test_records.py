"""Flight records of a real SGLang 0.5.23 under a real systemd (on a CPU, with a tiny model), judged as a person on call would.

They are cut down to what matters, with the times, lines and figures as they were.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from watchdog.judge.decide import stand_down
from watchdog.judge.engine import Engine
from watchdog.judge.facts.life import Phase
from watchdog.replay import Record, engine_of, settings_of

RECORDS = Path(__file__).with_name("records")


class Judged:
    """A record, judged to its end."""

    def __init__(self, name: str) -> None:
        record = Record(RECORDS / f"{name}.jsonl")
        self.engine: Engine = engine_of(record, settings_of(record.header))
        self.events: list[dict[str, Any]] = []
        self.end = 0.0
        for x in record:
            self.end = x.t
            self.events += [e.as_line() for e in self.engine.observe(x)]
        assert record.skipped.count == 0

    def intents(self, *actions: str) -> list[tuple[str, str, int]]:
        """Action, reason and second of what was decided."""
        return [(e["action"], e["reason"], round(e["t"])) for e in self._intents(actions)]

    def words(self, *actions: str) -> str:
        """What was said with it."""
        return "\n".join(f"{e['message']} {e['advice']}" for e in self._intents(actions))

    def conditions(self, kind: str) -> list[str]:
        """The messages of one condition."""
        return [e["message"] for e in self.events if e.get("type") == kind]

    def _intents(self, actions: Iterable[str]) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == "intent" and e["action"] in actions]


def test_a_scheduler_that_is_stopped_is_restarted_and_the_stop_is_named() -> None:
    """SIGSTOP at 15 s; found 69 s later, with the limit of that day (60 s)."""
    j = Judged("scheduler-stopped")

    assert j.intents("restart", "withhold") == [("restart", "SchedulerHung", 85)]
    assert "sglang::scheduler (pid 151) is stopped by a signal (state T)" in j.words("restart")
    advice = [e["advice"] for e in j.events if e.get("action") == "restart"]
    assert advice == [
        "Find out who holds the process (a debugger, `kill -STOP`): that is no fault of the server, and may come again."
    ]


def test_a_detokenizer_that_is_stopped_is_restarted_and_the_stop_is_named() -> None:
    """SIGSTOP at 15 s, under traffic: /health is 200 most of the time, the scheduler goes on, and nobody is answered."""
    j = Judged("detokenizer-stopped")

    assert j.intents("restart", "withhold", "alert") == [("restart", "NothingReachesUsers", 305)]
    assert "sglang::detokenizer (pid 2544) is stopped by a signal (state T)" in j.words("restart")
    assert "Find out who holds the process" in j.words("restart")


def test_our_own_restart_is_no_stop_that_a_person_asked_for() -> None:
    """The record has the restart itself: a stop of 83 s, and a moment in which the unit is down."""
    told = Judged("scheduler-stopped").conditions("UnitActive")

    assert "The unit is stopping: the watchdog restarts it." in told
    assert "The unit is down: the watchdog restarts it." in told
    assert not [message for message in told if "person" in message]


def test_a_scheduler_that_exits_with_0_is_restarted_within_seconds() -> None:
    """SGLang does not notice it, and answers nobody."""
    assert Judged("scheduler-exits-0").intents("restart", "withhold") == [("restart", "ProcessGone", 25)]


def test_each_death_is_told_and_none_that_systemd_repairs_is_restarted() -> None:
    """An exception, a scheduler and a detokenizer that are killed, within seven minutes; the last takes SGLang 66 s to end."""
    j = Judged("three-deaths")

    assert j.intents("restart", "withhold") == []
    assert [reason for _, reason, _ in j.intents("alert")] == ["ServerDied"] * 3
    for cause in ("CUDA error: an illegal memory access", "scheduler_0 (pid=981) crashed", "detokenizer (pid=1242) crashed"):
        assert cause in j.words("alert")
    told = [e for e in j.events if e.get("action") == "alert"]
    assert not [e["message"] for e in told if "ago" in e["message"]], "it is sent, repeated and taken back later"
    assert ["SIGKILL" in e["advice"] for e in told] == [False, True, True]


def test_a_share_of_memory_that_is_too_small_is_to_be_raised() -> None:
    """The server's own words say so; the usual advice after an out-of-memory error is the opposite."""
    j = Judged("share-too-small")

    assert [reason for _, reason, _ in j.intents("restart", "withhold")] == ["SameEarlyDeath"]
    assert "Raise --mem-fraction-static" in j.words("withhold").split("”")[-1]


def test_two_long_prefills_are_waited_for() -> None:
    """Two prompts of some 64,000 tokens in one step each, and small requests: /health gives 503 twice, all requests end."""
    j = Judged("long-prefills")

    assert j.intents("restart", "withhold", "alert") == []
    assert any("health gave 503" in message for message in j.conditions("SchedulerProgressing"))


def test_a_full_queue_is_told_as_one_by_users_and_by_our_canary() -> None:
    """--max-queued-requests 2. The canary is streamed: its 503 comes in an event after a 200."""
    j = Judged("queue-full-streamed")

    assert [(action, reason) for action, reason, _ in j.intents("restart", "withhold", "alert")] == [("alert", "QueueFull")]
    assert "requests within two minutes were turned away (503" in j.words("alert")
    assert not [message for message in j.conditions("SchedulerProgressing") if "chat gave 503" in message]
    assert not [message for message in j.conditions("AnswersSane") if "failed" in message]


def test_a_job_whose_end_was_missed_does_not_make_us_stand_down_for_ever() -> None:
    """systemd's own restart, taken for somebody else's job that never ended; the server served again after two minutes."""
    j = Judged("job-heard-late")

    assert j.engine.facts.life.phase() is Phase.SERVING
    assert stand_down(j.engine.facts, j.end) is None


def test_a_start_that_dies_at_once_five_times_is_not_restarted_in_vain() -> None:
    """An import that fails, RestartSec=1; of the fourth death the last line came before systemd's word of its life."""
    j = Judged("start-limit-at-once")

    assert [(action, reason) for action, reason, _ in j.intents("restart", "withhold", "alert")] == [
        ("alert", "ServerDied"),
        ("withhold", "SameEarlyDeath"),
    ]
    assert "5 times in a row" in next(v.message for v in j.engine.verdicts if v.type == "Restartable")
    assert "its start limit is hit" in j.conditions("UnitActive")[-1]


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_records_are_small_and_tell_of_no_place(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 130_000
    assert "realsgl" not in text
    assert "/root" not in text
