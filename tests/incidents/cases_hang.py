"""Servers that stand still: nothing helps them but a restart."""

from tests.incidents import wording
from tests.incidents.case import ALL, MAY, NOT, case, must
from tests.incidents.sim import Sim
from watchdog.observation import Answer  # noqa: F401

T = 600.0
MOST = tuple(v for v in ALL if v not in ("idle", "two-nodes"))


def own_watchdog(s: Sim, t: float) -> None:
    """The engine's own watchdog, armed with the setup's limit: it fires, and the server ends by itself."""
    limit = s.setup.watchdog_s
    life = s.lives

    def fires() -> None:
        if s.lives == life and s.engine.stuck and (s.engine.running or s.engine._current):
            s.log("Pyspy dump for PID 4002:")
            s.log(wording.watchdog_fired(s.setup.version, limit), "TP0")
            s.after(5, lambda: s.log(wording.SIGQUIT))
            s.after(5, lambda: setattr(s, "mute", True))
            s.after(76, s.exit)

    s.at(t + limit * 1.25, fires)


def freeze(s: Sim, t: float = T, power: tuple[float, float] | None = None) -> None:
    def act() -> None:
        s.engine.stuck = True
        s.looks.gpu_power = power

    if s.setup.rate > 0:
        s.at(t - 4.0, lambda: s.user(2000, 3000) and None)  # a batch is in hand when it stops
    s.at(t, act)
    own_watchdog(s, t)


@case(
    "sgl-100util-lowpower-deepseek",
    "vllm-running1-zero-throughput",
    "vllm-12-days-zero-completions",
    "vllm-alive-but-hung-health",
    "sgl-heartbeat-6min-old",
    until=1200,
    variants=MOST,
    restart=must(T + 20, T + 300),
)
def hang_full_use_low_power(s: Sim) -> None:
    freeze(s, power=(1.0, 115.0))


@case("sgl-hicache-prefetch-deadlock-util0", until=1200, variants=MOST, restart=must(T + 20, T + 300))
def hang_zero_use(s: Sim) -> None:
    freeze(s, power=(0.0, 95.0))
    s.at(T, lambda: setattr(s.looks, "sleeping", "S"))


@case(
    "sgl-stuck-after-idle",
    until=1400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu", "one-gpu-no-metrics", "bare", "slow-probes", "quick-probes"),
    restart=must(T + 20, T + 420),
    rate=0.0,
)
def hang_while_idle(s: Sim) -> None:
    freeze(s)


@case(
    "sgl-stuck-after-idle",
    until=1400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu-no-metrics"),
    restart=must(T + 20, T + 420),
    alert=must(20, 300, "/etc/nokey"),
    rate=0.0,
)
def hang_while_the_key_is_unreadable(s: Sim) -> None:
    """Only what needs no key is asked."""
    why = "the API key cannot be read from /etc/nokey: No such file or directory; make it readable for the watchdog's user"
    s.looks.chat_as = s.looks.models_as = s.looks.ready_as = lambda: {"outcome": "skipped", "why": "config", "detail": why}
    freeze(s)


@case(
    "sgl-stuck-after-idle",
    until=1600,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu", "bare"),
    restart=must(T + 20, T + 420),
    rate=0.0,
)
def first_request_after_idle_hangs(s: Sim) -> None:
    def act() -> None:
        s.user(900, 200)
        s.after(0.01, lambda: setattr(s.engine, "stuck", True))

    s.at(T, act)


