import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.judge.text import Quality, Shape, drift, grade, shape
from watchdog.observation import Answer


def answer(text: str | None = None, reasoning: str | None = None, finish: str = "stop", **more: object) -> Answer:
    return Answer(text=text, reasoning=reasoning, finish_reason=finish, **more)  # type: ignore[arg-type]


GOOD = [
    "Paris",
    "Paris.",
    "**Paris**",
    "P",
    "42",
    "巴黎。",
    "巴黎是法国的首都，也是该国最大的城市。",
    "パリです。",
    "파리",
    "Париж.",
    "Столица Франции — Париж.",
    "باريس",
    "עיר הבירה של צרפת היא פריז",
    "ปารีส",
    "पेरिस",
    "Το Παρίσι",
    "🗼",
    "Paris 🇫🇷🥖🍷",
    "👨‍👩‍👧‍👦 family",
    "The capital of France is Paris. It has been the capital since",
    "使用Python编程，GPU는 빠르다, Δx = 3 µm",
    'def f(x):\n\treturn {"a": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}\n',
    '{"city": "Paris", "country": "FR", "ids": [1, 1, 1, 1]}',
    "0.3333333333333333",
    "10000000000000000000",
    "hahahaha",
    "ha ha ha ha ha",
    "No, no, no!",
    "Hmmmmmm…",
    "...",
    "C'est Paris !!!",
    "Title\n=====\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "<b>Paris</b> <s>London</s>",
    "ATGATGATTGCCATG",
    "IT-специалист, SMSка",
    "العاصمة هي باريس (Paris) 2024",
    "می‌خواهم",
    "<think>The user wants the capital</think>\n\nParis",
]


@pytest.mark.parametrize("text", GOOD)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_sensible_answers_are_good(text: str, finish: str) -> None:
    for one in (answer(text, finish=finish), answer("", text, finish), answer(None, text, finish)):
        verdict = grade(one)
        assert verdict.quality is Quality.GOOD, verdict.reason


@pytest.mark.parametrize(
    ("text", "finish", "said"),
    [
        ("!!!!", "length", "'!' 4 times"),
        ("!" * 16, "length", "'!' 16 times"),
        ("????????", "stop", "'?' 8 times"),
        ("a" * 40, "length", "'a' 40 times"),
        (" the" * 16, "length", "times"),
        ("Paris" * 6, "length", "'Paris' 6 times"),
        ("好的" * 12, "stop", "'好的' 12 times"),
        ("[BOS]" * 64, "length", "reserved tokens such as [BOS]"),
        ("<|im_start|>", "length", "reserved tokens"),
        ("<|begin_of_text|><|begin_of_text|>", "length", "reserved tokens"),
        ("<｜end▁of▁sentence｜>", "stop", "reserved tokens"),
        ("<unk><unk><unk>", "length", "reserved tokens such as <unk>"),
        ("</s></s>", "stop", "reserved tokens"),
        ("D\x14\x14\x14\x14\x14", "length", "5 control or replacement characters in 6"),
        ("\ufffd\ufffd\ufffd\ufffd", "stop", "4 control or replacement characters"),
        ("\ufffda\ufffdb\ufffdc", "length", "3 control or replacement characters"),
        ("\x00\x00", "stop", "control"),
        ("The capital is" + " is" * 14, "length", "ends in a loop"),
    ],
)
def test_degenerate_answers(text: str, finish: str, said: str) -> None:
    for one in (answer(text, finish=finish), answer(None, text, finish), answer("Paris", text, finish)):
        verdict = grade(one)
        assert verdict.quality is Quality.DEGENERATE and said in verdict.reason, verdict


@pytest.mark.parametrize(
    ("one", "expects", "said"),
    [
        (answer("London."), "Paris", "does not contain 'Paris'"),
        (answer("Pa\x01ris is a nice town indeed"), None, "1 control or replacement character"),
        (answer("\ufffd\ufffd capital of a country"), None, "2 control or replacement characters"),
        (answer("Paris<|im_end|> and so on and so on"), None, "reserved token in it (<|im_end|>)"),
        (answer("capитал ofфранce стр"), None, "mixes scripts within words"),
        (answer("Paris", finish="abort"), None, "aborted"),
    ],
)
def test_odd_answers_are_suspicious(one: Answer, expects: str | None, said: str) -> None:
    verdict = grade(one, expects)
    assert verdict.quality is Quality.SUSPICIOUS and said in verdict.reason


@pytest.mark.parametrize("text", [None, "", "   \n\n"])
@pytest.mark.parametrize("counted", [None, 0, 16])
def test_nothing_is_empty(text: str | None, counted: int | None) -> None:
    verdict = grade(answer(text, completion_tokens=counted), "Paris")
    assert verdict.quality is Quality.EMPTY and "without content" in verdict.reason


def test_tool_calls_alone_are_an_answer() -> None:
    assert grade(answer(None, finish="tool_calls", tool_calls=1)).quality is Quality.GOOD


