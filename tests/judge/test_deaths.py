"""How lives ended: what is written down of them for the next daemon is bounded, and judged as before."""

import msgspec

from watchdog.judge.facts.deaths import DAY_S, KEPT, TEXT, Death, Deaths, Ends, alike, count
from watchdog.sglang.loglines import Mark


def dead(t: float, n: int) -> Death:
    return Death(
        t=t,
        lived_s=30.0,
        ready=False,
        asked=False,
        code="exited with status 1",
        mark=Mark.FATAL,
        text="x" * 5000,
        inv=f"{n:032x}",
    )


def test_a_loop_of_days_takes_little_room_and_counts_the_same_after_a_restart_of_ours() -> None:
    deaths, now = Deaths(), 2 * DAY_S
    for n in range(6000):
        deaths.add(dead(n * now / 6000, n), unseen=n % 2)
    written = msgspec.json.encode(deaths.keep(now))
    assert len(written) < KEPT * (TEXT + 400) + 1441 * 24
    after = Deaths()
    after.recall(msgspec.json.decode(written, type=Ends))
    assert after.in_a_day(now) == deaths.in_a_day(now) > 3000
    assert count(alike(after.early())) == count(alike(deaths.early())) > 8000
    assert [(d.t, d.first, d.inv, d.signature) for d in after] == [(d.t, d.first, d.inv, d.signature) for d in deaths]


def test_what_is_older_than_a_day_is_not_written_down() -> None:
    deaths = Deaths()
    deaths.add(dead(0.0, 1))
    deaths.add(dead(10.0, 2))
    ends = deaths.keep(DAY_S + 5.0)
    assert ([d.t for d in ends.deaths], ends.minutes) == ([10.0], []), "the minute of the first one is over"