@case(
    "sgl-chat-hangs-health-200",
    "vllm-alive-but-hung-health",
    until=1500,
    variants=("plain", "no-metrics", "0.5.9", "0.5.5", "one-gpu", "bare"),
    restart=must(T + 20, T + 600),
    shallow_health=True,
    env={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"},
    watchdog_s=3600.0,
)
def hang_behind_a_shallow_health(s: Sim) -> None:
    freeze(s)


@case("omlx-status-green-6h", until=2000, variants=("plain", "0.5.9", "busy"), restart=must(T + 60, T + 900))
def detokenizer_stands_still(s: Sim) -> None:
    s.at(T, lambda: setattr(s.engine, "detokenizer_stuck", True))


@case("omlx-status-green-6h", until=2400, variants=("no-metrics", "bare"), restart=must(T + 60, T + 1500))
def detokenizer_stands_still_unseen(s: Sim) -> None:
    s.at(T, lambda: setattr(s.engine, "detokenizer_stuck", True))


@case("omlx-status-green-6h", until=1600, variants=("plain", "no-metrics", "one-gpu"), restart=must(T + 60, T + 600), rate=0.0)
def detokenizer_stands_still_idle(s: Sim) -> None:
    s.at(T, lambda: setattr(s.engine, "detokenizer_stuck", True))


@case(
    "omlx-status-green-6h",
    until=T + 1200,
    variants=("plain", "0.5.9", "one-gpu", "busy"),
    restart=must(T + 60, T + 900),
    logs=False,
    metrics_gap_s=25.0,
)
def detokenizer_stands_still_behind_a_quiet_log(s: Sim) -> None:
    """Scrapes alone tell of its steps, and rarely: their own pace is not the engine's."""
    s.at(T, lambda: setattr(s.engine, "detokenizer_stuck", True))


@case(
    "omlx-status-green-6h",
    until=T + 400,
    variants=("plain", "0.5.9", "no-metrics"),
    restart=must(T + 60, T + 300),
    rate=0.0,
    ranks=2,
    spec=False,
    hicache=False,
    chat_s=15.0,
)
def detokenizer_stands_still_asked_often(s: Sim) -> None:
    """Only our own requests make batches, and gauges go on to tell of them: the pauses between them are not the engine's pace."""
    s.at(T, lambda: setattr(s.engine, "detokenizer_stuck", True))


@case(
    "omlx-status-green-6h",
    until=T + 400,
    variants=("plain", "0.5.9", "no-metrics"),
    restart=must(T + 60, T + 300),
    rate=0.0,
    ranks=2,
    chat_s=6.0,
    chat_limit_s=8.0,
    health_gap_s=6.0,
)
def detokenizer_stands_still_just_after_an_answer(s: Sim) -> None:
    """The scrape that counts the last answer comes after the first canary that is lost was begun."""
    s.at(T, lambda: setattr(s.engine, "detokenizer_stuck", True))


@case(
    "sgl-no-prefill-running-stuck-1",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu", "slow-probes"),
    restart=must(T + 120, T + 1200),
)
def nothing_is_let_in(s: Sim) -> None:
    def act() -> None:
        s.engine.admits = False
        s.engine.running[:] = s.engine.running[:1]
        if not s.engine.running:
            from tests.incidents.engine import Request

            s.engine.running.append(Request(prompt=500, answer=10**9, prefilled=500))
        s.engine.running[0].answer = 10**9
        s.engine.wake()

    s.at(T, act)


@case(
    "vllm-kv-pinned-33min-livelock",
    "sgl-running0-queue-high",
    until=1600,
    variants=("plain", "0.5.9", "one-gpu", "no-metrics"),
    restart=must(T + 60, T + 600),
    watchdog_s=1e6,
)
def queue_and_nothing_runs(s: Sim) -> None:
    def act() -> None:
        s.engine.admits = False
        s.engine.running.clear()
        s.looks.metrics_extra["token_usage"] = 0.98
        s.engine.queue.extend([])
        s.user(9000, 100)

    s.at(T, act)


@case(
    "sgl-sigkill-restart-silent-hang",
    until=1700,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu"),
    mid_life=False,
    restart=must(300, 1100),
    watchdog_s=20000.0,
)
def hang_soon_after_a_start(s: Sim) -> None:
    s.at(20, s.boot)
    s.after_start = lambda: s.after(70, lambda: setattr(s.engine, "stuck", True))


@case("llamacpp-router-child-500", until=1800, variants=("plain", "no-metrics", "0.5.9"), restart=must(T + 60, T + 900), rate=0.0)
def every_chat_gets_500(s: Sim) -> None:
    s.at(
        T,
        lambda: setattr(
            s.looks,
            "chat_as",
            lambda: {"outcome": "status", "status": 500, "total_s": 0.02, "body": '{"message":"Internal Server Error"}'},
        ),
    )


@case(
    "omlx-status-green-6h",
    until=1500,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu", "idle", "bare"),
    restart=must(T + 40, T + 420),
)
def front_end_frozen(s: Sim) -> None:
    s.at(T, lambda: setattr(s, "frozen", True))


@case("trtllm-503-forever", until=1300, variants=("plain", "0.5.9", "no-metrics"), restart=must(T, T + 200))
def all_ranks_dead_503_for_ever(s: Sim) -> None:
    def act() -> None:
        s.engine.stuck = True
        s.engine.drop_all()
        s.looks.gone |= set(s.looks.names())
        s.looks.health_as = lambda: {"outcome": "status", "status": 503, "total_s": 0.003}
        s.looks.chat_as = lambda: {"outcome": "status", "status": 503, "total_s": 0.003, "body": "{}"}

    s.at(T, act)


@case("sgl-oom-error-no-exit", until=1600, variants=("plain", "0.5.9", "no-metrics", "one-gpu"), restart=must(T + 5, T + 420))
def out_of_gpu_memory_without_an_end(s: Sim) -> None:
    def act() -> None:
        s.exception(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 95.59 GiB", 1
        )
        s.engine.stuck = True

    s.at(T, act)


@case(
    "sgl-nccl-abort-zombie",
    until=1300,
    variants=("plain", "0.5.9", "no-metrics", "no-gpu-source", "busy", "idle"),
    restart=must(T, T + 120),
)
def one_rank_gone(s: Sim) -> None:
    def act() -> None:
        s.engine.stuck = True
        s.looks.gone.add("sglang::scheduler_TP3")

    s.at(T, act)


@case("sgl-nccl-abort-zombie", until=1300, variants=("plain", "no-metrics"), restart=must(T, T + 120))
def one_rank_a_zombie(s: Sim) -> None:
    def act() -> None:
        s.engine.stuck = True
        s.looks.zombies.add("sglang::scheduler_TP3")

    s.at(T, act)


@case("sgl-nccl-abort-zombie", until=1500, variants=("one-gpu",), restart=must(T, T + 120), rate=0.05)
def only_scheduler_exits_with_0(s: Sim) -> None:
    def act() -> None:
        s.engine.stuck = True
        s.looks.gone.add("sglang::scheduler")

    s.at(T, act)


@case("sgl-dp-controller-orphan", until=1300, variants=("plain", "0.5.9"), restart=MAY, dp=4, ranks=4)
def one_replica_dead(s: Sim) -> None:
    s.at(T, lambda: s.looks.gone.add("sglang::scheduler_DP2"))


@case(
    "headless-rank-probe",
    until=1300,
    variants=("plain", "0.5.9"),
    withhold=must(T, T + 120, "all 2 members together"),
    nnodes=2,
    node_rank=1,
    logs=True,
    metrics=False,
    rate=0.0,
)
def rank_gone_on_the_second_node(s: Sim) -> None:
    s.at(T, lambda: s.looks.gone.add("sglang::scheduler_TP9"))


@case("sgl-watchdog-300cpu", until=1500, variants=("plain", "0.5.9", "0.5.5", "no-metrics"), restart=NOT, watchdog_s=60.0)
def own_watchdog_goes_first(s: Sim) -> None:
    freeze(s)


@case(
    "sgl-chat-hangs-health-200",
    until=1700,
    variants=("plain", "one-gpu"),
    restart=must(T + 20, T + 800),
    logs=False,
    gpu=False,
    procs=False,
    metrics=False,
)
def hang_seen_by_probes_alone(s: Sim) -> None:
    freeze(s)


@case(
    "sgl-100util-lowpower-deepseek",
    until=1300,
    variants=("plain", "no-metrics"),
    restart=must(T + 20, T + 420),
    watchdog_s=1e6,
    chat_s=300.0,
)
def hang_with_lost_lines(s: Sim) -> None:
    freeze(s)
    s.lose = lambda line: s.rng.random() < 0.3


@case("dual: gpu power stays", until=1500, variants=("plain", "no-metrics"), restart=must(T + 20, T + 500), watchdog_s=20000.0)
def hang_at_middling_power(s: Sim) -> None:
    freeze(s, power=(1.0, 180.0))


@case(
    "sgl-100util-lowpower-deepseek",
    until=1200,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu"),
    restart=must(T + 130, T + 300),
    watchdog_s=20000.0,
    prompts=(260, 420),
    rate=0.15,
)
def hang_at_more_than_half_the_power_of_work(s: Sim) -> None:
    """Short prompts tell little of the pace of a full chunk: mostly, steps of decoding lie between two lines."""
    freeze(s, power=(1.0, 243.0))


assert NOT and MAY


@case(
    "vllm-kv-pinned-33min-livelock",
    "sgl-running0-queue-high",
    until=1800,
    variants=("plain", "0.5.9", "one-gpu", "slow-probes", "quick-probes"),
    restart=must(T + 60, T + 1100),
)
def nothing_runs_and_health_is_good(s: Sim) -> None:
    """The scheduler's loop lives and answers /health (any message counts, also one to another poller), but takes nothing in."""

    def act() -> None:
        s.engine.admits = False
        s.looks.health_as = lambda: {"outcome": "ok", "status": 200, "total_s": 1.002}

    s.at(T, act)


@case("sgl-hicache-prefetch-deadlock-util0", until=1200, variants=("two-nodes",), withhold=must(T + 20, T + 300, "members"))
def hang_of_one_member_of_two(s: Sim) -> None:
    freeze(s)


@case(
    "sgl-100util-lowpower-deepseek",
    until=1500,
    variants=("plain", "no-metrics", "0.5.9", "bare", "one-gpu-no-metrics"),
    restart=must(T + 20, T + 300),
    rate=0.02,
)
def hang_under_light_traffic(s: Sim) -> None:
    freeze(s)
