"""Messages in words, the outbox, and the files."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.act.alerts import outbox, wording
from watchdog.act.alerts.notice import Cause, Item, Message, News
from watchdog.act.alerts.outbox import MAX_AGE, MAX_MESSAGES, Outbox, backoff_s
from watchdog.act.alerts.store import Store
from watchdog.judge.verdict import Action, Severity

AT = datetime(2026, 1, 14, 2, 0, tzinfo=UTC)


def item(**more: object) -> Item:
    facts: dict[str, object] = {
        "server": "kimi",
        "unit": "sglang-kimi.service",
        "reason": "DeviceLost",
        "news": News.NEW,
        "severity": Severity.CRITICAL,
        "actions": [Action.ALERT, Action.WITHHOLD],
        "message": "Only 7 of 8 GPUs are there: one has fallen off the bus.",
        "since": AT,
        "evidence": ["7 of 8 GPUs", "kernel: Xid 79", "kernel: Xid 79"],
        "advice": "Reboot or power-cycle the host.",
        "did": "The watchdog holds a restart back: it would not help.",
        "runbook": "https://runbook.example/#devicelost",
    }
    return Item(**(facts | more))  # type: ignore[arg-type]


def message(*items: Item, number: int = 0, created: datetime = AT) -> Message:
    return Message(id=f"{number:016x}", created=created, host="gpu01", items=list(items) or [item()])


def test_a_person_at_night_finds_all_in_it() -> None:
    assert wording.text(message(), AT) == (
        "CRITICAL kimi on gpu01: Only 7 of 8 GPUs are there: one has fallen off the bus.\n"
        "\n"
        "CRITICAL: DeviceLost on kimi (sglang-kimi.service)\n"
        "Only 7 of 8 GPUs are there: one has fallen off the bus.\n"
        "Since: 2026-01-14 02:00:00 UTC\n"
        "Evidence: kernel: Xid 79 (2 times)\n"
        "The watchdog holds a restart back: it would not help.\n"
        "What helps: Reboot or power-cycle the host.\n"
        "More: https://runbook.example/#devicelost\n"
    )


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"news": News.STILL, "since": AT - timedelta(hours=4)}, "STILL CRITICAL kimi on gpu01 after 4 h: "),
        ({"news": News.OVER, "until": AT + timedelta(seconds=210)}, "OVER kimi on gpu01 after 3 min 30 s: "),
        ({"news": News.OVER, "until": AT}, "OVER kimi on gpu01: "),
        ({"news": News.PASSED, "until": AT + timedelta(seconds=9)}, "CAME AND WENT kimi on gpu01 after 9 s: "),
        ({"actions": [Action.RESTART]}, "RESTART kimi on gpu01: "),
        ({"actions": [Action.RESTART], "failed": True}, "RESTART FAILED kimi on gpu01: "),
        ({"actions": [Action.RESTART], "failed": True, "not_made": True}, "NOT RESTARTED kimi on gpu01: "),
        ({"actions": [Action.RESTART], "not_made": True}, "CRITICAL kimi on gpu01: "),
        ({"severity": Severity.WARNING, "actions": [Action.ALERT]}, "WARNING kimi on gpu01: "),
    ],
)
def test_the_first_word(more: dict[str, object], first: str) -> None:
    assert wording.title(message(item(**more))).startswith(first)


def cause_of(reason: str, actions: list[Action], *, failed: str | None = None, refused: bool = False) -> Cause:
    return Cause(
        server="kimi",
        reason=reason,
        actions=actions,
        severity=Severity.CRITICAL,
        message="",
        since=AT,
        renewed=AT,
        open_at=AT,
        failed=failed,
        refused=refused,
    )


@pytest.mark.parametrize(
    ("actions", "reason", "mode", "said"),
    [
        ([Action.RESTART], "SchedulerHung", "act", "restarts the unit now"),
        ([Action.RESTART], "SchedulerHung", "alert", "`systemctl restart sglang-kimi.service` would help"),
        ([Action.RESTART], "SchedulerHung", "observe", "would restart"),
        ([Action.ALERT, Action.WITHHOLD], "DeviceLost", "act", "holds a restart back"),
        ([Action.WITHHOLD], "BudgetSpent", "act", "its restart budget is spent"),
        ([Action.ALERT, Action.PLAN_RESTART], "MemoryLeak", "act", "in a quiet hour"),
        ([Action.ALERT], "QueueFull", "act", "only tells"),
        ([Action.ALERT], "GarbageAnswers", "act", "only tells of this so far; if it lasts"),
        ([Action.ALERT], "GarbageAnswers", "alert", "does not restart for it"),
        ([Action.ALERT], "ServerDied", "act", "leaves this restart to systemd"),
        ([Action.ALERT], "MayNotRestart", "act", "asks for the right every 10 s, and restarts nothing without it"),
        ([Action.ALERT], "MayNotRestart", "observe", "only tells of this"),
        ([Action.ALERT, Action.WITHHOLD], "MayNotRestart", "act", "cannot restart the unit: polkit does not let it"),
        ([Action.ALERT, Action.WITHHOLD], "UnitMissing", "act", "cannot restart a unit that systemd has not loaded"),
        ([Action.ALERT, Action.WITHHOLD], "BusDown", "act", "systemd cannot be asked"),
        ([Action.ALERT], "RestartRefused", "act", "tries again by itself, as long as a restart is called for"),
        ([Action.ALERT], "RestartFailed", "act", "has tried to restart the unit, in vain"),
        ([Action.RESTART], "SchedulerHung", "act", "You need not do anything now: how it ends will be told."),
    ],
)
def test_what_the_watchdog_does(actions: list[Action], reason: str, mode: str, said: str) -> None:
    cause = cause_of(reason, actions)
    assert said in wording.did(cause, "sglang-kimi.service", mode)  # type: ignore[arg-type]


def test_a_restart_that_did_not_help_is_not_promised_again() -> None:
    failed = cause_of("SchedulerHung", [Action.RESTART], failed="not verified within 3600 s")
    assert wording.did(failed, "x", "act") == "The watchdog's restart did not help: not verified within 3600 s"


def test_a_restart_that_was_refused_is_told_as_such() -> None:
    refused = cause_of("SchedulerHung", [Action.RESTART], failed="not restarted: RestartUnit failed: no right.", refused=True)
    said = wording.did(refused, "x", "act")
    assert "has not restarted the unit, though it tried: RestartUnit failed: no right. It tries again by itself." in said


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("paused", "has not restarted the unit: held by Ann. Nobody but you will restart it while the pause lasts."),
        ("dropped", "has not restarted the unit: held by Ann. As long as a restart is called for, it tries again by itself."),
        ("refused", "has not restarted the unit, though it tried: held by Ann. It tries again by itself."),
        ("canceled", "restart was not carried out: held by Ann. As long as one is called for, it tries again by itself."),
        ("unknown", "What came of the watchdog's restart is not known: held by Ann."),
        ("timeout", "The watchdog's restart did not help: not restarted: held by Ann."),
    ],
)
def test_what_came_of_a_restart_is_said_and_no_more(result: str, said: str) -> None:
    cause = cause_of("SchedulerHung", [Action.RESTART], failed="not restarted: held by Ann.")
    cause.result = result
    told = wording.did(cause, "x", "act")
    assert said in told
    assert "You need not do anything" not in told


def test_what_was_said_of_time_is_not_said_again_as_of_now() -> None:
    crawls = {"message": "It crawls, for 10 min now.", "since": AT - timedelta(hours=4)}
    assert "\nFirst told: It crawls, for 10 min now.\nSince: 2026-01-13 22:00:00 UTC (4 h)\n" in wording.text(
        message(item(news=News.STILL, **crawls)), AT
    )
    over = wording.text(message(item(news=News.OVER, until=AT, did="verified: a new life", **crawls)), AT)
    assert "\nIt was: It crawls, for 10 min now.\n" in over
    assert "\nVerified: a new life.\n" in over


def test_who_looks_for_more_is_told_where() -> None:
    assert "More: sglang-watchdog explain --server kimi, on gpu01" in wording.text(message(item(runbook=None)), AT)


def test_many_at_once_stay_readable() -> None:
    many = message(*[item(reason=f"Odd{n}") for n in range(100)])
    text = wording.text(many, AT)
    assert text.partition("\n")[0].endswith("(+99 more)")
    assert text.count("What helps:") == wording.FULL_ITEMS
    assert text.endswith("* and 52 more\n")
    assert len(text) < 10_000


def test_a_late_message_says_so() -> None:
    assert "could not be delivered before" not in wording.text(message(), AT + timedelta(minutes=1))
    assert "made 2026-01-14 02:00:00 UTC and could not be delivered before" in wording.text(message(), AT + timedelta(hours=2))


def test_a_program_finds_all_in_it() -> None:
    late = item(news=News.OVER, until=AT + timedelta(minutes=3))
    payload = msgspec.json.decode(msgspec.json.encode(wording.payload(message(late), AT)))
    assert payload["status"] == "resolved"
    assert payload["severity"] == "info"
    assert payload["alerts"][0]["until"] == "2026-01-14T02:03:00.000Z"
    assert payload["text"].startswith(payload["title"])
    assert wording.payload(message(late, item()), AT)["status"] == "firing"


@given(st.text(max_size=400))
def test_any_text_stays_on_its_line_and_rings_nobody(said: str) -> None:
    line = f"@everyone <!channel> {said}"
    title = wording.title(message(item(message=line)))
    assert len(title) <= wording.TITLE_CAP
    assert title.isprintable() or not any(c in title for c in "\n\r\x1b\u2028\u2029")
    assert len(wording.text(message(item(message=line)), AT).splitlines()) == 10
    assert "@everyone" not in wording.text(message(item(message=line)), AT)
    assert "<!" not in wording.text(message(item(message=line)), AT)


def test_the_outbox_keeps_order_and_knows_what_it_has() -> None:
    box = Outbox()
    first, second = message(number=1), message(number=2)
    for each in (first, second, first):
        box.put(each)
    again = Outbox(box.encoded())
    assert again.messages == [first, second]
    assert again.head(AT) == first
    again.sent(first)
    assert again.head(AT) == second


def test_a_damaged_outbox_loses_only_what_is_damaged() -> None:
    box = Outbox()
    box.put(message(number=1))
    box.put(message(number=2))
    raw = box.encoded()
    cut = Outbox(b"\xff{broken\n" + raw[: len(raw) - 20])
    assert [each.id for each in cut.messages] == [f"{1:016x}"]
    assert cut.dropped == 2


def test_the_oldest_that_is_not_critical_goes_first() -> None:
    box = Outbox()
    for number in range(MAX_MESSAGES + 1):
        box.put(message(item(severity=Severity.WARNING if number == 5 else Severity.CRITICAL), number=number))
    assert len(box.messages) == MAX_MESSAGES
    assert f"{5:016x}" not in {each.id for each in box.messages}
    box.put(message(number=9999))
    assert box.messages[0].id == f"{1:016x}"
    assert box.dropped == 2


def test_what_is_too_old_is_dropped_and_counted() -> None:
    box = Outbox()
    box.put(message(number=1))
    box.put(message(number=2, created=AT + timedelta(days=2)))
    assert box.head(None) is not None, "nothing is too old by a clock that is not sure"
    head = box.head(AT + MAX_AGE + timedelta(seconds=1))
    assert head is not None
    assert (head.id, box.dropped) == (f"{2:016x}", 1)


def test_a_message_that_is_refused_holds_nothing_up_for_ever() -> None:
    box = Outbox()
    box.put(message(number=1))
    box.put(message(number=2))
    first = message(number=1)
    assert [box.failed(first, refused=True) for _ in range(outbox.REFUSALS)] == [False, False, True]
    assert [each.id for each in box.messages] == [f"{2:016x}"]
    assert not any(box.failed(message(number=2), refused=False) for _ in range(1000))


@given(st.integers(1, 10_000), st.integers(), st.none() | st.floats(0, 1e9))
def test_the_backoff_is_bounded(failures: int, seed: int, asked_s: float | None) -> None:
    wait = backoff_s(failures, random.Random(seed), asked_s)
    assert outbox.BACKOFF_S / 2 <= wait <= max(outbox.BACKOFF_MAX_S, min(asked_s or 0, 3600))


def test_files_are_written_whole_and_private(tmp_path: Path) -> None:
    store = Store(tmp_path / "alerts")
    assert store.load("book.json") is None
    store.save("book.json", b"one")
    store.save("book.json", b"two")
    assert store.load("book.json") == b"two"
    assert (tmp_path / "alerts/book.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "alerts").stat().st_mode & 0o777 == 0o700
    (tmp_path / "alerts/book.json.new").write_bytes(b"half")
    assert store.load("book.json") == b"two"
    kept = store.aside("book.json")
    assert kept is not None
    assert store.load("book.json") is None
    assert store.load(kept) == b"two"
