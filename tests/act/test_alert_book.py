"""What is worth a message, when, and together with what."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchdog.act.alerts import mutes
from watchdog.act.alerts.book import HOLD_S, MAX_CAUSES, MOOT, NOT_MADE, RESTART_S, UNHEARD, Book, Pages, Rules
from watchdog.act.alerts.notice import ENDED, News
from watchdog.judge.verdict import Action, Intent, Severity

START = datetime(2026, 1, 14, 2, 0, tzinfo=UTC)
RULES = Rules(group_wait_s=10, repeat_s=4 * 3600, per_hour=20)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def intent(reason: str, action: Action = Action.ALERT, severity: Severity = Severity.WARNING, **more: object) -> Intent:
    return Intent(action=action, reason=reason, severity=severity, message=f"{reason} it is.", **more)  # type: ignore[arg-type]


def clear(reason: str) -> Intent:
    return intent(reason, Action.CLEAR, Severity.INFO)


def say(book: Book, seconds: float) -> list[tuple[str, str]]:
    """What is said at a moment: reasons and what is new about them."""
    draft = book.due(at(seconds))
    if draft is None:
        return []
    book.said(draft)
    return [(cause.reason, str(news)) for cause, news in draft.news]


def test_an_alert_waits_for_its_group_is_said_once_repeated_and_cleared() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("MemoryLeak"))
    book.take("kimi", at(4), intent("QueueFull", severity=Severity.CRITICAL))
    assert say(book, 9) == []
    assert say(book, 10) == [("QueueFull", "new"), ("MemoryLeak", "new")]
    assert say(book, 11) == []
    book.take("kimi", at(3600), clear("QueueFull"))
    assert say(book, 3611) == [("QueueFull", "over")]
    assert say(book, 4 * 3600) == []
    assert say(book, 10 + 4 * 3600) == [("MemoryLeak", "still")]
    book.take("kimi", at(20000), clear("MemoryLeak"))
    assert say(book, 20010) == [("MemoryLeak", "over")]
    assert book.causes == []


def test_the_same_cause_told_again_is_no_second_message() -> None:
    book = Book(RULES)
    for second in range(50):
        book.take("kimi", at(second), intent("MemoryLeak"))
    assert say(book, 50) == [("MemoryLeak", "new")]
    book.take("kimi", at(60), intent("MemoryLeak"))
    assert say(book, 80) == []


def test_a_brief_alert_is_not_worth_a_message() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("Saturated"))
    book.take("kimi", at(5), clear("Saturated"))
    assert say(book, 30) == []
    assert book.causes == []


@pytest.mark.parametrize("ignored", [intent("X", Action.DIAGNOSE), intent("X", severity=Severity.INFO), clear("X")])
def test_what_is_no_message(ignored: Intent) -> None:
    book = Book(RULES)
    assert not book.take("kimi", at(0), ignored)
    assert say(book, 60) == []


def test_a_withheld_restart_and_the_alert_of_the_same_reason_are_one() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("DeviceLost", severity=Severity.CRITICAL))
    book.take("kimi", at(0), intent("DeviceLost", Action.WITHHOLD, Severity.CRITICAL))
    assert say(book, 10) == [("DeviceLost", "new")]
    book.take("kimi", at(60), clear("DeviceLost"))
    assert say(book, 70) == [("DeviceLost", "over")]


def test_a_new_decision_about_a_known_cause_is_news() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("MemoryLeak"))
    say(book, 10)
    book.take("kimi", at(100), intent("MemoryLeak", Action.PLAN_RESTART))
    assert say(book, 101) == [("MemoryLeak", "changed")]
    assert say(book, 102) == []


def test_a_lost_device_mutes_hang_and_canary_and_is_told_alone() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("CanaryErrors", Action.RESTART, Severity.CRITICAL))
    book.take("kimi", at(3), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    book.take("other", at(3), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    book.take("kimi", at(8), intent("DeviceLost", severity=Severity.CRITICAL))
    draft = book.due(at(18))
    assert draft is not None
    assert [(c.server, c.reason) for c, _ in draft.news] == [("other", "SchedulerHung"), ("kimi", "DeviceLost")]


@pytest.mark.parametrize("end", ["ProcessGone", "DyingNeverEnded", "ServerDied"])
@pytest.mark.parametrize("sign", ["PoolShrank", "FootprintTooSmall"])
def test_memory_that_an_end_gives_back_is_not_told_beside_it(end: str, sign: str) -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent(sign))
    book.take("kimi", at(3), intent(end, Action.RESTART, Severity.CRITICAL))
    assert say(book, 20) == [(end, "new")]


def test_what_still_holds_when_its_mute_ends_is_told() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("DeviceLost", severity=Severity.CRITICAL))
    book.take("kimi", at(1), intent("MalformedAnswers", severity=Severity.CRITICAL))
    assert say(book, 10) == [("DeviceLost", "new")]
    book.take("kimi", at(60), clear("DeviceLost"))
    assert say(book, 70) == [("MalformedAnswers", "new"), ("DeviceLost", "over")]


def test_a_muted_alert_that_ends_with_its_mute_is_not_told() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("DeviceLost", severity=Severity.CRITICAL))
    book.take("kimi", at(1), intent("MalformedAnswers", severity=Severity.CRITICAL))
    say(book, 10)
    book.take("kimi", at(60), clear("DeviceLost"))
    book.take("kimi", at(60), clear("MalformedAnswers"))
    assert say(book, 70) == [("DeviceLost", "over")]


def test_nothing_new_is_told_of_a_server_that_a_person_has_stopped() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("ServerDied"))
    book.stood_down["kimi"] = "stopped"
    assert say(book, 60) == []
    assert book.standing(at(60)) == []
    del book.stood_down["kimi"]
    assert say(book, 61) == [("ServerDied", "new")]


def test_what_happens_once_more_is_told_again_but_not_each_time() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("ServerDied"))
    assert say(book, 10) == [("ServerDied", "new")]
    for second in range(120, 900, 120):
        book.take("kimi", at(second), intent("ServerDied"))
        assert say(book, second + 10) == []
    assert say(book, 910) == [("ServerDied", "changed")]
    assert say(book, 2000) == []
    book.take("kimi", at(2001), intent("ServerDied"))
    assert say(book, 2001) == [("ServerDied", "changed")]


def test_a_restart_is_told_once_and_is_over_when_the_server_is_well() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    assert say(book, 10) == [("SchedulerHung", "new")]
    assert book.recovered("kimi", at(300), "Verified after 290 s.")
    draft = book.due(at(310))
    assert draft is not None
    assert [(c.outcome, news) for c, news in draft.news] == [("Verified after 290 s.", News.OVER)]


def test_a_restart_that_nobody_reported_back_on_does_not_mute_for_ever() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    assert say(book, 10) == [("SchedulerHung", "new")]
    book.take("kimi", at(1000), intent("MalformedAnswers", severity=Severity.CRITICAL))
    assert say(book, 1010) == []
    assert ("MalformedAnswers", "new") in say(book, RESTART_S + 10)


def test_a_restart_of_which_nothing_was_heard_is_not_called_well() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    assert say(book, 10) == [("SchedulerHung", "new")]
    book.due(at(RESTART_S + 10))
    draft = book.due(at(RESTART_S + 30))
    assert draft is not None
    assert [c.outcome for c, _ in draft.news] == [UNHEARD]


def test_a_restart_that_failed_is_told_once_and_a_new_one_is_a_new_try() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    assert say(book, 10) == [("SchedulerHung", "new")]
    assert book.acted("kimi", "SchedulerHung", at(20), "timeout", "systemd did not answer")
    assert not book.acted("kimi", "SchedulerHung", at(21), "timeout", "systemd did not answer")
    assert say(book, 30) == [("SchedulerHung", "changed")]
    assert [c.failed for c in book.causes] == ["systemd did not answer"]
    book.take("kimi", at(40), intent("SchedulerHung", Action.RESTART, Severity.CRITICAL))
    assert [c.failed for c in book.causes] == [None]


def test_the_same_refusal_again_is_no_news_until_the_restart_is_carried_out() -> None:
    book = Book(RULES)
    hung = intent("SchedulerHung", Action.RESTART, Severity.CRITICAL)
    book.take("kimi", at(0), hung)
    assert say(book, 10) == [("SchedulerHung", "new")]
    assert book.acted("kimi", "SchedulerHung", at(20), "refused", "not restarted: no right")
    assert say(book, 21) == [("SchedulerHung", "changed")]
    for second in range(30, 900, 30):
        book.take("kimi", at(second), hung)
        assert not book.acted("kimi", "SchedulerHung", at(second), "refused", "not restarted: no right")
        assert say(book, second + 15) == []
    book.take("kimi", at(900), hung)
    assert not book.acted("kimi", "SchedulerHung", at(900), "dry", "")
    assert book.acted("kimi", "SchedulerHung", at(901), "begun", "")
    assert (book.causes[0].failed, book.causes[0].refused) == (None, False)
    assert not book.acted("kimi", "SchedulerHung", at(902), "done", "")
    assert book.acted("kimi", "SchedulerHung", at(903), "timeout", "too slow")
    assert book.causes[0].refused is False


HUNG = intent("SchedulerHung", Action.RESTART, Severity.CRITICAL)
BY_A_PERSON = "not restarted: paused by a person: looking at it"


@pytest.mark.parametrize("result", [*NOT_MADE, "canceled", "unknown", "failed", "timeout", "not-verified"])
def test_however_a_restart_ends_the_cause_stands_as_long_as_the_fault(result: str) -> None:
    book = Book(RULES)
    book.take("kimi", at(0), HUNG)
    assert say(book, 10) == [("SchedulerHung", "new")]
    assert book.acted("kimi", "SchedulerHung", at(20), result, "why")
    assert say(book, 20) == [("SchedulerHung", "changed")]
    assert say(book, 4 * 3600 + 20) == [("SchedulerHung", "still")]
    assert say(book, 4 * 3600 + HOLD_S) == [("SchedulerHung", "still")]
    assert len(book.standing(at(4 * 3600 + HOLD_S))) == 1
    assert book.recovered("kimi", at(40_000), "Verified.")
    assert say(book, 40_010) == [("SchedulerHung", "over")]


def test_a_restart_that_is_only_said_stands_as_long_as_the_fault() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), HUNG, dry=True)
    assert say(book, 10) == [("SchedulerHung", "new")]
    assert say(book, 4 * 3600 + 10) == [("SchedulerHung", "still")]


def test_a_restart_that_was_given_up_because_the_fault_was_gone_is_over() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), HUNG)
    assert book.acted("kimi", "SchedulerHung", at(3), MOOT, "not restarted: the server has recovered meanwhile")
    assert say(book, 20) == []
    assert book.causes == []


def test_a_pause_takes_the_promise_of_a_restart_back_once_and_until_it_is_carried_out() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), HUNG)
    assert book.pause("kimi", at(1), BY_A_PERSON)
    assert not book.pause("kimi", at(2), BY_A_PERSON)
    assert not book.acted("kimi", "SchedulerHung", at(3), "paused", BY_A_PERSON), "it is known"
    assert say(book, 10) == [("SchedulerHung", "new")]
    assert [(c.failed, c.result) for c in book.causes] == [(BY_A_PERSON, "paused")]
    assert say(book, 11) == []
    assert book.pause("kimi", at(60), None) and not book.pause("kimi", at(61), None)
    assert [c.result for c in book.causes] == ["dropped"]
    book.take("kimi", at(61), HUNG)
    assert book.acted("kimi", "SchedulerHung", at(62), "begun", "")
    assert [(c.failed, c.refused) for c in book.causes] == [(None, False)]
    assert not book.pause("kimi", at(63), BY_A_PERSON), "systemd is at it"


def test_nothing_runs_out_in_a_pause_in_which_nothing_is_said_anew() -> None:
    book = Book(Rules(repeat_s=1e6))
    book.take("kimi", at(0), intent("PortTaken", Action.WITHHOLD, Severity.CRITICAL))
    assert say(book, 10) == [("PortTaken", "new")]
    book.pause("kimi", at(20), BY_A_PERSON)
    assert say(book, 2 * HOLD_S) == [] and book.causes[0].over is None
    book.pause("kimi", at(2 * HOLD_S), None)
    assert say(book, 3 * HOLD_S - 1) == [] and book.causes[0].over is None
    say(book, 3 * HOLD_S)
    assert say(book, 3 * HOLD_S + 10) == [("PortTaken", "over")]


def test_a_veto_that_is_not_said_again_is_over() -> None:
    book = Book(Rules(repeat_s=1e6))
    book.take("kimi", at(0), intent("PortTaken", Action.WITHHOLD, Severity.CRITICAL))
    assert say(book, 10) == [("PortTaken", "new")]
    book.take("kimi", at(6 * 3600), intent("PortTaken", Action.WITHHOLD, Severity.CRITICAL))
    assert say(book, HOLD_S + 1) == []
    assert say(book, 6 * 3600 + HOLD_S) == []
    assert say(book, 6 * 3600 + HOLD_S + 10) == [("PortTaken", "over")]


def test_the_surplus_comes_as_one_digest() -> None:
    book = Book(Rules(group_wait_s=0, per_hour=4))
    heard = []
    for n in range(10):
        book.take("kimi", at(n), intent(f"Odd{n}"))
        heard.append(say(book, n))
    assert [len(each) for each in heard] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    book.take("kimi", at(20), clear("Odd5"))
    book.take("kimi", at(21), intent("DeviceLost", severity=Severity.CRITICAL))
    digest = say(book, 21)
    assert digest[0] == ("DeviceLost", "new")
    assert set(digest[1:]) == {(f"Odd{n}", "new") for n in (3, 4, 6, 7, 8, 9)} | {("Odd5", "passed")}
    book.take("kimi", at(22), intent("UnitMissing", severity=Severity.CRITICAL))
    assert say(book, 22) == []
    assert say(book, 3599) == []
    assert ("UnitMissing", "new") in say(book, 3600)


def test_it_goes_on_where_it_was_after_a_restart() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("MemoryLeak"))
    say(book, 10)
    book.take("kimi", at(20), intent("QueueFull"))
    again = Book(RULES, msgspec.json.decode(msgspec.json.encode(book.pages), type=Pages), at(25))
    assert say(again, 25) == []
    assert say(again, 30) == [("QueueFull", "new")]
    assert again.reconcile("kimi", ["QueueFull", "Leaky"], at(40)) == {"Leaky"}
    assert say(again, 50) == [("MemoryLeak", "over")]


def test_a_clock_that_ran_ahead_holds_nothing_up() -> None:
    book = Book(RULES)
    book.take("kimi", at(1e6), intent("MemoryLeak"))
    say(book, 1e6 + 10)
    again = Book(RULES, book.pages, at(0))
    assert say(again, 1) == []
    assert say(again, 4 * 3600) == [("MemoryLeak", "still")]


def test_a_server_that_is_no_longer_watched_is_forgotten() -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent("MemoryLeak"))
    book.keep_only(["other"])
    assert say(book, 60) == []


def test_the_book_is_bounded_and_counts_what_it_lost() -> None:
    book = Book(RULES)
    for n in range(MAX_CAUSES + 7):
        book.take("kimi", at(0), intent(f"Odd{n}", evidence=("x" * 5000,) * 50))
    assert (len(book.causes), book.lost) == (MAX_CAUSES, 7)
    assert len(msgspec.json.encode(book.pages)) < 4_000_000


def test_keys_and_prompts_stay_out_of_the_book() -> None:
    book = Book(RULES)
    told = intent("MemoryLeak", evidence=("--api-key sk-abcdef0123456789",), advice="Bearer abcdefgh12345678")
    book.take("kimi", at(0), msgspec.structs.replace(told, message="Receive: obj=GenerateReqInput(text='my secret question')"))
    kept = msgspec.json.encode(book.pages)
    assert b"abcdef" not in kept
    assert b"question" not in kept


@pytest.mark.parametrize(
    ("cause", "explained"),
    [
        ("GarbageAnswers", "SpeculationCollapsed"),
        ("KilledForMemory", "ServerDied"),
        ("StartFailed", "SameEarlyDeath"),
        ("OtherModelServed", "AnswerShapeChanged"),
        ("SchedulerHung", "QueueFull"),
    ],
)
def test_what_a_cause_explains_is_not_told_beside_it(cause: str, explained: str) -> None:
    book = Book(RULES)
    book.take("kimi", at(0), intent(cause, Action.RESTART, Severity.CRITICAL))
    book.take("kimi", at(1), intent(explained))
    assert say(book, 20) == [(cause, "new")]


def test_no_two_causes_can_mute_each_other() -> None:
    """The table as a graph has no way round: whatever is muted, something that explains it is told."""
    reasons = sorted({r for mute in mutes.TABLE for r in mute.causes | (mute.muted or frozenset())})
    edges = {a: {b for b in reasons if _mutes(a, b)} for a in reasons}
    done: set[str] = set()
    while free := [a for a in reasons if a not in done and not (edges[a] - done)]:
        done |= set(free)
    assert set(reasons) == done


def _mutes(a: str, b: str) -> bool:
    return any(a in m.causes and b not in m.causes and (m.muted is None or b in m.muted) for m in mutes.TABLE)


def test_the_table_names_reasons_that_the_judges_know() -> None:
    judges = Path(mutes.__file__).parents[2] / "judge"
    known = set(re.findall(r'"([A-Z][A-Za-z]+)"', "".join(p.read_text(encoding="utf-8") for p in judges.rglob("*.py"))))
    marks = {"Nan", "MemoryUnbalanced", "HicacheTrouble"}  # made from the marks of log lines (judge/trouble.py)
    assert {r for mute in mutes.TABLE for r in mute.causes | (mute.muted or frozenset())} - known - marks == set()


INTENTS = st.builds(
    intent,
    st.sampled_from(["DeviceLost", "SchedulerHung", "MalformedAnswers", "MemoryLeak", "UnitMissing", "Saturated"]),
    st.sampled_from(list(Action)),
    st.sampled_from(list(Severity)),
)
STEPS = st.lists(st.tuples(st.floats(0, 4000), st.sampled_from(["kimi", "other"]), INTENTS, st.booleans()), max_size=60)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_comes(steps: list[tuple[float, str, Intent, bool]]) -> None:
    """Never more messages than allowed; each end belongs to a beginning; a daemon that dies changes nothing."""
    rules = Rules(group_wait_s=10, repeat_s=7200, per_hour=4)
    book, twin = Book(rules), Book(rules)
    now = 0.0
    told: list[float] = []
    open_: set[tuple[str, str]] = set()
    for wait, server, each, dies in steps:
        now += wait
        for one in (book, twin):
            one.take(server, at(now), each)
        if dies:
            twin = Book(rules, msgspec.json.decode(msgspec.json.encode(twin.pages), type=Pages), at(now))
        now += 10
        draft, same = book.due(at(now)), twin.due(at(now))
        assert draft == same
        if draft is None or same is None:
            continue
        book.said(draft)
        twin.said(same)
        told.append(now)
        assert len([t for t in told if now - t < 3600]) <= rules.per_hour
        assert len({c.key for c, _ in draft.news}) == len(draft.news) > 0
        for cause, news in draft.news:
            assert (news is News.NEW) <= (cause.key not in open_)
            assert (news in (News.OVER, News.STILL, News.CHANGED)) <= (cause.key in open_)
            (open_.discard if news in ENDED else open_.add)(cause.key)
