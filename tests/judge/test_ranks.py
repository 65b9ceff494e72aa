"""What the processes of the unit tell while all of them are there."""

from watchdog.judge import ranks
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Status
from watchdog.observation import Log, Probe, Proc, Procs, Unit

INV = "a" * 32
UP = Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=-9000.0)


def look(t: float, *states: str) -> Procs:
    names = ("sglang::scheduler", "sglang::detokenizer")
    procs = [Proc(pid=8 + n, ppid=7, name=names[n], state=s, cpu_s=t, rss=1, wchan="0") for n, s in enumerate(states)]
    return Procs(t=t, inv=INV, procs=procs, cpu_s=t)


def judged(*looks: Procs) -> tuple[Status, str, str]:
    f = Facts()
    for x in (UP, *looks):
        f.see(x)
    v = ranks.judge(f, looks[-1].t + 1.0)
    return v.status, v.reason, v.message


def test_a_stopped_process_is_not_simply_present() -> None:
    status, reason, message = judged(look(10.0, "T", "S"), look(20.0, "T", "S"))

    assert (status, reason) == (Status.UNKNOWN, "Stopped")
    assert "sglang::scheduler (pid 8)" in message and "state T" in message


def test_a_process_that_is_stopped_for_a_moment_is_present() -> None:
    assert judged(look(10.0, "R", "S"), look(20.0, "T", "S"))[1] == "AllPresent"
    assert judged(look(10.0, "T", "S"), look(20.0, "R", "S"))[1] == "AllPresent"
    assert judged(look(10.0, "t", "S"), look(20.0, "t", "S"))[1] == "AllPresent", "a debugger is told of elsewhere"


def gone(*seen: Procs | Log | Probe) -> tuple[str, str]:
    f = Facts()
    for x in sorted((UP, *seen), key=lambda x: x.t):
        f.see(x)
    v = ranks.judge(f, 31.0)
    return v.reason, v.message


def step(t: float) -> Log:
    line = "Decode batch, #running-req: 1, #token: 900, token usage: 0.01, gen throughput (token/s): 40.00, #queue-req: 0"
    return Log(t=t, inv=INV, message=f"[2026-01-14 02:00:{t:02.0f}] {line}")


def test_a_process_is_gone_when_two_looks_miss_it() -> None:
    for states, name in ((("R",), "detokenizer"), (("", "S"), "scheduler")):
        missed = [look(t, *states) for t in (20.0, 30.0)]
        for x in missed:
            x.procs[:] = [proc for proc in x.procs if proc.state]
        reason, message = gone(look(10.0, "R", "S"), *missed)
        assert reason == "ProcessGone" and name in message


def test_what_goes_on_and_cannot_without_it_disproves_the_look() -> None:
    seen = look(10.0, "R", "S")
    main_alone = [
        Procs(t=t, inv=INV, procs=[Proc(pid=7, ppid=1, name="python3", state="S", cpu_s=t, rss=1)], cpu_s=t) for t in (20.0, 30.0)
    ]
    assert gone(seen, *main_alone)[0] == "ProcessGone"
    assert gone(seen, *main_alone, step(25.0))[0] == "AllPresent", "no step without its scheduler"
    answered = Probe(t=26.0, inv=INV, probe="chat", outcome="ok", status=200, total_s=0.4, limit_s=60.0)
    assert gone(seen, *main_alone, answered)[0] == "AllPresent"

    no_detokenizer = [look(t, "R") for t in (20.0, 30.0)]
    assert gone(seen, *no_detokenizer, step(25.0))[0] == "ProcessGone", "batches go on without it"


def test_a_look_that_shows_nothing_at_all_could_not_see() -> None:
    nothing = [Procs(t=t, inv=INV, procs=[], cpu_s=t) for t in (20.0, 30.0)]
    assert gone(look(10.0, "R", "S"), *nothing)[0] == "AllPresent"


def test_a_fork_that_ends_is_no_rank_that_is_gone() -> None:
    """fork(2) leaves the child the command line of its parent until it runs something else."""
    looks = [look(t, "R", "S") for t in (10.0, 20.0, 30.0)]
    looks[0].procs.append(Proc(pid=77, ppid=8, name="sglang::scheduler", state="R"))

    assert gone(*looks)[0] == "AllPresent"
    assert gone(looks[0])[1].startswith("2 engine processes")


def test_ranks_with_one_title_are_each_missed() -> None:
    """Where titles cannot be read, the first 15 characters are all that is seen: the same for all ranks."""
    looks = [look(t, "R", "S") for t in (10.0, 20.0, 30.0)]
    looks[0].procs.append(Proc(pid=10, ppid=7, name="sglang::scheduler", state="R"))

    assert gone(*looks)[0] == "ProcessGone"
