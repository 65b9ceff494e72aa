"""Killed by the kernel for memory: seen, inferred, or not said; and what follows from an end is not told as its cause."""

import pytest

from tests.judge.reference import GB, INV, STAMP, Deployment
from watchdog import observation as o
from watchdog.judge import kernel_lines
from watchdog.judge.facts.kills import SEEN_S, Kills
from watchdog.judge.verdict import Status

SEEN = "killed by the kernel for memory"
OOM = "Out of memory: Killed process {pid} (sglang::schedul) total-vm:90kB, anon-rss:80kB, file-rss:0kB, shmem-rss:0kB"


def served(room: float = 100 * GB) -> Deployment:
    d = Deployment(host=round(30 * GB + 358.16 * GB + 32 * GB + room), tick_s=5.0).start()
    for _ in range(8):
        d.look()
    return d


def looked(d: Deployment, count: int = 4) -> str:
    """Some looks later: what is said of the processes."""
    for _ in range(count):
        d.look()
    return d.verdict("ProcessesPresent").message


def lost(d: Deployment, rank: int = 0) -> None:
    d.gone.add(rank)


def test_the_units_counter_names_the_kill() -> None:
    d = served()
    lost(d)
    d.oom_kills = 1
    said = looked(d)
    assert "scheduler_TP0 (pid 100), killed by the kernel for memory;" in said
    call = next(i for i in d.intents if str(i.action) == "restart")
    assert call.reason == "ProcessGone" and SEEN in call.message and "--hicache-ratio" in (call.advice or "")


def test_a_counter_that_stood_there_before_names_nothing() -> None:
    d = Deployment()
    d.oom_kills = 3
    d.start()
    lost(d)
    assert SEEN not in looked(d)


@pytest.mark.parametrize(("pid", "named"), [(100, True), (101, False), (77, False)])
def test_the_kernels_line_names_it_where_it_is_about_this_process(pid: int, named: bool) -> None:
    d = served()
    lost(d)
    d.feed(o.Kernel(t=d.t, message=OOM.format(pid=pid)))
    said = looked(d)
    assert (f"{SEEN} (the host had none left)" in said) is named


def test_it_is_inferred_where_memory_had_run_out() -> None:
    d = served(room=0.4 * GB)
    lost(d)
    said = looked(d)
    assert f"probably {SEEN}: 0.4 GiB were left" in said


@pytest.mark.parametrize(("code", "inferred"), [(-9, True), (137, True), (-11, False), (1, False)])
def test_it_is_not_inferred_against_an_exit_code(code: int, inferred: bool) -> None:
    d = served(room=0.4 * GB)
    d.log(f"{STAMP}] Subprocess scheduler_0 (pid=100) crashed with exit code {code}. Triggering SIGQUIT for cleanup...")
    lost(d)
    assert ("probably" in looked(d)) is inferred


def test_it_is_not_inferred_where_there_was_room() -> None:
    d = served()
    lost(d)
    assert SEEN not in looked(d)


@pytest.mark.parametrize("result", ["oom-kill", "signal"])
def test_the_death_of_the_whole_server_is_named(result: str) -> None:
    d = served()
    d.oom_kills = 1
    d.look()
    d.feed(
        o.Unit(
            t=d.t,
            inv=INV,
            load_state="loaded",
            active_state="failed",
            sub_state="failed",
            result=result,
            exec_main_code="killed",
            exec_main_status=9,
            restart="no",
        )
    )
    d.t += 60.0
    said = d.verdict("UnitActive").message
    assert "killed by the kernel for memory (" in said, said


def test_what_a_lost_process_gave_back_is_no_pool_that_shrank() -> None:
    d = served()
    lost(d, 3)
    for _ in range(12):
        d.look()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.UNKNOWN, "ProcessesMissing")
    assert d.reasons("restart") == {"ProcessGone"} and not d.reasons()


def test_nor_is_what_a_dying_server_gives_back() -> None:
    d = served()
    d.log(f"{STAMP}] Received sigquit from a child process. It usually means the child failed.")
    d.held = [held / 3 for held in d.held]
    for _ in range(4):
        d.look()
    assert d.condition("FootprintAsAnnounced").reason == "ProcessesMissing" and not d.reasons()


def test_a_dying_server_whose_scheduler_is_gone_names_it() -> None:
    d = served()
    d.log(f"{STAMP} TP0] Scheduler hit an exception: Traceback (most recent call last):")
    lost(d)
    said = looked(d, 3)
    assert said.startswith("Dying for") and "gone from the unit: sglang::scheduler_TP0 (pid 100)" in said
    assert not d.reasons("restart")  # it dumps and waits by itself for up to 76 s
    looked(d, 9)
    call = next(i for i in d.intents if str(i.action) == "restart")
    assert call.reason == "DyingNeverEnded" and "gone from the unit: sglang::scheduler_TP0 (pid 100)" in call.message


def test_a_scheduler_that_is_defunct_at_the_first_look_is_missed() -> None:
    d = Deployment(mid_life=True)
    d.unit()
    for _ in range(3):
        d.t += 10.0
        procs = [
            o.Proc(pid=100, name="sglang::scheduler_TP0", state="Z"),
            o.Proc(pid=101, name="sglang::scheduler_TP1", state="S"),
        ]
        d.feed(o.Procs(t=d.t, inv=INV, procs=procs))
    c = d.condition("ProcessesPresent")
    assert c.reason == "ProcessGone" and "scheduler_TP0 (pid 100)" in c.message and "TP1" not in c.message


def test_the_number_of_a_process_that_went_long_ago_is_not_its_own_for_ever() -> None:
    kills = Kills()
    kills.begin(INV)
    for t, pid in ((0.0, 5), (10.0, 6), (10.0 + SEEN_S, 7)):
        kills.see_procs(o.Procs(t=t, inv=INV, procs=[o.Proc(pid=pid, name="sh")]), INV)
    for pid, named in ((5, False), (6, True), (7, True)):
        at = 20.0 + SEEN_S
        fact = kernel_lines.classify(OOM.format(pid=pid))
        assert fact is not None
        kills.see_kernel(at, fact)
        assert (kills.said(at, INV, guess=False) is not None) is named
