"""How long an engine may be silent: by what it works on, by what it says, by whether it can work at all."""

import pytest

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.patience import HARD_S, LONGEST_S, patience
from watchdog.observation import Gpu, GpuDevice, Log, Observation, Proc, Procs, Server, Unit

INV = "a" * 32
POLICY = Judging()
UP = Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=-90_000.0)
NO_GPU = Gpu(t=1.0, ok=False, error="no_driver", expected=0)


def looks(cores: float, state: str = "R") -> list[Observation]:
    """Two looks at the scheduler, ten seconds apart, which uses so many cores between them."""
    return [
        Procs(
            t=t,
            inv=INV,
            procs=[Proc(pid=9, ppid=7, name="sglang::scheduler", state=state, cpu_s=500.0 + cores * t, rss=1, wchan="0")],
            cpu_s=600.0 + cores * t,
        )
        for t in (90.0, 100.0)
    ]


def server(chunk: int) -> Server:
    return Server(t=2.0, inv=INV, args={"chunked_prefill_size": chunk, "max_prefill_tokens": 16384})


def gpus(*watts: float) -> list[Observation]:
    """One round of one GPU for each power, five seconds apart, up to the present."""
    first = 100.0 - 5.0 * (len(watts) - 1)
    return [
        Gpu(t=first + 5.0 * n, ok=True, gpus=[GpuDevice(index=0, util=1.0, power_w=w, power_limit_w=600.0)], expected=1)
        for n, w in enumerate(watts)
    ]


def patient(*seen: Observation) -> float:
    f = Facts()
    for x in sorted((UP, *seen), key=lambda x: x.t):
        f.see(x)
    return patience(f, POLICY, 105.0)[0]


@pytest.mark.parametrize(
    ("seen", "limit"),
    [
        ((), POLICY.hang_s),
        ((NO_GPU, *looks(1.1)), POLICY.hang_s),  # an idle scheduler spins, and so does a stuck one
        ((NO_GPU, *looks(24.0)), LONGEST_S),  # one that computes
        ((NO_GPU, server(8192), *looks(24.0)), LONGEST_S),
        ((NO_GPU, server(-1), *looks(24.0)), HARD_S),  # a step may hold a prompt of any length
        ((*gpus(90, 90, 500), *looks(24.0)), 3 * POLICY.hang_s),  # where there are GPUs, their power tells
        ((server(-1), *gpus(90, 90, 500)), HARD_S),
        ((server(-1), *gpus(90, 90, 250)), 3 * POLICY.hang_s),  # at work, but it may be no step of hard work
        ((server(-1), *gpus(90, 90, 150)), POLICY.hang_s),  # they wait for each other
        ((server(-1), *looks(0.0, "T")), POLICY.hang_s),  # no prompt explains a process that a signal has stopped
        ((server(-1), *gpus(90, 90, 500), *looks(0.0, "T")), POLICY.hang_s),
    ],
)
def test_what_explains_silence(seen: tuple[Observation, ...], limit: float) -> None:
    assert patient(*seen) == limit


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-14 02:00:50 TP0] Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=24576, K=1536, num_groups=1 with all Ms.",
        "DeepGEMM warmup:   5%|| 800/16384 [00:10<03:10, 80.1it/s]",
    ],
)
def test_kernels_that_are_compiled_in_the_middle_of_a_life_are_waited_for(line: str) -> None:
    assert patient(Log(t=50.0, inv=INV, message=line)) == LONGEST_S
