"""What the processes of the unit tell while all of them are there."""

from watchdog.judge import ranks
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Status
from watchdog.observation import Proc, Procs, Unit

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
