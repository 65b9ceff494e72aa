"""Whom the queue has kept out."""

import pytest

from watchdog.judge.facts.queue import Queue


def seen(*lengths: tuple[float, int]) -> Queue:
    queue = Queue()
    for t, length in lengths:
        queue.see(t, length)
    return queue


@pytest.mark.parametrize(
    ("lengths", "kept_out"),
    [
        ((), False),  # nothing is known of a queue
        (((0, 0), (200, 0)), False),
        (((50, 3),), True),
        (((50, 3), (180, 0)), True),
        (((50, 3), (140, 0)), False),  # let in while it was still waited for
        (((50, 3), (140, 0), (141, 2)), False),
        (((101, 1),), True),  # it is the one that waits
        (((110, 3), (300, 0)), False),  # it had been let in before others came
    ],
)
def test_a_request_made_at_100_and_looked_at_by_150(lengths: tuple[tuple[float, int], ...], kept_out: bool) -> None:
    assert seen(*lengths).kept_out(100.0, 150.0) is kept_out


def test_since_when_somebody_waits() -> None:
    queue = seen((10, 1), (20, 4))
    assert queue.since == 10
    queue.forgive(30.0)
    assert queue.since == 30.0
    queue.see(40, 0)
    assert queue.since is None
    queue.forgive(50.0)
    assert queue.since is None
    assert queue.kept_out(12.0, 35.0), "we were away, not the queue"
