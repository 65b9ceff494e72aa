"""Figures of the last minutes are put together by the second."""

from watchdog.judge.facts.recent import Recent


def test_figures_that_come_slowly_are_kept_as_they_are() -> None:
    recent = Recent(60.0)

    assert [recent.add(10.0 * n, float(n)) for n in range(4)] == [False] * 4
    assert [tuple(figure) for figure in recent.figures] == [(0.0, 0.0, 1), (10.0, 1.0, 1), (20.0, 2.0, 1), (30.0, 3.0, 1)]


def test_those_of_a_second_become_their_median() -> None:
    recent = Recent(60.0)

    assert [recent.add(t, value) for t, value in ((0.0, 1.0), (0.2, 9.0), (0.4, 2.0), (0.9, 3.0), (1.0, 7.0))] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert [tuple(figure) for figure in recent.figures] == [(0.0, 2.5, 4), (1.0, 7.0, 1)]


def test_however_many_come_minutes_of_them_are_held_in_few() -> None:
    recent = Recent(60.0)
    for n in range(50 * 200):
        recent.add(n / 50, 1.0)

    assert len(recent.figures) <= 62
    assert recent.figures[-1].t - recent.figures[0].t > 58.0
    assert recent.count == sum(figure.many for figure in recent.figures) > 58 * 50
