"""A start that says nothing for long: workers that compile below the ranks are progress, spinning ranks are none."""

import pytest

from watchdog.config import Judging
from watchdog.judge import startup
from watchdog.judge.facts import Facts
from watchdog.observation import Proc, Procs, Unit

INV = "a" * 32
STUCK = "StartStuck"


def stuck_at(cores: float, workers: range, until: float, *, parent: int = 8, title: str = "python3") -> float | None:
    """When such a start is called stuck; None if never.

    Args:
        cores: how much each of eight workers uses while they work.
        workers: the seconds in which they work.
        until: how long it is looked at.
        parent: whose children they are: 7 is the main process, 8 the rank; each worker is the child of a pool below that.
        title: what they are called.
    """
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    used = 0.0
    for t in range(10, int(until), 10):
        working = t in workers
        used += 10.0 * cores if working else 0.0
        procs = [
            Proc(pid=7, ppid=1, name="python3", state="S", cpu_s=20.0),
            Proc(pid=8, ppid=7, name="sglang::scheduler", state="R", cpu_s=float(t)),
            Proc(pid=9, ppid=7, name="sglang::detokenizer", state="S", cpu_s=4.0),
            Proc(pid=20, ppid=parent, name="python3", state="S", cpu_s=0.1),
            *(Proc(pid=21 + i, ppid=20, name=title, state="R" if working else "S", cpu_s=used) for i in range(8)),
        ]
        f.see(Procs(t=float(t), inv=INV, procs=procs, cpu_s=t + 8 * used + 24.0))
        if startup.judge(f, Judging(), t + 1.0).reason == STUCK:
            return t + 1.0
    return None


SPINNING = stuck_at(0.0, range(0), 3000.0)


def test_spinning_ranks_alone_are_stuck() -> None:
    assert SPINNING is not None and SPINNING <= 1220.0


def test_workers_that_compile_below_a_rank_are_waited_for() -> None:
    assert stuck_at(0.6, range(60, 1500), 2600.0) is None
    assert stuck_at(0.6, range(60, 1500), 2600.0, title="sglang::scheduler") is None, "forks that kept the title"


def test_after_them_it_has_as_long_as_after_any_other_sign() -> None:
    found = stuck_at(0.6, range(60, 1500), 4000.0)
    assert found is not None and SPINNING is not None and found == pytest.approx(1500.0 + SPINNING, abs=30.0)


def test_a_helper_that_spins_holds_it_up_for_an_hour_at_most() -> None:
    found = stuck_at(0.2, range(90_000), 9000.0)
    assert found is not None and SPINNING is not None and found <= 3600.0 + SPINNING + 30.0


def test_helpers_that_idle_and_processes_that_belong_to_no_rank_are_no_sign() -> None:
    assert stuck_at(0.01, range(90_000), 3000.0) == SPINNING
    assert stuck_at(0.6, range(90_000), 3000.0, parent=7) == SPINNING
