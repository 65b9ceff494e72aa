"""Starts: slow ones that get on, stuck ones, and those that a restart cannot help."""

from functools import partial
from typing import Any

from tests.incidents.case import MAY, NOT, case, must
from tests.incidents.sim import Sim

GIB = 1024**3


@case(
    "cold-start",
    until=1500,
    variants=("plain", "no-metrics", "0.5.9", "0.5.5", "one-gpu", "bare", "busy", "idle"),
    mid_life=False,
    alert=NOT,
)
def plain_start(s: Sim) -> None:
    s.at(20, s.boot)


@case("sgl-pp", until=1500, variants=("plain",), mid_life=False, alert=NOT, nnodes=2, node_rank=1, metrics=False, rate=0.0)
def second_node_starts(s: Sim) -> None:
    from tests.incidents import wording

    s.at(20, s.boot)
    s.lose = lambda line: wording.READY in line or "Uvicorn" in line or "Application" in line or "Started server" in line


@case(
    "vllm-weight-load-10min",
    until=2600,
    variants=("plain", "no-metrics", "0.5.9", "bare"),
    mid_life=False,
    alert=NOT,
    start={"weights": 1700.0},
)
def weights_from_a_slow_disk(s: Sim) -> None:
    s.at(20, s.boot)


@case("vllm-weight-load-10min", until=2400, variants=("plain", "no-metrics"), mid_life=False, start={"weights": 1300.0})
def bars_are_held_back(s: Sim) -> None:
    """journald delivers the bars late, as one line: only bytes read and GPU memory show that the load gets on."""
    s.at(20, s.boot)
    s.lose = lambda line: "safetensors" in line


@case(
    "sgl-deepgemm-warmup-23min",
    "sgl-jit-every-start",
    until=2600,
    variants=("plain", "0.5.9", "bare"),
    mid_life=False,
    alert=NOT,
    start={"graphs": 1400.0},
)
def deepgemm_warms_up(s: Sim) -> None:
    s.at(20, s.boot)
    begin = 20 + 5 + 30 + 8 + 2 + 110 + 4

    def said(i: int) -> None:
        s.log(f"DeepGEMM warmup: {i}%|##| {i * 20}/2000 [{i // 6:02d}:{i % 60:02d}<10:00, 2.40it/s]", "bare")

    s.at(
        begin + 1,
        lambda: s.log(
            "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) if you have run `sglang.compile_deep_gemm`.",
            "TP0",
        ),
    )
    for i in range(1, 95):
        s.at(begin + 14.0 * i, partial(said, i))


@case(
    "sgl-omni-flashinfer-jit-678s", until=1800, variants=("plain", "0.5.9", "no-metrics"), mid_life=False, start={"graphs": 740.0}
)
def compilers_in_the_cgroup(s: Sim) -> None:
    s.at(20, s.boot)
    s.at(200, lambda: setattr(s.looks, "compilers", ["ninja", "nvcc", "cicc", "ptxas"]))
    s.at(900, lambda: setattr(s.looks, "compilers", []))


def waits_for_files(s: Sim, until: float | None = None) -> None:
    """The file server dies in the middle of the weights; all ranks wait for it."""
    away = [False]
    s.at(20, s.boot)
    s.lose = lambda line: away[0]

    def goes() -> None:
        away[0], s.looks.sleeping = True, "D"
        s.looks.freeze_growth(s.now)
        s.after(30, lambda: s.looks.kernel("nfs: server 10.0.4.4 not responding, still trying"))

    def comes() -> None:
        s.looks.kernel("nfs: server 10.0.4.4 OK")
        s.after(25, goes_on)

    def goes_on() -> None:
        away[0], s.looks.sleeping = False, None
        for ramp in (s.looks.gpu_mem, s.looks.anon, s.looks.read):
            ramp.hold = None

    s.at(100, goes)
    if until is not None:
        s.at(until, comes)


@case(
    "vllm-weight-load-10min",
    until=1500,
    variants=("plain", "no-gpu-source"),
    mid_life=False,
    alert=must(150, 600, "10.0.4.4"),
    withhold=must(600, 1400, "file server"),
    start={"weights": 3000.0},
)
def file_server_dies_during_the_load(s: Sim) -> None:
    waits_for_files(s)


@case(
    "vllm-weight-load-10min",
    until=1700,
    mid_life=False,
    alert=must(150, 600, "10.0.4.4"),
    withhold=MAY,
    start={"weights": 3000.0},
)
def file_server_comes_back(s: Sim) -> None:
    """The start went silent longer than a start may, and gets on half a minute after its server."""
    waits_for_files(s, until=1300)


@case("pinning", until=2200, variants=("plain", "0.5.9", "bare"), mid_life=False, alert=NOT, start={"host": 900.0})
def pinning_takes_long(s: Sim) -> None:
    s.at(20, s.boot)


@case("unsloth-grace-period-bypassed", until=1500, variants=("plain",), mid_life=False, alert=NOT, start={"imports": 400.0})
def imports_take_long(s: Sim) -> None:
    s.at(20, s.boot)


@case(
    "sgl-kimi-thinking-stuck-after-load",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu", "bare"),
    mid_life=False,
    restart=must(500, 1700),
)
def stuck_after_the_weights(s: Sim) -> None:
    s.at(20, lambda: s.boot(stuck="pool"))
    s.at(200, lambda: setattr(s.looks, "sleeping", "S"))


@case("sgl-kimi-thinking-stuck-after-load", until=2400, variants=("plain", "0.5.9"), mid_life=False, restart=must(400, 1700))
def stuck_when_the_ranks_meet(s: Sim) -> None:
    s.at(20, lambda: s.boot(stuck="init"))


