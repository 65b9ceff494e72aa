"""Servers of which only a part is wrong, or nothing but the way to them."""

from itertools import count, cycle
from typing import Any

from tests.incidents import wording
from tests.incidents.case import MAY, NOT, case, must
from tests.incidents.cases_busy import go_on, pause
from tests.incidents.sim import Sim
from watchdog import observation as o

T = 600.0
GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"


def in_between(s: Sim, answer: dict[str, Any], scrape: str) -> None:
    """From a moment on something between us and the server answers, or nothing does; the server does not hear of it."""

    def begin() -> None:
        s.looks.health_as = s.looks.chat_as = s.looks.models_as = s.looks.ready_as = lambda: dict(answer)
        s.looks.metrics_fail = scrape

    s.at(T, begin)


WAYS = ("plain", "no-metrics", "0.5.9", "one-gpu", "no-gpu-source", "idle")


@case("probes do not connect", until=1900, variants=WAYS, alert=must(T + 60, T + 900, "firewall"))
def a_firewall_shuts_us_out(s: Sim) -> None:
    in_between(s, {"outcome": "connect_timeout", "total_s": 5.0}, "connect_timeout")


@case("probes do not connect", until=1900, variants=("plain", "0.5.9"), alert=must(T + 60, T + 900, "base_url"), rate=0.8)
def it_listens_elsewhere(s: Sim) -> None:
    in_between(s, {"outcome": "refused", "connect_s": 0.0002, "total_s": 0.0005}, "refused")


@case("slime-403-300-retries", until=1900, variants=WAYS, alert=must(T + 60, T + 900, "proxy"))
def a_gateway_answers_for_it(s: Sim) -> None:
    in_between(s, {"outcome": "status", "status": 502, "total_s": 0.003, "ttft_s": 0.003, "body": GATEWAY}, "status 502")


@case("slime-403-300-retries", until=2400, variants=("plain", "no-metrics"), mid_life=False, logs=False, rate=0.8)
def its_readiness_is_not_heard_of(s: Sim) -> None:
    """No line is read and no request of ours gets through, since the start: what works all the same is not stuck in it."""
    no = {"outcome": "status", "status": 403, "total_s": 0.002, "body": "Forbidden"}
    s.looks.health_as = s.looks.chat_as = s.looks.models_as = s.looks.ready_as = lambda: dict(no)
    s.at(20, s.boot)


@case("pause", until=1500, variants=("plain", "no-metrics", "0.5.9"), alert=NOT)
def weights_are_replaced(s: Sim) -> None:
    def begin() -> None:
        s.log("Start update_weights. Load format=auto")
        s.engine.paused = True

    def end() -> None:
        s.log(wording.access("10.0.0.9:41001", "POST", "/update_weights_from_disk", 200))
        s.engine.paused = False
        s.engine.wake()

    s.at(T, begin)
    s.at(T + 200, end)


@case(
    "sgl-health-503-long-prefill",
    "ikllama-health-blocked-prefill-60min",
    until=2200,
    variants=("plain", "0.5.9", "one-gpu"),
    withhold=MAY,
    rate=0.05,
    chunk=-1,
    watchdog_s=3600.0,
    args={"context_length": 1_048_576, "max_prefill_tokens": 1_048_576},
)
def one_prefill_of_ten_minutes(s: Sim) -> None:
    """A queue builds up behind it, with room in the pool: nothing is let in, and nothing stands still."""
    s.engine.prefill_tps = 1700.0
    s.at(T, lambda: s.user(1_000_000, 200) and None)


@case(
    "sgl-omni-flashinfer-jit-678s",
    until=2400,
    variants=("plain", "0.5.9", "bare"),
    withhold=MAY,
    mid_life=False,
    start={"imports": 1700.0},
)
def the_model_is_fetched_first(s: Sim) -> None:
    s.at(20, s.boot)
    for k in range(1, 60):
        share = 100 * k // 64
        bar = f"Fetching 64 files: {share:3d}%|###   | {k}/64 [{28 * k // 60:02d}:{28 * k % 60:02d}<20:00, 28.01s/it]"
        s.at(60 + 28 * k, lambda bar=bar: s.log(bar, "bare"))


@case("start-never-ready", until=2600, variants=("plain",), mid_life=False, restart=must(620, 2200), start={"imports": 5000.0})
def the_download_stands_still(s: Sim) -> None:
    """The bar is drawn again and again, and shows the same each time."""
    s.at(20, s.boot)
    s.at(200, lambda: s.looks.freeze_growth(200))
    for k in range(1, 90):
        done = min(k, 5)
        bar = (
            f"Fetching 64 files: {100 * done // 64:3d}%|###   | {done}/64 [{28 * k // 60:02d}:{28 * k % 60:02d}<20:00, 28.01s/it]"
        )
        s.at(60 + 28 * k, lambda bar=bar: s.log(bar, "bare"))


@case(
    "journal-reader-stuck-after-rotate",
    until=2400,
    variants=("plain", "busy", "0.5.9", "no-metrics", "one-gpu-no-metrics"),
    alert=must(T + 200, T + 1300, "log"),
)
def no_line_comes_any_more(s: Sim) -> None:
    s.lose = lambda _line: s.now > T


