"""Servers that work, drain, pause or are merely asked wrongly: nothing may be restarted."""

from tests.incidents import wording
from tests.incidents.case import ALL, MAY, NOT, case, must
from tests.incidents.sim import Sim

T = 600.0


@case("quiet-hour", "busy-evening", "sgl-running-gauge-30s-stale", "sgl-gen-throughput-keeps-value", variants=ALL, alert=NOT)
def healthy(s: Sim) -> None:
    pass


@case(
    "sgl-running-gauge-30s-stale", variants=("plain", "0.5.9", "no-metrics", "slow-probes", "quick-probes"), alert=NOT, rate=0.0
)
def bursts_and_idle(s: Sim) -> None:
    for t in range(100, 1500, 170):
        s.at(float(t), lambda: [s.user(2000, 300) for _ in range(18)] and None)


@case("sgl-router-breaker-2048", until=1800, variants=("plain", "no-metrics", "0.5.9", "one-gpu"), rate=3.0)
def flood(s: Sim) -> None:
    s.at(400, lambda: [s.user() for _ in range(400)] and None)


@case(
    "unsloth-watchdog-kills-busy",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "bare"),
    step_s=20.0,
    rate=0.004,
    answers=(20, 60),
    prompts=(200, 400),
    spec=False,
)
def steps_of_twenty_seconds(s: Sim) -> None:
    pass


@case(
    "unsloth-watchdog-kills-busy",
    until=2400,
    variants=("plain", "no-metrics", "bare"),
    step_s=7.0,
    rate=0.006,
    answers=(20, 60),
    prompts=(200, 400),
    spec=False,
)
def steps_of_seven_seconds(s: Sim) -> None:
    pass


@case(
    "vllm-health-30-40s-under-load",
    "llmd-probe-1s-x3",
    until=1800,
    variants=("plain", "no-metrics", "0.5.9", "no-gpu-source"),
    rate=1.5,
)
def slow_front_end(s: Sim) -> None:
    def beat() -> None:
        s.looks.slow_front_s = s.rng.choice((0.5, 6.0, 11.0, 18.0, 26.0))
        s.after(40, beat)

    s.at(400, beat)
    s.at(1500, lambda: setattr(s.looks, "slow_front_s", 0.0))


@case("sgl-soft-watchdog-false-alarm", variants=("plain", "0.5.9", "no-metrics"))
def soft_watchdog_lines(s: Sim) -> None:
    def beat() -> None:
        s.log("Pyspy dump for PID 4010:")
        s.log("Detokenizer watchdog timeout (self.watchdog_timeout=60, self.soft=True)")
        s.after(60, beat)

    s.at(300, beat)


@case("sgl-soft-watchdog-false-alarm", variants=("plain",), mid_life=False, until=1200)
def soft_watchdog_lines_while_starting(s: Sim) -> None:
    s.at(20, s.boot)
    for t in (90, 150, 210):
        s.at(float(t), lambda: s.log("Scheduler watchdog timeout (self.watchdog_timeout=60, self.soft=True)", "TP0"))


@case("sgl-kimi-k25-load-test-crash", variants=("plain", "no-metrics"), rate=1.2)
def retractions(s: Sim) -> None:
    def beat() -> None:
        s.log(
            "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 9000, #new_token_ratio: 0.7 -> 0.9",
            "TP0",
        )
        s.after(9, beat)

    s.at(300, beat)


@case("slime-403-300-retries", until=1800, variants=("plain", "0.5.9"), alert=must(T, T + 900, "401", "key", "auth"))
def refused_with_401(s: Sim) -> None:
    refused = lambda: {"outcome": "status", "status": 401, "total_s": 0.002, "limit_s": 25.0, "body": '{"error":"Unauthorized"}'}  # noqa: E731

    def act() -> None:
        s.looks.health_as = s.looks.models_as = s.looks.ready_as = refused
        s.looks.chat_as = lambda: {"outcome": "status", "status": 401, "total_s": 0.002}

    s.at(T, act)


@case("slime-403-300-retries", until=1800, variants=("plain",), alert=must(T, T + 900, "429", "rate", "limit"), rate=0.0)
def refused_with_429(s: Sim) -> None:
    refused = lambda: {"outcome": "status", "status": 429, "total_s": 0.002, "limit_s": 25.0, "body": ""}  # noqa: E731

    def act() -> None:
        s.looks.health_as = refused
        s.looks.chat_as = lambda: {"outcome": "status", "status": 429, "total_s": 0.002}

    s.at(T, act)


