"""The pace of prefills is learned from prefills, not from the steps of decoding that lie between two lines."""

import pytest

from watchdog.judge.facts.prefill_pace import PrefillPace


def test_a_thousand_tokens_a_second_are_assumed_until_a_prefill_was_seen() -> None:
    assert PrefillPace().s(8000) == 8.0


def test_the_first_large_prefill_under_way_may_be_one_of_a_slow_engine() -> None:
    pace = PrefillPace()
    assert (pace.first_s(2000), pace.first_s(50_000)) == (20.0, 100.0)
    pace.see(0.2, 400, None, waiting=False)
    assert pace.first_s(2000) == pace.s(2000) == 2.0


def test_short_prompts_before_decode_lines_make_no_chunk_slow() -> None:
    """350 tokens in 40 ms, and then up to two seconds of decoding until the next line."""
    pace = PrefillPace()
    for i in range(64):
        pace.see(0.04 + i / 32, 350, None, waiting=False)

    assert pace.s(8192) < 15


def test_short_prompts_of_a_slow_engine_make_a_chunk_slow() -> None:
    """100 tokens a second: the decoding adds little to it."""
    pace = PrefillPace()
    for i in range(20):
        pace.see(3.5 + i / 10, 350, None, waiting=False)

    assert 75 < pace.s(8192) < 120


def test_chunks_tell_it_and_one_pause_among_them_does_not() -> None:
    pace = PrefillPace()
    for i in range(20):
        pace.see(30.0 if i == 7 else 0.9, 8192, 8192, waiting=True)
        pace.see(2.0, 300, None, waiting=False)

    assert pace.s(8192) == pytest.approx(8192 / 5000)  # faster is not believed


def test_slow_chunks_outweigh_many_short_prompts() -> None:
    pace = PrefillPace()
    pace.see(26.0, 8192, 8192, waiting=True)
    for _ in range(64):
        pace.see(0.3, 300, None, waiting=False)

    assert pace.s(8192) == pytest.approx(26.0)


def test_lines_that_are_printed_at_the_end_tell_of_their_own_prefill() -> None:
    """SGLang 0.5.23: between the lines of a short and of a long prompt lies the long one, and the other way round."""
    pace = PrefillPace()
    pace.see(5.0, 300, 8192, waiting=True)
    assert pace.s(8192) == pytest.approx(8.192)
    for _ in range(3):
        pace.see(0.2, 8192, 300, waiting=True)  # may be the time of the short one, and tells nothing of chunks
    assert pace.s(8192) == pytest.approx(8.192)
    pace.see(5.0, 2048, 8192, waiting=True)
    assert pace.s(2048) == pytest.approx(5.0)
