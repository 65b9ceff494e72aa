"""Batch and access lines: a line of a known form means what it would mean if it were the first of its form."""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang import bulk, loglines_bulk
from watchdog.sglang.loglines import Line, Mark, classify

EXAMPLES = [
    json.loads(row)["line"] for row in (Path(__file__).parent / "log_examples.jsonl").read_text(encoding="utf-8").splitlines()
]
BULK = [line for line in EXAMPLES if (seen := classify(line)) is not None and seen.mark in ("prefill", "decode", "access")]
DECODE = (
    "[2026-02-14 03:12:45 TP0] Decode batch, #running-req: 3, #token: 21044, token usage: 0.13, gen throughput (token/s): 1.5"
)


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    loglines_bulk._readers.clear()


def as_if_first(line: str) -> Line | None:
    """What the line means to one who has seen no line before."""
    known = dict(loglines_bulk._readers)
    loglines_bulk._readers.clear()
    seen = classify(line)
    loglines_bulk._readers.clear()
    loglines_bulk._readers.update(known)
    return seen


def numbers_of(body: str) -> dict[str, float]:
    """The values of a batch line under SGLang's names, read in the simplest way."""
    found = {}
    for pair in body[body.index("#") :].split(", "):
        key, _, value = pair.partition(": ")
        try:
            found[key] = float(value.rstrip(" ,"))
        except ValueError:
            continue
    return found


@st.composite
def alike(draw: st.DrawFn) -> tuple[str, str]:
    """Two lines that differ in their digits, and often in a character or two more."""
    first = draw(st.sampled_from(BULK))
    numbers = draw(st.randoms(use_true_random=False))

    def other(match: re.Match[str]) -> str:
        return str(numbers.randrange(10)) if numbers.random() < 0.95 else numbers.choice("0x.-_e ")

    second = re.sub(r"\d", other, first)
    for place, character in draw(st.lists(st.tuples(st.integers(0, 300), st.characters()), max_size=2)):
        second = second[:place] + character + second[place + 1 :]
    return first, second


@given(alike())
def test_a_known_form_changes_no_meaning(lines: tuple[str, str]) -> None:
    first, second = lines
    classify(first)
    assert repr(classify(second)) == repr(as_if_first(second))
    assert repr(classify(second)) == repr(as_if_first(second))
    assert repr(classify(first)) == repr(as_if_first(first))


def test_the_values_are_those_of_the_line_at_hand() -> None:
    chance = random.Random(7)
    known = 0
    for _ in range(2000):
        running, tokens, speed = chance.randrange(200), chance.randrange(10**6), round(chance.uniform(0, 3000), 2)
        rank = f"DP{chance.randrange(16)} TP{chance.randrange(16)}"
        body = f"Decode batch, #running-req: {running}, #token: {tokens}, gen throughput (token/s): {speed:.2f}, #queue-req: 0"
        line = f"[2026-02-14 03:12:{chance.randrange(60):02d} {rank}] {body}"
        known += loglines_bulk.read_known(line) is not None
        seen = classify(line)
        assert seen is not None
        assert (seen.mark, seen.rank, seen.message) == (Mark.DECODE, rank, body)
        assert list(seen.fields.values()) == list(numbers_of(body).values())
    assert known > 1500


@pytest.mark.parametrize("number", ["007", "1e5", "nan", "-7", "1_000", "1.", ".5", "inf", "1" * 400])
def test_numbers_as_json_does_not_write_them(number: str) -> None:
    line = DECODE.replace("21044", number)
    for _ in range(2):
        seen = classify(line)
        assert seen is not None
        assert repr(seen.fields["tokens"]) == repr(float(number))


def test_other_letters_are_another_form() -> None:
    path = '[2026-02-14 03:12:45] INFO:     127.0.0.1:4 - "GET /a{}b HTTP/1.1" 200 OK'
    paths = []
    for letter in ("?", "é", "c", "?"):
        seen = classify(path.format(letter))
        assert seen is not None
        paths.append(seen.text["path"])
    assert paths == ["/a", "/aéb", "/acb", "/a"]


def test_the_number_of_forms_is_bounded() -> None:
    letters = "abcdefghij"
    for i in range(3 * bulk.MAX_FORMS):
        path = "".join(letters[int(digit)] for digit in str(i))
        classify(f'[2026-02-14 03:12:45] INFO:     127.0.0.1:4 - "GET /{path} HTTP/1.1" 200 OK')
        assert len(loglines_bulk._readers) <= bulk.MAX_FORMS
    before = len(loglines_bulk._readers)
    classify(DECODE + " " * loglines_bulk.MAX_LENGTH)
    assert len(loglines_bulk._readers) == before


def test_fields_of_one_line_do_not_reach_the_next() -> None:
    for line in BULK:
        first = classify(line)
        assert first is not None
        first.fields["x"] = 1
        first.text["x"] = "x"
        second = classify(line)
        assert second is not None
        assert "x" not in {*second.fields, *second.text}
