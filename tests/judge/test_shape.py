"""The shape of answers: learned when steady, a change told when steady, over lives."""

from watchdog.judge import shape
from watchdog.judge.facts import Facts
from watchdog.judge.facts.learned import Learned
from watchdog.judge.verdict import Status, Want
from watchdog.observation import Answer, Operator, Probe, Unit

INV = "a" * 32


def served(learned: Learned | None = None) -> Facts:
    f = Facts(learned)
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=-7200.0))
    return f


def chat(
    t: float,
    text: str | None = "Paris.",
    reasoning: str | None = "The capital is asked.",
    inv: str = INV,
    *,
    finish: str = "stop",
    reasons: bool | None = None,
) -> Probe:
    answer = Answer(text=text, reasoning=reasoning, finish_reason=finish, model="kimi-k2.5", completion_tokens=12)
    return Probe(t=t, inv=inv, probe="chat", outcome="ok", status=200, total_s=0.5, limit_s=60.0, answer=answer, reasons=reasons)


def told(f: Facts, now: float) -> list[str]:
    return [c.reason for c in shape.judge(f, now).calls if c.want is Want.ALERT]


def test_reasoning_that_moves_into_the_text_is_told_once_it_is_steady() -> None:
    f = served()
    for n in range(3):
        f.see(chat(10.0 * n))

    assert shape.judge(f, 30.0).status is Status.TRUE

    moved = "<think>The capital is asked.</think>Paris."
    f.see(chat(40.0, moved, None))
    f.see(chat(50.0, moved, None))

    assert shape.judge(f, 55.0).status is Status.UNKNOWN

    f.see(chat(60.0, moved, None))
    verdict = shape.judge(f, 65.0)

    assert told(f, 65.0) == ["AnswerShapeChanged"]
    assert "the reasoning moved into the text" in verdict.message
    assert "before: text and reasoning" in verdict.message

    f.see(chat(70.0))

    assert shape.judge(f, 75.0).status is Status.TRUE


def test_a_deployment_that_changes_the_shape_is_noticed_in_its_new_life() -> None:
    f = served()
    for n in range(3):
        f.see(chat(10.0 * n))
    second = "b" * 32
    f.see(Unit(t=40.0, inv=second, load_state="loaded", active_state="active", sub_state="running", since=-7200.0))
    for n in range(3):
        f.see(chat(50.0 + n, None, "All of it.", second))

    assert told(f, 60.0) == ["AnswerShapeChanged"]


def test_what_was_learned_before_counts_and_a_person_can_accept_the_new_shape() -> None:
    learned = Learned()
    first = served(learned)
    for n in range(3):
        first.see(chat(10.0 * n))
    f = served(learned)
    for n in range(3):
        f.see(chat(10.0 * n, "Paris.", None))

    assert told(f, 30.0) == ["AnswerShapeChanged"]

    f.see(Operator(t=40.0, action="acknowledge"))
    for n in range(3):
        f.see(chat(50.0 + n, "Paris.", None))

    assert shape.judge(f, 60.0).status is Status.TRUE


def test_shapes_that_alternate_are_neither_learned_nor_told() -> None:
    f = served()
    for n in range(20):
        f.see(chat(10.0 * n, "Paris.", None if n % 2 else "Hm."))

    assert shape.judge(f, 300.0).status is Status.UNKNOWN


def test_reasoning_that_is_cut_now_and_then_is_no_change() -> None:
    """An answer near the limit of tokens: it ends by itself, or within the reasoning."""
    f = served()
    for n in range(3):
        f.see(chat(10.0 * n))
    for n in range(4):
        f.see(chat(100.0 + n, "", "The capital is asked, and", finish="length"))

    assert shape.judge(f, 110.0).status is Status.TRUE


def test_a_model_that_thinks_and_whose_reasoning_is_not_parted_is_told_in_its_first_life() -> None:
    f = served()
    for n in range(3):
        f.see(chat(10.0 * n, "The user asks for a capital.</think>Paris.", None, reasons=True))
    verdict = shape.judge(f, 30.0)

    assert (verdict.status, verdict.reason) == (Status.FALSE, "ReasoningNotParted")
    assert "tags </think> in the text" in verdict.message and "--reasoning-parser" in (verdict.calls[0].advice or "")

    f.see(chat(40.0, "Paris.", "The user asks for a capital.", reasons=True))

    assert shape.judge(f, 45.0).reason != "ReasoningNotParted"


def test_where_it_is_not_known_to_think_nothing_is_missed() -> None:
    f = served()
    for n in range(5):
        f.see(chat(10.0 * n, "Paris.", None))
    for n in range(5):
        f.see(chat(100.0 + n, "", "Hm", finish="length", reasons=True))

    assert shape.judge(f, 110.0).reason != "ReasoningNotParted"


def test_garbage_has_no_shape() -> None:
    f = served()
    for n in range(6):
        f.see(chat(10.0 * n, "!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", None))

    assert shape.judge(f, 100.0).reason == "NotLearned"


def test_a_change_that_lasts_for_weeks_takes_no_more_room() -> None:
    f = served()
    for n in range(3):
        f.see(chat(10.0 * n))
    for n in range(2000):
        f.see(chat(100.0 + 60.0 * n, None, "All of it."))

    assert len(f.shapes.changed) <= 3
    assert f.shapes.changed[0][0] == 100.0
    assert "for 1 d 9 h: " in shape.judge(f, 100.0 + 60.0 * 2000).message
