"""What worsens or degrades: memory, GPUs, draft model, answers, hicache. Alerts and plans; restarts only where they cure."""

import math
from itertools import count

import msgspec

from tests.incidents.case import MAY, NOT, case, must
from tests.incidents.looks import Ramp
from tests.incidents.sim import Sim
from watchdog.observation import Answer

T = 600.0
GIB = 1024**3


def fills(s: Sim, ramp: Ramp, size: float, tau_s: float, base: float = 0.0) -> None:
    """A cache that fills: fast at first, ever slower, then it is full."""

    def beat() -> None:
        ramp.go(0, 0, base + size * (1 - math.exp(-s.now / tau_s)))
        s.after(10, beat)

    beat()


def says(s: Sim, text: str | None, *, finish: str = "length", reasoning: str | None = None) -> None:
    s.looks.answer = lambda: Answer(
        text=text,
        reasoning=reasoning,
        finish_reason=finish,
        model="kimi-k2.5",
        prompt_tokens=27,
        cached_tokens=26,
        completion_tokens=16,
    )


@case(
    "acceptance-zero-bos-spam",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9"),
    rate=0.3,
    restart=must(T, T + 900),
    chat_s=60.0,
)
def garbage_and_nothing_accepted(s: Sim) -> None:
    s.looks.answer = lambda: s.looks.good_answer()

    def act() -> None:
        s.engine.accept = 1.0
        says(s, "<|begin_of_text|>" * 16)

    s.at(T, act)


@case("sgl-k3-pad-storm", until=3000, variants=("plain", "one-gpu"), rate=0.3, restart=MAY, alert=must(T, T + 900))
def pad_storm(s: Sim) -> None:
    s.looks.answer = lambda: s.looks.good_answer()
    s.at(T, lambda: says(s, "[PAD]" * 16))


@case("acceptance-up-when-garbage", until=2400, variants=("plain", "no-metrics"), rate=0.5, restart=MAY, alert=must(T, T + 1200))
def garbage_and_all_accepted(s: Sim) -> None:
    s.looks.answer = lambda: s.looks.good_answer()

    def act() -> None:
        s.engine.accept = 3.97
        says(s, "the the the the the the the the the the the the the the")

    s.at(T, act)


@case("acceptance-up-when-garbage", until=2400, variants=("plain",), rate=0.8, alert=must(T, T + 1500))
def accept_length_too_good(s: Sim) -> None:
    s.at(T, lambda: setattr(s.engine, "accept", 3.98))


@case(
    "sgl-nan-sanitize-salad",
    "sgl-l3-garbled",
    until=2400,
    variants=("plain", "one-gpu"),
    rate=0.0,
    restart=MAY,
    alert=must(T, T + 900),
)
def word_salad(s: Sim) -> None:
    s.at(T, lambda: says(s, "ਸđ<|reserved_token_163|>ไทยقد語Ωж<|reserved_token_7|>한ßž"))


@case(
    "sgl-l3-garbled",
    until=2400,
    variants=("plain", "one-gpu"),
    rate=0.0,
    expects="Paris",
    alert=must(T + 300, T + 1500, "restart it"),
)
def fluent_nonsense(s: Sim) -> None:
    """Nothing in it is degenerate, and no two are alike; only the word that it always had is missing."""
    s.looks.answer = lambda: s.looks.good_answer()
    s.at(T, lambda: setattr(s.looks, "answer", lambda: nonsense(s)))


def nonsense(s: Sim) -> Answer:
    words = " ".join(s.rng.choice(("of", "}}", "tern", "17", "quar", "lectric", "ist", "and", "[[", "los")) for _ in range(9))
    return msgspec.structs.replace(s.looks.good_answer(), text=words)


@case("one odd answer", until=2400, variants=("plain",), rate=0.0, expects="Paris", alert=NOT)
def a_word_is_missing_at_times(s: Sim) -> None:
    turn = count()
    s.looks.answer = lambda: s.looks.good_answer() if next(turn) % 3 else nonsense(s)


@case("sgl-kimi-k2-gibberish-b200", until=1500, variants=("plain", "one-gpu"), mid_life=False, rate=0.0, withhold=must(280, 1200))
def garbage_from_the_start(s: Sim) -> None:
    says(s, "!!!!!!!!!!!!!!!!!!!!!!!!")
    s.at(20, s.boot)