@pytest.mark.parametrize(
    ("one", "quality"),
    [
        (answer("**PARIS**"), Quality.GOOD),
        (answer("Ｐａｒｉｓ"), Quality.GOOD),
        (answer(None, "The user wants one word", "length"), Quality.GOOD),
        (answer("<think>The user wants one", finish="length"), Quality.GOOD),
        (answer("<think>hm</think> London", finish="length"), Quality.SUSPICIOUS),
        (answer("capital# L of the", finish="length"), Quality.SUSPICIOUS),
    ],
)
def test_the_expected_word(one: Answer, quality: Quality) -> None:
    assert grade(one, "paris").quality is quality


@pytest.mark.parametrize(
    ("text", "known"),
    [("Paris", "Paris."), ("**The secret  word\nis heron**", "The secret word is heron."), ("C++ it is", "C++"), ("?!", "?!")],
)
def test_a_known_answer_may_be_a_whole_one(text: str, known: str) -> None:
    assert grade(answer(text), known).quality is Quality.GOOD
    assert grade(answer("No."), known).quality is Quality.SUSPICIOUS


def test_of_a_missing_word_the_question_may_be_to_blame_and_where_reasoning_took_the_tokens_it_is_not_missed() -> None:
    assert grade(answer("London."), "Paris").lacks_word
    assert not grade(answer("Paris<|im_end|> and so on and so on"), "Paris").lacks_word
    assert grade(answer("The capital", "They ask for the capital", "length"), "Paris").quality is Quality.GOOD
    assert grade(answer("The capital", "They ask for the capital", "stop"), "Paris").lacks_word


def test_half_a_character_at_a_cut_end_is_normal() -> None:
    assert grade(answer("The tower 🗼 in Par\ufffd", finish="length")).quality is Quality.GOOD
    assert grade(answer("The tower 🗼 in Par\ufffd", finish="stop")).quality is Quality.SUSPICIOUS


words = st.lists(st.text(string.ascii_lowercase, min_size=2, max_size=9), min_size=1, max_size=40, unique=True)
letters = st.characters(categories=["Lu", "Ll", "Lo", "Nd"])


@given(words, st.sampled_from(["stop", "length"]))
def test_different_words_are_never_degenerate(found: list[str], finish: str) -> None:
    assert grade(answer(" ".join(found), finish=finish)).quality is Quality.GOOD


@given(st.text(letters, min_size=1, max_size=3), st.sampled_from(["stop", "length"]))
def test_short_answers_of_any_script_are_never_degenerate(text: str, finish: str) -> None:
    assert grade(answer(text, finish=finish)).quality is Quality.GOOD


@given(st.text(st.characters(categories=["L", "P", "S"]), min_size=1, max_size=20), st.integers(16, 64))
def test_any_unit_repeated_to_the_limit_is_degenerate(unit: str, times: int) -> None:
    assert grade(answer(unit * times, finish="length")).quality is Quality.DEGENERATE


@given(st.text(), st.text(), st.sampled_from(["stop", "length", "abort", ""]), st.none() | st.text(max_size=5))
def test_any_text_gets_a_grade_with_a_printable_reason(text: str, reasoning: str, finish: str, expects: str | None) -> None:
    verdict = grade(answer(text, reasoning, finish), expects)
    assert verdict.reason and len(verdict.reason) < 600
    assert "\n" not in verdict.reason and "\x00" not in verdict.reason


@given(st.text(min_size=1))
def test_the_grade_does_not_depend_on_surrounding_space(text: str) -> None:
    assert grade(answer(text)).quality is grade(answer(f"\n {text} \n")).quality


def shaped(**more: object) -> Shape:
    base: dict[str, object] = {
        "text": True,
        "reasoning": False,
        "tool_calls": False,
        "usage": True,
        "model": "m",
        "finish_reason": "stop",
    }
    return Shape(**{**base, **more})  # type: ignore[arg-type]


def test_shape() -> None:
    seen = shape(answer("<think>a</think>Paris<|tool_calls_section_begin|>", "hm", completion_tokens=5, model="kimi"))
    assert seen == shaped(reasoning=True, model="kimi", tags=("</think>", "<think>", "<|tool_calls_section_begin|>"))
    assert shape(answer(None, tool_calls=1)) == shaped(text=False, tool_calls=True, usage=False, model=None)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (shaped(reasoning=True), shaped(), "the reasoning moved into the text"),
        (shaped(), shaped(reasoning=True), "reasoning is split off"),
        (shaped(), shaped(text=False), "the text is gone"),
        (shaped(), shaped(tool_calls=True), "tool calls come"),
        (shaped(), shaped(tags=("<think>",)), "<think> leaks into the text"),
        (shaped(), shaped(usage=False), "usage is missing"),
        (shaped(), shaped(model="n"), "the model has another name"),
        (shaped(), shaped(finish_reason="length"), "it ends with length where it ended with stop"),
    ],
)
def test_drift_names_the_change_and_both_shapes(before: Shape, after: Shape, said: str) -> None:
    told = drift(before, after)
    assert told and said in told and str(before) in told and str(after) in told


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (shaped(), shaped()),
        (shaped(reasoning=True, finish_reason="length"), shaped(reasoning=True, text=False, finish_reason="length")),
        (shaped(usage=False), shaped()),
        (shaped(tags=("<think>",)), shaped()),
        (shaped(finish_reason="length"), shaped()),
    ],
)
def test_what_is_no_drift(before: Shape, after: Shape) -> None:
    assert drift(before, after) is None