@case("sgl-any-model-name-accepted", until=1800, variants=("plain",), alert=must(T, T + 900, "404", "model"), rate=0.3)
def chat_gets_404(s: Sim) -> None:
    s.at(
        T,
        lambda: setattr(
            s.looks,
            "chat_as",
            lambda: {"outcome": "status", "status": 404, "total_s": 0.002, "body": '{"message":"model not found"}'},
        ),
    )


@case("sgl-router-breaker-2048", until=1800, variants=("plain", "0.5.9"), rate=0.6)
def canary_gets_503_while_users_are_served(s: Sim) -> None:
    s.at(
        T,
        lambda: setattr(
            s.looks, "chat_as", lambda: {"outcome": "status", "status": 503, "total_s": 0.3, "body": "no healthy upstream"}
        ),
    )


@case("sgl-batch-is-full-latch", variants=("plain", "no-metrics"), rate=0.1, alert=NOT, answers=(2000, 3000))
def short_queue_with_room(s: Sim) -> None:
    for t in (300, 700, 1100):
        s.at(t - 3.0, lambda: s.user(500, 12000) and None)  # one long answer is being written meanwhile
        s.at(float(t), lambda: setattr(s.engine, "admits", False))
        s.at(t + 60.0, lambda: (setattr(s.engine, "admits", True), s.engine.wake()) and None)


def pause(s: Sim) -> None:
    """Somebody pauses generation."""
    s.log(wording.access("10.0.0.9:41000", "POST", "/pause_generation", 200))
    s.engine.paused = True


def go_on(s: Sim) -> None:
    """Somebody ends the pause."""
    s.log(wording.access("10.0.0.9:41001", "POST", "/continue_generation", 200))
    s.engine.paused = False
    s.engine.wake()


@case("pause", until=1800, variants=("plain", "no-metrics", "0.5.9", "one-gpu"), alert=NOT)
def generation_paused(s: Sim) -> None:
    s.at(T, lambda: pause(s))
    s.at(T + 600, lambda: go_on(s))


@case("pause", until=T + 3000, variants=("plain", "no-metrics", "0.5.9"), alert=must(T + 1800, T + 1900, "continue_generation"))
def pause_that_is_forgotten(s: Sim) -> None:
    s.at(T, lambda: pause(s))


@case("pause", until=1800, variants=("plain", "no-metrics", "0.5.9"), alert=NOT)
def weights_updated_in_a_pause(s: Sim) -> None:
    """A trainer pauses, sends the weights in buckets, and goes on: an update leaves the pause as it is."""
    s.at(T, lambda: pause(s))
    for k in range(3):
        s.at(T + 20 + k, lambda: s.log(wording.access("10.0.0.9:41002", "POST", "/update_weights_from_distributed", 200)))
    s.at(T + 420, lambda: go_on(s))


@case("pause", until=1500, variants=("plain", "0.5.9"), alert=NOT)
def weights_updated(s: Sim) -> None:
    def begin() -> None:
        s.log("Update engine weights online from disk begin. avail mem=6.10 GB", "TP0")
        s.engine.paused = True

    def end() -> None:
        s.log("Update weights end.", "TP0")
        s.log(wording.access("10.0.0.9:41001", "POST", "/update_weights_from_disk", 200))
        s.engine.paused = False
        s.engine.wake()

    s.at(T, begin)
    s.at(T + 150, end)


@case("sgl-gpu-100util-idle-2node", variants=("plain", "0.5.9", "no-metrics"), alert=NOT, rate=0.0, nnodes=2)
def full_use_at_rest(s: Sim) -> None:
    s.looks.gpu_power = (1.0, 130.0)


@case("headless-rank-probe", variants=("plain", "0.5.9"), alert=NOT, nnodes=2, node_rank=1, metrics=False, rate=0.0)
def second_node(s: Sim) -> None:
    def refused() -> None:
        s.looks._probe("health", "refused", connect_s=0.0003, total_s=0.0006, limit_s=25.0)
        s.after(15, refused)

    def refused_chat() -> None:
        s.looks._probe("chat", "refused", connect_s=0.0003, total_s=0.0006, limit_s=60.0)
        s.after(60, refused_chat)

    s.listening = False
    s.at(10, refused)
    s.at(20, refused_chat)


@case("headless-rank-probe", until=2900, variants=("plain", "0.5.9"), alert=NOT, nnodes=2, node_rank=1, metrics=False, rate=0.0)
def second_node_at_rest(s: Sim) -> None:
    """Seen for the first time after hours: no step of its start was seen, and none will be."""
    s.listening = False
    s.looks.gpu_power = (0.0, 90.0)
    s.at(5, s.looks.look_port)