@case("one odd answer", until=1500, variants=("plain",), rate=0.0, alert=NOT)
def one_odd_answer(s: Sim) -> None:
    s.at(T, lambda: says(s, "!!!!!!!!!!!!!!!!!!!!!!!!"))
    s.at(T + 70, lambda: setattr(s.looks, "answer", s.looks.good_answer))


@case("ascend-kimi26-empty-content", until=2400, variants=("plain", "one-gpu"), rate=0.0, alert=must(0, 2400))
def all_content_is_empty(s: Sim) -> None:
    says(s, "", finish="stop", reasoning="The capital of France is Paris. Paris.")


@case(
    "vllm-accept-decay-restart-helps",
    until=3000,
    variants=("plain", "no-metrics", "0.5.9"),
    rate=0.8,
    plan_restart=MAY,
    alert=must(T, 2700),
)
def accept_length_slides(s: Sim) -> None:
    def beat() -> None:
        if s.now > T and s.engine.accept is not None:
            s.engine.accept = max(1.12, s.engine.accept - 0.02)
        s.after(10, beat)

    beat()


@case("vllm-accept-decay-restart-helps", until=2400, variants=("plain", "no-metrics"), rate=0.8, alert=NOT)
def accept_length_wanders(s: Sim) -> None:
    def beat() -> None:
        s.engine.accept = s.rng.choice((2.2, 2.5, 2.8, 3.0))
        s.after(60, beat)

    beat()


@case(
    "sgl-throughput-falls-accept-stable",
    until=5400,
    variants=("plain", "no-metrics"),
    rate=0.5,
    plan_restart=MAY,
    alert=must(1800, 5400, "slow", "speed"),
)
def decode_gets_slower(s: Sim) -> None:
    def beat() -> None:
        if s.now > 1200:
            s.engine.step_s = min(0.08, s.engine.step_s * 1.008)
        s.after(30, beat)

    beat()


@case(
    "sgl-throughput-falls-accept-stable",
    until=7200,
    variants=("plain", "0.5.9", "0.5.5", "one-gpu"),
    rate=0.1,
    prompts=(200, 1500),
    answers=(150, 500),
    logs=False,
    alert=must(2400, 7200, "slow", "speed"),
)
def decode_gets_slower_and_no_line_tells(s: Sim) -> None:
    """Log level warning, and answers that end between two scrapes: only the sums of latencies tell."""

    def beat() -> None:
        if s.now > 2400:
            s.engine.step_s = min(0.08, s.engine.step_s * 1.015)
        s.after(30, beat)

    beat()


@case("sgl-throughput-falls-accept-stable", until=5400, variants=("plain", "0.5.5"), logs=False, answers=(150, 500), alert=NOT)
def speed_follows_the_load_and_no_line_tells(s: Sim) -> None:
    def beat() -> None:
        s.rate = s.rng.choice((0.0, 0.05, 0.1, 0.5, 1.5))
        s.after(300, beat)

    def steps() -> None:
        s.engine.step_s = 0.02 + 0.0008 * len(s.engine.running)
        s.after(10, steps)

    beat()
    steps()


@case("sgl-throughput-falls-accept-stable", until=3600, variants=("plain",), alert=NOT)
def speed_follows_the_load(s: Sim) -> None:
    def beat() -> None:
        s.rate = s.rng.choice((0.0, 0.1, 0.5, 1.5))
        s.engine.step_s = 0.02 + 0.0008 * len(s.engine.running)
        s.after(10, beat)

    beat()


@case(
    "sgl-pp-hicache-leak-2tb",
    "sgl-scheduler-rss-60gb",
    until=4600,
    variants=("plain", "no-metrics"),
    plan_restart=must(900, 4500),
    alert=MAY,
)
def rank_leaks(s: Sim) -> None:
    s.looks.mem_total = 480 * GIB
    s.looks.leak.slope = 26 * GIB / 3600


@case("sgl-hicache-slice-view-leak", until=5400, variants=("plain",), plan_restart=MAY, alert=MAY)
def rank_leaks_slowly(s: Sim) -> None:
    s.looks.mem_total = 480 * GIB
    s.looks.leak.slope = 5 * GIB / 3600


@case("a cache fills and stays", until=5400, variants=("plain",), alert=NOT)
def memory_fills_and_stays(s: Sim) -> None:
    s.looks.mem_total = 480 * GIB
    fills(s, s.looks.leak, 14 * GIB, 900.0)


