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
