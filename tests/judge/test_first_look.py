"""What can be known of a server that was there before we looked."""

from typing import Any

import pytest

from watchdog.judge.facts import Facts
from watchdog.judge.facts.devices import Devices
from watchdog.judge.facts.life import Life, Phase
from watchdog.judge.ranks import judge as judge_ranks
from watchdog.judge.verdict import Status, Verdict, Want
from watchdog.observation import Gpu, GpuDevice, Probe, Proc, Procs, Server, Unit

LIFE = "a" * 32


@pytest.mark.parametrize(
    ("waited_s", "body", "phase"),
    [
        pytest.param(20.0, "", Phase.SERVING, id="it has asked its engine"),
        pytest.param(0.004, "", Phase.STARTING, id="it starts"),
        pytest.param(20.0, "<h1>503 Service Unavailable</h1>", Phase.STARTING, id="a proxy's word"),
    ],
)
def test_a_503_after_a_wait_comes_from_a_server_that_was_ready(waited_s: float, body: str, phase: Phase) -> None:
    life = Life()
    life.see_unit(
        Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", since=-1500.0, main_pid=7)
    )
    assert life.phase() is Phase.STARTING
    life.see_probe(
        Probe(t=30.0, inv=LIFE, probe="health", outcome="status", status=503, total_s=waited_s, limit_s=25.0, body=body)
    )
    assert life.phase() is phase


@pytest.mark.parametrize(("watts", "works"), [(490.0, True), (150.0, False)])
def test_power_near_the_limit_is_work_also_of_gpus_that_were_never_seen_at_rest(watts: float, works: bool) -> None:
    devices = Devices()
    for t in (0.0, 5.0, 10.0):
        gpu = GpuDevice(index=0, util=1.0, power_w=watts, power_limit_w=600.0)
        devices.see(Gpu(t=t, ok=True, expected=1, gpus=[gpu]), working=False, settled=False)
    assert devices.at_work(11.0) is works


def rank_server(ranks: tuple[int, ...], *, args: dict[str, Any] | None = None, ready: bool = True, looks: int = 3) -> Verdict:
    """A server of four ranks that is first seen with these, after `looks` looks."""
    f = Facts()
    f.see(Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", since=-900.0, main_pid=7))
    four = {"tp_size": 4, "dp_size": 1, "pp_size": 1, "nnodes": 1, "node_rank": 0}
    f.see(Server(t=0.1, inv=LIFE, args=four if args is None else args))
    if ready:
        f.see(Probe(t=0.5, inv=LIFE, probe="health", outcome="ok", status=200, total_s=0.01, limit_s=25.0))
    for n in range(looks):
        procs = [Proc(pid=10 + i, ppid=7, name=f"sglang::scheduler_TP{i}", state="S") for i in ranks]
        procs.append(Proc(pid=30, ppid=7, name="sglang::detokenizer", state="S"))
        f.see(Procs(t=1.0 + 10.0 * n, inv=LIFE, procs=procs))
    return judge_ranks(f, 1.0 + 10.0 * looks)


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_a_rank_that_had_gone_before_we_looked_is_missed(missing: int) -> None:
    verdict = rank_server(tuple(i for i in range(4) if i != missing))
    assert (verdict.status, verdict.reason) == (Status.FALSE, "ProcessGone")
    assert f"sglang::scheduler_TP{missing} (gone before we looked)" in verdict.message
    (call,) = verdict.calls
    assert call.want is Want.RESTART and "engine processes expected: 5, left: 4" in call.evidence


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"ranks": (0, 1, 2, 3)}, id="all there"),
        pytest.param({"ranks": (0, 1, 2), "ready": False}, id="still starting"),
        pytest.param({"ranks": (0, 1, 2), "looks": 1}, id="one look"),
        pytest.param({"ranks": (0, 1, 2), "args": {}}, id="no argument known"),
        pytest.param({"ranks": (0, 1, 2), "args": {"tp_size": 4}}, id="a line that was cut, or defaults left out"),
        pytest.param(
            {"ranks": (0, 1), "args": {"tp_size": 4, "dp_size": 1, "nnodes": 2, "node_rank": 0}}, id="the others elsewhere"
        ),
        pytest.param({"ranks": (4, 5), "args": {"tp_size": 4, "dp_size": 1, "nnodes": 1}}, id="not the ranks that are expected"),
        pytest.param({"ranks": (), "args": None}, id="schedulers elsewhere"),
        pytest.param(
            {"ranks": (0, 1), "args": {"tp_size": 2, "dp_size": 2, "nnodes": 1, "enable_dp_attention": True}}, id="other names"
        ),
    ],
)
def test_no_rank_is_missed_where_it_is_not_sure_that_it_should_be_there(case: dict[str, Any]) -> None:
    verdict = rank_server(**case)
    assert verdict.status is Status.TRUE and verdict.calls == ()