@case("a cache fills for hours within the room", until=7200, variants=("plain",), alert=NOT)
def memory_fills_slowly(s: Sim) -> None:
    s.looks.mem_total = 480 * GIB
    fills(s, s.looks.leak, 50 * GIB, 3000.0)


@case("bursts of memory", until=5400, variants=("plain",), alert=NOT)
def memory_bursts(s: Sim) -> None:
    def beat() -> None:
        s.looks.leak.go(s.now, s.now + 20, s.rng.choice((0.0, 2.0, 5.0, 9.0)) * GIB)
        s.after(120, beat)

    beat()


@case("sgl-vlm-gpu-leak-1h", until=4500, variants=("plain", "one-gpu"), plan_restart=must(900, 4000), alert=MAY)
def gpu_memory_leaks(s: Sim) -> None:
    s.looks.gpu_mem.go(0, 0, 76 * GIB)
    s.looks.gpu_mem.go(700, 3600, 94 * GIB)


@case("gpu memory warms up", until=4500, variants=("plain",), alert=NOT)
def gpu_memory_settles(s: Sim) -> None:
    s.looks.gpu_mem.go(0, 0, 80 * GIB)
    fills(s, s.looks.gpu_mem, 4 * GIB, 300.0, 80 * GIB)


@case("gpu-xid79-any-load", until=1500, variants=("plain", "0.5.9", "no-metrics"), withhold=must(T, T + 300, "reboot", "bus"))
def gpu_falls_off_the_bus(s: Sim) -> None:
    def act() -> None:
        s.looks.kernel("NVRM: Xid (PCI:0000:60:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        s.looks.gpu_missing = {5}
        s.engine.stuck = True

    s.at(T, act)


@case("gpu-off-bus-without-xid", until=1500, variants=("plain", "0.5.9"), withhold=must(T, T + 300, "reboot", "bus"))
def gpu_gone_without_an_xid(s: Sim) -> None:
    def act() -> None:
        for line in (
            "NVRM: The NVIDIA GPU 0000:60:00.0",
            "NVRM: (PCI ID: 10de:2330) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ):
            s.looks.kernel(line)
        s.looks.gpu_error = "lost"
        s.engine.stuck = True

    s.at(T, act)


@case("nvsentinel-nvlink-down-after-boot", until=900, variants=("plain", "0.5.9"), alert=NOT)
def gpu_missed_by_one_round(s: Sim) -> None:
    s.at(T, lambda: setattr(s.looks, "gpu_missing", {2}))
    s.at(T + 5, lambda: setattr(s.looks, "gpu_missing", set()))


@case("nvsentinel-nvlink-down-after-boot", until=900, variants=("plain",), alert=NOT)
def driver_slow_for_one_round(s: Sim) -> None:
    s.at(T, lambda: setattr(s.looks, "gpu_error", "driver_timeout"))
    s.at(T + 5, lambda: setattr(s.looks, "gpu_error", None))


@case("a slow driver under a server that works", until=900, variants=("plain", "no-metrics", "0.5.9"))
def driver_slow_for_half_a_minute(s: Sim) -> None:
    s.at(T, lambda: setattr(s.looks, "gpu_error", "driver_timeout"))
    s.at(T + 40, lambda: setattr(s.looks, "gpu_error", None))


@case("nvsentinel-xid31-cordon-none", until=900, variants=("plain",))
def xids_of_applications(s: Sim) -> None:
    for i, xid in enumerate((31, 13, 43, 45)):
        text = f"NVRM: Xid (PCI:0000:70:00): {xid}, pid=9911, name=python, Ch 00000008"
        s.at(T + 20 * i, lambda text=text: s.looks.kernel(text))  # type: ignore[misc]


@case(
    "nvml-driver-mismatch",
    until=1800,
    variants=("plain", "no-metrics"),
    alert=must(T, T + 600, "driver", "reboot", "module"),
    withhold=MAY,
)
def driver_updated_under_a_running_server(s: Sim) -> None:
    s.at(T, lambda: setattr(s.looks, "gpu_error", "version_mismatch"))


@case(
    "nvml-driver-mismatch",
    until=1800,
    variants=("plain", "no-metrics"),
    alert=MAY,
    withhold=must(900, 1300, "driver", "reboot", "module"),
)
def hang_under_an_updated_driver(s: Sim) -> None:
    s.at(T, lambda: setattr(s.looks, "gpu_error", "version_mismatch"))
    s.at(900, lambda: setattr(s.engine, "stuck", True))


@case(
    "nvidia-smi-hangs-driver-lock",
    until=1500,
    variants=("plain", "no-metrics"),
    alert=MAY,
    withhold=must(T, T + 400, "reboot", "driver"),
)
def driver_wedged(s: Sim) -> None:
    def act() -> None:
        s.looks.gpu_error = "driver_timeout"
        s.looks.sleeping = "D"
        s.engine.stuck = True

    s.at(T, act)


@case(
    "a4000-airflow-throttle", until=2400, variants=("plain", "0.5.9", "busy"), rate=0.8, plan_restart=MAY, alert=must(T, T + 1200)
)
def one_gpu_held_back(s: Sim) -> None:
    s.at(T, lambda: s.looks.throttled.__setitem__(2, (690.0, ["sw_thermal", "hw_thermal"])))
    s.at(T, lambda: setattr(s.engine, "step_s", 0.06))


@case("gb10-thermal-counters", until=2400, variants=("plain",), rate=0.8, plan_restart=MAY, alert=must(T, T + 1500))
def thermal_seconds_between_the_looks(s: Sim) -> None:
    def beat() -> None:
        s.looks.throttle_seconds[2] = s.looks.throttle_seconds.get(2, 5.0) + (3.5 if s.now > T else 0.0)
        s.after(5, beat)

    beat()


@case("sgl-hicache-host-never-read", until=7300, variants=("plain",), alert=must(1800, 7300, "host", "hicache", "cache"))
def host_pool_never_read(s: Sim) -> None:
    extra = s.looks.metrics_extra

    def beat() -> None:
        extra["hicache_backup_tokens_total"] = extra.get("hicache_backup_tokens_total", 52000.0) + 900
        extra["hicache_host_total_tokens"] = 637109
        extra["hicache_host_used_tokens"] = min(560000.0, extra.get("hicache_host_used_tokens", 400000.0) + 900)
        extra["evicted_tokens_total"] = extra.get("evicted_tokens_total", 0.0) + 800
        s.after(10, beat)

    beat()


@case("sgl-hicache-host-never-read", until=7300, variants=("plain",), alert=NOT)
def host_pool_is_read(s: Sim) -> None:
    extra = s.looks.metrics_extra

    def beat() -> None:
        extra["hicache_backup_tokens_total"] = extra.get("hicache_backup_tokens_total", 52000.0) + 900
        extra["hicache_host_total_tokens"] = 637109
        extra["hicache_host_used_tokens"] = 560000.0
        extra["load_back_tokens_total"] = extra.get("load_back_tokens_total", 0.0) + 100
        s.after(10, beat)

    beat()


@case("sgl-hostregister-silently-ignored", until=1500, variants=("plain", "0.5.9"), mid_life=False, alert=must(250, 1400))
def host_pool_is_not_where_it_should_be(s: Sim) -> None:
    s.at(20, s.boot)
    s.after_start = lambda: s.looks.anon.go(0, 0, 60 * GIB)
    s.at(300, lambda: s.looks.kernel("nvidia: Cannot map memory with base addr 0x7f0000000000 and size of 0x2000000 pages"))


@case(
    "sgl-kimi25-pin-budget-zero",
    until=2400,
    variants=("0.5.9",),
    mid_life=False,
    rate=0.02,
    spec=True,
    step_s=5.0,
    alert=must(250, 2300),
)
def pin_budget_zero(s: Sim) -> None:
    s.at(20, s.boot)
    s.at(250, lambda: s.log("Pin budget: 0 tokens (ratio=0.000)", "TP0"))


@case(
    "sgl-scheduler-rss-60gb",
    until=1400,
    variants=("plain", "0.5.9", "no-metrics", "one-gpu"),
    plan_restart=must(600, 800),
    alert=must(600, 800, "used up"),
)
def rank_leaks_fast(s: Sim) -> None:
    """Six minutes from the first byte to the last."""
    used = s.looks.others + int(s.looks.anon.value(0.0)) + 20 * GIB
    s.looks.mem_total = used + 21 * GIB

    s.at(600, lambda: s.looks.leak.go(600, 1000, 23 * GIB))
