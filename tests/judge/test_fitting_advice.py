"""Advice fits the server: no host pool is to be lowered where there is none, and what is gone is told as what it is."""

from typing import Any

from watchdog.judge import ranks, trouble
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Call
from watchdog.judge.vetoes import oom_advice
from watchdog.observation import Log, Proc, Procs, Server, Unit

INV = "a" * 32
NAMES = ("sglang::data_parallel_controller", "sglang::scheduler_DP0", "sglang::scheduler_DP1", "sglang::detokenizer")


def facts(**args: Any) -> Facts:
    f = Facts(mid_life=True)
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=-9000.0))
    f.see(Server(t=0.1, inv=INV, version="0.5.18", args={"nnodes": 1, **args}))
    return f


def test_a_host_pool_is_lowered_only_where_there_may_be_one() -> None:
    assert "--hicache" not in oom_advice(facts(enable_hierarchical_cache=False))
    assert "--hicache" in oom_advice(facts(enable_hierarchical_cache=True))
    assert "--hicache" in oom_advice(Facts()), "unknown"


def without(missing: str) -> str:
    """What is said of a server of two replicas without one of its processes."""
    f = facts(dp_size=2, enable_hierarchical_cache=False)
    for t in (10.0, 20.0, 30.0, 40.0):
        there = [(8 + i, name) for i, name in enumerate(NAMES) if t < 25 or name != missing]
        procs = [Proc(pid=pid, ppid=7, name=name, state="R", cpu_s=t) for pid, name in there]
        f.see(Procs(t=t, inv=INV, procs=procs, cpu_s=t))
    v = ranks.judge(f, 41.0)
    assert v.reason == "ProcessGone", v
    return v.message


def test_only_a_dead_replica_leaves_others_that_serve() -> None:
    assert "the others serve" in without("sglang::scheduler_DP1")
    assert "nobody will answer" in without("sglang::data_parallel_controller")
    assert "nobody will answer" in without("sglang::detokenizer")


def test_a_storage_back_end_that_fails_is_named() -> None:
    f = facts(enable_hierarchical_cache=True, hicache_storage_backend="mooncake")
    f.see(Log(t=50.0, inv=INV, message="[2026-01-14 02:00:50 TP0] Write page to storage: 128 pages failed."))
    calls: tuple[Call, ...] = trouble.judge(f, 51.0).calls
    assert len(calls) == 1 and "mooncake" in str(calls[0].advice) and "--hicache-ratio" not in str(calls[0].advice)
