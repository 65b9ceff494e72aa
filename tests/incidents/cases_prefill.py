"""Long prompts: nothing is heard of the engine for minutes, and it works."""

from tests.incidents.case import NOT, case
from tests.incidents.sim import Sim

T = 600.0


@case(
    "sgl-health-503-long-prefill",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "bare", "no-gpu-source", "slow-probes"),
    withhold=NOT,
    chunk_s=26.0,
    rate=0.008,
    prompts=(30000, 90000),
    answers=(50, 300),
)
def long_chunked_prefill(s: Sim) -> None:
    pass


@case(
    "sgl-health-503-long-prefill",
    until=2400,
    variants=("plain", "no-metrics", "bare"),
    chunk_s=48.0,
    rate=0.006,
    prompts=(30000, 60000),
    answers=(50, 300),
)
def very_long_chunks(s: Sim) -> None:
    pass


@case(
    "ikllama-health-blocked-prefill-60min",
    until=3000,
    variants=("plain", "0.5.9", "no-metrics", "one-gpu-no-metrics"),
    chunk_s=150.0,
    rate=0.0,
)
def first_long_prompt_of_a_slow_server(s: Sim) -> None:
    """Fifty tokens a second, and nothing was seen of that before. From 0.5.20 on only the GPUs tell of the first chunk."""
    s.at(600, lambda: s.user(82_000, 60))


@case(
    "sgl-health-503-long-prefill",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "bare", "no-gpu-source", "one-gpu-no-metrics", "quick-probes"),
    chunk=-1,
    rate=0.02,
    prompts=(200, 900),
)
def unchunked_prefill(s: Sim) -> None:
    """Two prompts of 96k tokens at a time: 28 s each without a line in between (measured: two false 503s, then 200)."""
    s.engine.prefill_tps = 3400.0
    for t in (400, 1000, 1600):
        s.at(float(t), lambda: [s.user(96000, 200) for _ in range(2)] and None)


@case(
    "ikllama-health-blocked-prefill-60min",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9"),
    chunk=-1,
    rate=0.01,
    prompts=(200, 900),
)
def unchunked_prefill_of_minutes(s: Sim) -> None:
    """The GPUs draw the power of real work for 150 s, and nothing else is to be seen."""
    s.engine.prefill_tps = 800.0
    for t in (500, 1100, 1700):
        s.at(float(t), lambda: s.user(120000, 200) and None)


@case(
    "ikllama-health-blocked-prefill-60min",
    until=2400,
    variants=("plain", "0.5.9", "no-metrics", "one-gpu"),
    chunk=-1,
    chat_s=20.0,
    rate=0.0,
    watchdog_s=20000.0,
)
def one_prompt_of_many_minutes(s: Sim) -> None:
    """Canaries that came in the middle of one long step tell nothing of the detokenizer when it is over."""
    s.engine.prefill_tps = 110.0
    # The scheduler writes its gauges between steps.
    s.looks.metrics_extra = {"num_queue_reqs": 0.0, "num_running_reqs": 0.0}
    s.at(T, lambda: s.user(100_000, 400) and None)
