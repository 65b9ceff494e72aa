"""What the accept length's gauge says where no line of the log tells it."""

import pytest

from watchdog.judge.facts.accepted import Accepted
from watchdog.observation import Metrics

INTERVAL_S = 15.0


def scraped(values: list[float], *, moving: bool = True) -> Accepted:
    facts = Accepted()
    for i, value in enumerate(values):
        o = Metrics(t=i * INTERVAL_S, ok=True, values={"spec_accept_length": value, "num_running_reqs": 4.0})
        facts.see_metrics(o, moving=moving)
    return facts


@pytest.mark.parametrize(
    ("last", "moving", "seen"),
    [
        ([1.0] * 40, True, 1.0),  # nothing is accepted, again and again: no two such figures differ
        ([1.0] * 40, False, None),  # what an idle engine left behind
        ([2.6, 2.8, 2.7] * 20, True, 2.7),
    ],
)
def test_the_same_figure_again_counts_while_it_decodes(last: list[float], moving: bool, seen: float | None) -> None:
    found = scraped(last, moving=moving).now(len(last) * INTERVAL_S)
    assert (None if found is None else found[0]) == seen


@pytest.mark.parametrize("rate", [1, 200])
def test_minutes_of_a_busy_server_are_known_and_held_in_few_figures(rate: int) -> None:
    facts = Accepted()
    for n in range(1200 * rate):
        facts.see(n / rate, 2.7 if n < 500 * rate else 1.2, 4.0)
    found = facts.now(1200.0)
    assert found is not None
    median, count, lasting = found
    assert median == 1.2 and count == pytest.approx(600 * rate, rel=0.01) and lasting == pytest.approx(600.0, abs=2.0)
    assert facts.latest(1200.0) == 1.2 and facts.baseline() == 2.7
    assert len(facts.recent.figures) <= 602


def test_the_latest_is_of_the_newest_batches_alone() -> None:
    facts = Accepted()
    for n in range(100):
        facts.see(n / 100, 2.7 if n < 90 else 1.2, 4.0)
    assert facts.latest(1.0) == 1.2
    assert facts.latest(200.0) is None
