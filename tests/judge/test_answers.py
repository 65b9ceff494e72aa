"""What answers that make no sense come to: by their grades, by canary, from the start or after good ones."""

from collections.abc import Iterable

import pytest

from watchdog.config import Judging
from watchdog.judge import answers
from watchdog.judge.answers import RESTART_S
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Severity, Status, Verdict, Want
from watchdog.observation import Answer, Log, Probe, Server, Unit

INV = "a" * 32
TEXTS = {"good": "Paris.", "odd": "Paris<|im_end|> and so on and so on", "plain": "[PAD]" * 8, "other": "The largest city."}
LETTERS = {"g": "good", "o": "odd", "p": "plain", "w": "other"}


def serving() -> Facts:
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    f.see(Log(t=1.0, inv=INV, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!"))
    return f


def asked(f: Facts, kinds: str, *, begin: float = 60.0, every: float = 200.0, probe: str = "chat") -> float:
    """One answer for each letter: good, odd, plainly bad, or without the expected word; the moment of the last."""
    t = begin
    for n, letter in enumerate(kinds):
        t = begin + every * n
        answer = Answer(text=TEXTS[LETTERS[letter]], finish_reason="length")
        f.see(Probe(t=t, inv=INV, probe=probe, outcome="ok", status=200, total_s=0.2, answer=answer, expects="Paris"))
    return t


def judged(f: Facts, now: float) -> Verdict:
    return answers.judge(f, Judging(), now)


def wants(v: Verdict) -> list[Want]:
    return [call.want for call in v.calls]


@pytest.mark.parametrize(
    ("kinds", "every", "reason"),
    [
        ("oop", 200.0, "OddAnswer"),
        ("oopo", 200.0, "OddAnswer"),
        ("oopoo", 200.0, "GarbageFromTheStart"),
        ("poop", 200.0, "GarbageFromTheStart"),
        ("poop", 100.0, "OddAnswer"),
        ("ppp", 10.0, "GarbageFromTheStart"),
        ("popwp", 10.0, "GarbageFromTheStart"),
        ("ooooo", 200.0, "OddAnswer"),
        ("oooooo", 200.0, "OddFromTheStart"),
        ("wwwwww", 200.0, "OddFromTheStart"),
        ("wwwwww", 60.0, "OddAnswer"),
    ],
)
def test_what_was_never_well(kinds: str, every: float, reason: str) -> None:
    f = serving()
    v = judged(f, asked(f, kinds, every=every))
    assert v.reason == reason, v.message
    assert Want.RESTART not in wants(v) and Want.PLAN_RESTART not in wants(v)
    expected = {"OddAnswer": [], "GarbageFromTheStart": [Want.ALERT, Want.VETO], "OddFromTheStart": [Want.ALERT]}
    assert wants(v) == expected[reason]
    assert (v.status is Status.FALSE) == (reason != "OddAnswer")


def test_a_good_answer_ends_it() -> None:
    f = serving()
    asked(f, "oopooo")
    last = asked(f, "g", begin=3000.0)
    assert (judged(f, last).status, judged(f, last).reason) == (Status.TRUE, "Sane")


def test_the_sentence_counts_all_that_were_not_good_and_says_how_many_were_plainly_bad() -> None:
    f = serving()
    v = judged(f, asked(f, "oopoo"))
    assert v.message.startswith("5 canaries in a row were answered oddly for 13 min"), v.message
    assert "1 of them with degenerate text: the text is made of reserved tokens" in v.message
    g = serving()
    assert judged(g, asked(g, "ppp")).message.startswith("3 canaries in a row were answered with degenerate text for 6 min")


def test_only_a_missing_word_may_be_the_questions_fault() -> None:
    odd, missing = serving(), serving()
    (o,) = judged(odd, asked(odd, "wwowww")).calls
    (w,) = judged(missing, asked(missing, "wwwwww")).calls
    assert (o.severity, w.severity) == (Severity.CRITICAL, Severity.WARNING)
    assert "chat_expects" in (w.advice or "")


@pytest.mark.parametrize(("before", "times"), [("g", "1 time,"), ("gggg", "4 times,")])
def test_after_good_answers_odd_ones_are_told(before: str, times: str) -> None:
    f = serving()
    v = judged(f, asked(f, f"{before}oooooo"))
    assert (v.reason, wants(v)) == ("WrongAnswers", [Want.ALERT]) and f"well {times} and then oddly 6 times" in v.message


def interleaved(f: Facts, chat: Iterable[str], prefix: Iterable[str], begin: float) -> float:
    t = begin
    for n, (c, p) in enumerate(zip(chat, prefix, strict=True)):
        t = begin + 200.0 * n
        asked(f, c, begin=t)
        asked(f, p, begin=t + 50.0, probe="prefix")
    return t + 50.0


def test_garbage_of_one_canary_alone_is_told_and_of_the_prefix_canary_never_restarted_for() -> None:
    """What it reads may come from a store that outlives a restart; the chat canary's prompt is new each time."""
    store = serving()
    interleaved(store, "ggg", "ggg", begin=60.0)
    v = judged(store, interleaved(store, "g" * 9, "opoopppppp"[:9], begin=1000.0))
    assert (v.reason, wants(v)) == ("WrongAnswers", [Want.ALERT]) and "The prefix canary" in v.message

    computed = serving()
    interleaved(computed, "ggg", "ggg", begin=60.0)
    v = judged(computed, interleaved(computed, "p" * 9, "g" * 9, begin=1000.0))
    assert (v.reason, wants(v)) == ("WrongAnswers", [Want.ALERT, Want.PLAN_RESTART]) and "The chat canary" in v.message


def test_a_restart_for_garbage_needs_a_canary_that_was_computed() -> None:
    f = serving()
    asked(f, "ggg", probe="prefix")
    last = asked(f, "p" * 8, begin=1000.0, probe="prefix")
    assert (judged(f, last).reason, wants(judged(f, last))) == ("GarbageAnswers", [Want.ALERT])
    last = asked(f, "p", begin=last + 60.0)
    assert wants(judged(f, last + RESTART_S)) == [Want.ALERT, Want.RESTART]


def test_merely_odd_answers_do_not_shorten_the_way_to_a_restart() -> None:
    f = serving()
    asked(f, "gggoooooooooo", every=60.0)
    last = asked(f, "pppppp", begin=2000.0, every=60.0)
    assert wants(judged(f, last)) == [Want.ALERT], "the plainly bad ones have lasted for five minutes"
    assert wants(judged(f, last + RESTART_S - 301.0)) == [Want.ALERT]
    assert wants(judged(f, last + RESTART_S - 299.0)) == [Want.ALERT, Want.RESTART]


def test_garbage_that_may_come_from_a_store_is_not_restarted_for() -> None:
    f = serving()
    f.see(Server(t=1.0, inv=INV, args={"hicache_storage_backend": "file"}))
    asked(f, "ggg")
    v = judged(f, asked(f, "p" * 9, begin=1000.0) + RESTART_S)
    assert wants(v) == [Want.ALERT] and "storage tier (file)" in str(v.calls[0].advice)


def test_a_life_that_began_with_garbage_is_not_ended_for_it() -> None:
    """What was changed before it is to blame, and the next life would begin with it, too."""
    f = serving()
    asked(f, "ggg")
    other = "b" * 32
    f.see(Unit(t=1000.0, inv=other, load_state="loaded", active_state="active", sub_state="running", main_pid=9, since=1000.0))
    f.see(Log(t=1001.0, inv=other, message="[2026-01-14 02:16:00] The server is fired up and ready to roll!"))
    for n in range(9):
        answer = Answer(text=TEXTS["plain"], finish_reason="length")
        f.see(Probe(t=1100.0 + 200.0 * n, inv=other, probe="chat", outcome="ok", status=200, total_s=0.2, answer=answer))
    v = judged(f, 1100.0 + 2 * RESTART_S)
    assert (v.reason, wants(v)) == ("GarbageAnswers", [Want.ALERT]) and "undo what was changed" in str(v.calls[0].advice)


def test_two_witnesses_of_garbage_are_believed_sooner() -> None:
    f = serving()
    asked(f, "ggg")
    f.see(Log(t=900.0, inv=INV, message="[2026-01-14 02:15:00 TP0] Detected errors during sampling! NaN in the logits."))
    last = asked(f, "p" * 6, begin=1000.0, every=110.0)
    assert wants(judged(f, last + 40.0)) == [Want.ALERT]
    assert wants(judged(f, last + 60.0)) == [Want.ALERT, Want.RESTART]


def test_an_odd_answer_hides_no_canary_that_fails() -> None:
    f = serving()
    asked(f, "gp")
    for n in range(5):
        f.see(Probe(t=500.0 + 60.0 * n, inv=INV, probe="chat", outcome="status", status=500, total_s=0.1, body="a\nbody"))
    v = judged(f, 750.0)
    assert (v.reason, wants(v)) == ("CanaryErrors", [Want.RESTART]) and "(HTTP 500: a body)" in v.message


@pytest.mark.parametrize(
    ("before", "reason", "wanted"),
    [
        ("", "ErrorsFromTheStart", [Want.ALERT]),
        ("w", "CanaryErrors", [Want.RESTART]),
        ("g", "CanaryErrors", [Want.RESTART]),
        ("user", "CanaryErrors", [Want.RESTART]),
        ("refused user", "ErrorsFromTheStart", [Want.ALERT]),
    ],
)
def test_a_canary_that_nothing_vouches_for_is_no_reason_to_restart(before: str, reason: str, wanted: list[Want]) -> None:
    """A template or a parser that fails does so again after a restart."""
    f = serving()
    if "user" in before:
        status = "400 Bad Request" if "refused" in before else "200 OK"
        line = f'[2026-01-14 02:00:50] INFO:     10.0.0.2:4711 - "POST /v1/chat/completions HTTP/1.1" {status}'
        f.see(Log(t=50.0, inv=INV, message=line))
    else:
        asked(f, before)
    for n in range(5):
        f.see(Probe(t=500.0 + 60.0 * n, inv=INV, probe="chat", outcome="status", status=500, total_s=0.1, body="TemplateError"))
    v = judged(f, 750.0)
    assert (v.status, v.reason, wants(v)) == (Status.FALSE, reason, wanted)


def test_where_another_server_does_half_of_the_work_its_canary_proves_nothing_of_this_one() -> None:
    f = serving()
    f.see(Server(t=1.0, inv=INV, args={"disaggregation_mode": "decode"}))
    asked(f, "ggg")
    for n in range(5):
        body = "KVTransferError: Failed to get kvcache from prefill instance"
        f.see(Probe(t=700.0 + 60.0 * n, inv=INV, probe="chat", outcome="status", status=500, total_s=0.1, body=body))
    v = judged(f, 950.0)
    assert (v.reason, wants(v)) == ("HalfFails", [Want.ALERT])


@pytest.mark.parametrize(
    ("kinds", "reason", "wanted", "severity"),
    [
        ("ggo" * 6, "GarbageAtTimes", [Want.ALERT], Severity.WARNING),
        ("ggo" * 5 + "gg", "Sane", [], None),
        ("ggp" * 3, "GarbageAtTimes", [Want.ALERT], Severity.CRITICAL),
        ("gp" * 7, "GarbageAtTimes", [Want.ALERT, Want.PLAN_RESTART], Severity.CRITICAL),
        ("gpgo" * 3, "GarbageAtTimes", [Want.ALERT], Severity.CRITICAL),
        ("gw" * 10, "OddAnswer", [], None),
    ],
)
def test_odd_answers_between_good_ones_are_told_as_of_one_replica(
    kinds: str, reason: str, wanted: list[Want], severity: Severity | None
) -> None:
    f = serving()
    v = judged(f, asked(f, kinds, every=150.0))
    assert (v.reason, wants(v)) == (reason, wanted), v.message
    assert [call.severity for call in v.calls][:1] == [severity][: len(wanted)]
    if "o" in kinds and wanted:
        assert "were answered oddly" in v.message


def test_an_answer_that_the_server_aborted_says_nothing_of_its_words() -> None:
    f = serving()
    for n in range(20):
        finish = "abort" if n % 2 else "stop"
        answer = Answer(text="Paris.", finish_reason=finish)
        f.see(Probe(t=60.0 + 100.0 * n, inv=INV, probe="chat", outcome="ok", status=200, answer=answer))
    assert judged(f, 2000.0).calls == ()