@case("sgl-omni-flashinfer-jit-678s", until=1800, variants=("plain", "no-metrics", "0.5.9"), rate=0.05)
def compiles_after_readiness(s: Sim) -> None:
    def begin() -> None:
        s.looks.compilers = ["nvcc", "cicc", "ptxas"]
        s.engine.stuck = True

    def end() -> None:
        s.looks.compilers = []
        s.engine.stuck = False
        s.engine._busy = False
        s.engine.wake()

    s.at(T, begin)
    s.at(T + 240, end)


@case("journald-rate-limit-drops", until=2000, variants=("plain", "no-metrics", "one-gpu-no-metrics", "bare"))
def journal_drops_lines(s: Sim) -> None:
    from watchdog import observation as o

    s.lose = lambda _line: T <= s.now < 1500 and (s.now - T) % 90 > 12

    def said() -> None:
        s.emit(
            o.Log,
            inv=s.inv,
            message="Suppressed 183 messages from sglang-kimi.service",
            ident="systemd-journald",
            origin="journald",
            dropped=183,
        )
        if s.now < 1480:
            s.after(90, said)

    s.at(T + 90, said)


@case(
    "journal-reader-stuck-after-rotate",
    "journal-vacuum-bad-message",
    until=1800,
    variants=("plain", "no-metrics", "bare", "busy", "idle"),
)
def journal_reader_stands_still(s: Sim) -> None:
    s.lose = lambda _line: s.now > T


@case("nine-minutes-away", until=2000, variants=("plain", "no-metrics", "busy"))
def we_were_away(s: Sim) -> None:
    from watchdog import observation as o

    s.at(T, lambda: setattr(s, "away", True))

    def back() -> None:
        s.away = False
        s.emit(
            o.Self,
            loop_lag_s=400.0,
            paused_s=400.0,
            journal_ok=True,
            bus_ok=True,
            nvml_ok=True,
            dropped=90,
            control_probe="failed",
        )
        for probe, limit in (("health", 25.0), ("chat", 60.0), ("models", 5.0)):
            s.emit(o.Probe, inv=s.inv, probe=probe, outcome="timeout", connect_s=0.0003, total_s=401.0, limit_s=limit)

    s.at(T + 400, back)


@case("nine-minutes-away", until=1800, variants=("plain", "no-metrics"))
def we_starve(s: Sim) -> None:
    from watchdog import observation as o

    def bad() -> None:
        s.emit(
            o.Self, loop_lag_s=8.0, paused_s=8.0, journal_ok=True, bus_ok=True, nvml_ok=True, dropped=300, control_probe="failed"
        )
        s.emit(o.Probe, inv=s.inv, probe="health", outcome="timeout", connect_s=0.0003, total_s=25.0, limit_s=25.0)
        s.emit(o.Probe, inv=s.inv, probe="chat", outcome="timeout", connect_s=0.0003, total_s=60.0, limit_s=60.0)
        if s.now < T + 400:
            s.after(25, bad)

    s.looks.self_report = {}
    s.at(T, bad)


@case("healthy", variants=("plain", "no-metrics"), alert=NOT, probes=False, gpu=False, procs=False)
def logs_alone(s: Sim) -> None:
    pass


@case("healthy", variants=("plain", "busy", "idle"), alert=NOT, logs=False, gpu=False, procs=False, metrics=False)
def probes_alone(s: Sim) -> None:
    pass


@case(
    "sgl-kimi3-parser-empty-content",
    until=3600,
    variants=("plain",),
    rate=0.0,
    alert=must(0, 3600, "parser", "reasoning", "empty"),
    chat_s=60.0,
)
def empty_content_at_a_rate(s: Sim) -> None:
    from watchdog.observation import Answer

    def answer() -> Answer:
        if s.rng.random() < 0.25:
            return Answer(
                text="",
                reasoning="The capital of France is Paris.",
                finish_reason="stop",
                model="kimi-k2.5",
                prompt_tokens=27,
                completion_tokens=8,
            )
        return s.looks.good_answer()

    s.looks.answer = answer


@case("kimi25-max-tokens-200-empty", until=1800, variants=("plain", "one-gpu"), rate=0.0, alert=NOT)
def reasoning_only(s: Sim) -> None:
    from watchdog.observation import Answer

    s.looks.answer = lambda: Answer(
        text=None,
        reasoning="The user asks for the capital of France and wants one word. That is",
        finish_reason="length",
        model="kimi-k2.5",
        prompt_tokens=27,
        completion_tokens=16,
    )


assert MAY