@case("sgl-kimi-thinking-stuck-after-load", until=2600, variants=("plain", "0.5.9"), mid_life=False, restart=must(400, 1900))
def stuck_in_graph_capture(s: Sim) -> None:
    """The ranks spin at full CPU and nothing moves."""
    s.at(20, lambda: s.boot(stuck="graphs"))


@case("sgl-dp-attn-first-batch-deadlock", until=2600, variants=("plain", "0.5.9"), mid_life=False, restart=must(400, 1900))
def stuck_in_warm_up(s: Sim) -> None:
    """The port is open and /health says 503; the first batch never ends."""
    s.at(20, lambda: s.boot(stuck="warmup"))
    s.at(330, lambda: setattr(s, "listening", True))


@case(
    "sgl-warmup-via-proxy-502",
    "sgl-warmup-502-again",
    until=2000,
    variants=("plain", "0.5.9", "no-metrics"),
    mid_life=False,
    withhold=must(280, 1600, "proxy"),
    env={"HTTP_PROXY": "http://10.0.0.1:3128"},
)
def warm_up_gets_502(s: Sim) -> None:
    def words() -> None:
        s.log("Initialization failed. warmup error: Traceback (most recent call last):")
        s.log("AssertionError: res=<Response [502]>, res.text=''", "bare")

    how = {"die": "ready", "last_words": words, "status": 9}
    s.next_start = lambda: how  # type: ignore[method-assign]
    s.at(20, lambda: s.boot(**how))


@case(
    "sgl-warmup-via-proxy-502",
    "sgl-warmup-502-again",
    until=3000,
    variants=("plain", "no-metrics", "one-gpu", "bare", "quick-probes"),
    mid_life=False,
    withhold=must(280, 1600, "proxy"),
    version="0.4.6.post5",
    shallow_health=True,
    start={"warmup": 150.0},
)
def warm_up_gets_502_behind_an_open_port(s: Sim) -> None:
    """/health of this version is 200 as soon as the port is open, minutes before the warm-up fails."""
    warm_up_gets_502(s)


@case(
    "traceway-timeoutstart-90s",
    until=1500,
    variants=("plain", "0.5.9"),
    mid_life=False,
    withhold=must(100, 1200, "timeoutstartsec"),
)
def start_times_out(s: Sim) -> None:
    """A unit of Type=notify with the default limit: systemd ends each start after 90 s."""

    def begin() -> None:
        s.boot(job="start" if s.lives == 0 else "restart")
        s._unit("activating", "start", since=round(s.now, 3))
        life = s.lives

        def ends() -> None:
            if s.lives == life:
                s.systemd("sglang-kimi.service: start operation timed out. Terminating.")
                s.start_killed = True
                s.exit(code="killed", status=15, result="timeout")

        s.after(90, ends)

    def again() -> None:
        if len(s.starts) >= s.setup.burst:
            s.systemd("sglang-kimi.service: Start request repeated too quickly.")
            s._unit("failed", "failed")
            return
        s.unit["n_restarts"] += 1
        s.systemd(f"sglang-kimi.service: Scheduled restart job, restart counter is at {s.unit['n_restarts']}.")
        begin()

    s._auto_restart = again  # type: ignore[method-assign]
    s.at(20, begin)


@case(
    "rbln-engine-dead-api-waits-120min",
    until=2400,
    variants=("plain", "0.5.9"),
    mid_life=False,
    withhold=must(100, 1500, "memory", "gpu"),
)
def ranks_die_and_the_parent_waits(s: Sim) -> None:
    s.at(20, lambda: s.boot(stuck="graphs"))

    def dies() -> None:
        s.exception(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 11.06 GiB. GPU 0 has a total capacity of 95.59 GiB", 8
        )
        s.looks.gone |= {n for n in s.looks.names() if "scheduler" in n}

    s.at(240, dies)


@case("sgl-kimi-k25-mtp-oom-killed", until=1500, variants=("plain", "0.5.9"), withhold=NOT, restart=NOT)
def killed_for_memory_once(s: Sim) -> None:
    s.at(600, lambda: killed_for_memory(s))


@case(
    "sgl-kimi-k25-mtp-oom-killed",
    until=2400,
    variants=("plain", "0.5.9"),
    withhold=must(1100, 1800, "memory", "oom", "ratio"),
    restart=NOT,
)
def killed_for_memory_twice(s: Sim) -> None:
    s.at(600, lambda: killed_for_memory(s))
    s.at(1200, lambda: killed_for_memory(s))


def killed_for_memory(s: Sim) -> None:
    s.looks.oom_kills += 1
    s.looks.kernel(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/system.slice/sglang-kimi.service,task=sglang::schedul,pid=4102,uid=0"
    )
    s.looks.kernel("Out of memory: Killed process 4102 (sglang::schedul) total-vm:200000000kB, anon-rss:190000000kB")
    s.exit(code="killed", status=9, result="oom-kill")


@case("sgl-kimi-k3-hicache-2-crashes-a-day", until=2400, variants=("plain",), mid_life=False, restart=MAY, withhold=MAY, burst=3)
def crash_loop_of_different_causes(s: Sim) -> None:
    causes = [
        ("init", "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1"),
        ("pool", "torch.OutOfMemoryError: CUDA out of memory. Tried"),
        ("warmup", "AttributeError: 'NoneType' object has no attribute 'size'"),
    ]
    count = [0]

    def how() -> dict[str, Any]:
        step, error = causes[count[0] % 3]
        count[0] += 1
        return {"die": step, "last_words": lambda: s.exception(error)}

    s.next_start = how  # type: ignore[method-assign]
    s.at(20, lambda: s.boot(**how()))