@case(
    "sgl-l3-garbled",
    until=3000,
    variants=("plain", "no-metrics", "0.5.9"),
    alert=must(T, T + 2000),
    plan_restart=MAY,
    chat_s=30.0,
)
def each_fourth_answer_is_garbage(s: Sim) -> None:
    turn = count()

    def answer() -> o.Answer:
        good = s.looks.good_answer()
        if s.now < T or next(turn) % 4:
            return good
        return o.Answer(text="!!!!!!!!!!!!", finish_reason="length", model="kimi-k2.5", prompt_tokens=27, completion_tokens=12)

    s.looks.answer = answer


@case("vllm-exit-0-on-engine-death", until=2000, variants=("plain", "0.5.9", "bare"), alert=must(T + 300, T + 1200, "sigterm"))
def ended_by_a_signal_from_nowhere(s: Sim) -> None:
    def signal() -> None:
        s.log(wording.SIGTERM)
        s.draining = True
        s.after(40, lambda: s.exit(code="exited", status=0))

    s.at(T, signal)


@case(
    "flood",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu-no-metrics"),
    alert=must(480, 1800),
    withhold=MAY,
    answers=(400, 1500),
)
def more_users_than_it_can_serve(s: Sim) -> None:
    s.at(300, lambda: setattr(s, "rate", 9.0))


@case(
    "one replica hangs",
    until=3000,
    variants=("plain", "no-metrics", "0.5.9"),
    restart=must(T + 120, T + 1500),
    dp=4,
    ranks=4,
    spec=False,
    hicache=False,
    rate=0.8,
    chat_s=30.0,
    chat_limit_s=30.0,
)
def one_replica_of_four_hangs(s: Sim) -> None:
    """The third of four replicas stands still with requests in hand: each fourth canary waits in vain."""
    replica, turn = cycle(("DP0", "DP1", "DP2", "DP3")), count()
    s._rank0 = lambda: next(replica)  # type: ignore[method-assign]
    s.lose = lambda line: s.now > T and " DP2]" in line
    good = s.looks.good_answer

    def chat() -> dict[str, Any]:
        if s.now > T and next(turn) % 4 == 2:
            return {"outcome": "timeout", "total_s": 30.0}
        return {"outcome": "ok", "status": 200, "ttft_s": 0.05, "total_s": 0.3, "answer": good()}

    s.looks.chat_as = chat


@case("healthy", until=2400, variants=("plain", "no-metrics"), alert=NOT, dp=4, ranks=4, spec=False, hicache=False, rate=0.8)
def one_replica_of_four_has_nothing_to_do(s: Sim) -> None:
    replica = cycle(("DP0", "DP1", "DP3"))
    s._rank0 = lambda: "DP2" if s.now < T - 5 else next(replica)  # type: ignore[method-assign]


@case(
    "prompts in the log",
    until=2200,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu"),
    restart=must(1520, 2000),
    watchdog_s=20000.0,
)
def a_prompt_looks_like_a_log(s: Sim) -> None:
    """With --log-requests a user's text is in the journal: it must not make us blind for what comes later."""

    def prompt() -> None:
        s.log("Receive: obj=GenerateReqInput(rid='1f2e', text='Explain this:")
        s.log(wording.SIGTERM)
        s.exception("RuntimeError: CUDA error: an illegal memory access was encountered", 1)
        s.log("Start update_weights. Load format=auto")
        s.log("', sampling_params={})", "bare")

    s.at(T, prompt)
    s.at(1500 - 4, lambda: s.user(2000, 3000) and None)
    s.at(1500, lambda: setattr(s.engine, "stuck", True))


@case(
    "one of two front ends",
    until=2600,
    variants=("plain", "no-metrics", "0.5.9"),
    alert=must(T + 60, T + 1600, "front end"),
    rate=0.05,
    args={"tokenizer_worker_num": 2},
)
def one_of_two_tokenizers_is_dead(s: Sim) -> None:
    """Each second request hangs in the front end, canaries and health checks too, while the engine idles."""
    turn = count()
    good = s.looks.good_answer

    def chat() -> dict[str, Any]:
        if s.now > T and next(turn) % 2:
            return {"outcome": "timeout", "total_s": 60.0}
        return {"outcome": "ok", "status": 200, "ttft_s": 0.05, "total_s": 0.3, "answer": good()}

    s.looks.chat_as = chat


@case(
    "canary alone",
    until=2000,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu-no-metrics"),
    alert=must(T + 300, T + 1200, "canary"),
)
def only_the_canary_is_cut_off(s: Sim) -> None:
    """Each canary is reset at once; users are answered as ever."""
    s.at(T, lambda: setattr(s.looks, "chat_as", lambda: {"outcome": "reset", "connect_s": 0.0003, "total_s": 0.4}))


@case("pause", until=2600, variants=("plain", "no-metrics", "0.5.9"), alert=NOT, rate=0.05, answers=(800, 2500))
def busy_after_a_long_pause(s: Sim) -> None:
    """Canaries that failed while generation was paused say nothing of the time after it."""
    s.at(T, lambda: pause(s))
    s.at(T + 700, lambda: go_on(s))
