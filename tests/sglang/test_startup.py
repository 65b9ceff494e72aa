"""The phases of a start, in both orders."""

import pytest

from watchdog.sglang.loglines import Mark, classify
from watchdog.sglang.startup import PHASES, Phase, Step, advance, done_ratio, phase_of, remaining_s, steps

# What the first rank and the main process log, with the step that each line begins. Order up to 0.5.13:
OLD_START = [
    ("server_args=ServerArgs(tp_size=8)", "launch"),
    ("Init torch distributed begin.", "launch"),
    ("Load weight begin. avail mem=93.61 GB", "weights"),
    (
        "Load weight end. elapsed=312.44 s, type=KimiK25ForConditionalGeneration, avail mem=20.38 GB, mem usage=73.23 GB.",
        "weights",
    ),
    ("Using KV cache dtype: torch.bfloat16", "weights"),
    ("KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB", "KV cache"),
    ("Memory pool end. avail mem=9.27 GB", "KV cache"),
    ("Capture cuda graph begin. This can take up to several minutes. avail mem=9.60 GB", "graphs"),
    ("Capture cuda graph end. Time elapsed: 35.41 s. mem usage=1.38 GB. avail mem=8.22 GB.", "graphs"),
    ("Load weight begin. avail mem=8.22 GB", "draft weights"),
    (
        "Load weight end. type=LlamaForCausalLMEagle3, dtype=torch.bfloat16, avail mem=7.60 GB, mem usage=0.62 GB.",
        "draft weights",
    ),
    ("KV Cache is allocated. #tokens: 159277, K size: 0.30 GB, V size: 0.30 GB", "draft KV cache"),
    ("Memory pool end. avail mem=6.93 GB", "draft KV cache"),
    ("Capture draft cuda graph begin. This can take up to several minutes. avail mem=6.93 GB", "draft graphs"),
    ("Capture draft extend cuda graph begin. This can take up to several minutes. avail mem=6.72 GB", "draft graphs"),
    (
        "max_total_num_tokens=159277, chunked_prefill_size=8192, max_prefill_tokens=1, max_running_requests=48, context_len=9",
        "draft graphs",
    ),
    ("Allocating 44.77 GB host memory for hierarchical KV cache.", "host pool"),
    ("INFO:     Started server process [7199]", "warm-up"),
    ("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)", "warm-up"),
    ("The server is fired up and ready to roll!", "ready"),
]
# Order from 0.5.14 on:
NEW_START = [
    ("Init parallel begin.", "launch"),
    ("Load weight begin. avail mem=93.61 GB", "weights"),
    (
        "Load weight end. elapsed=103.60 s, type=KimiK25ForConditionalGeneration, avail mem=20.38 GB, mem usage=73.23 GB.",
        "weights",
    ),
    ("Load weight begin. avail mem=20.38 GB", "draft weights"),
    ("Load weight end. elapsed=1.76 s, type=LlamaForCausalLMEagle3, avail mem=19.76 GB, mem usage=0.62 GB.", "draft weights"),
    ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159277, KV size: 10.42 GB", "KV cache"),
    ("Memory pool end. avail mem=9.27 GB", "KV cache"),
    ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159277, K size: 0.30 GB, V size: 0.30 GB", "draft KV cache"),
    ("Memory pool end. avail mem=8.60 GB", "draft KV cache"),
    ("Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=8.60 GB", "graphs"),
    ("Capture target verify CUDA graph end. elapsed=31.30 s, mem usage=1.38 GB, avail mem=7.22 GB.", "graphs"),
    ("Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=7.22 GB", "draft graphs"),
    ("Capture draft extend CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=7.01 GB", "draft graphs"),
    ("Allocating kv hierarchical KV host pool: 637109 tokens, 44.77 GB host memory.", "host pool"),
    ("Attached hybrid pool stack to UnifiedRadixCache: pools=KV, transfer_layer_id_max=61", "host pool"),
    ("Allocating draft hierarchical KV host pool: 637109 tokens, 2.61 GB host memory.", "host pool"),
    ("Engine startup timings (s): load_weight=1.0, kv_cache_allocation=0.61, scheduler_e2e=2.0, cuda_graph={}", "warm-up"),
    ("The server is fired up and ready to roll!", "ready"),
]


@pytest.mark.parametrize(
    ("version", "start"), [("0.5.9", OLD_START), ("0.5.13.post1", OLD_START), ("0.5.23", NEW_START), (None, NEW_START)]
)
def test_a_whole_start(version: str | None, start: list[tuple[str, str]]) -> None:
    plan = steps(version, draft=True, host_pool=True)
    current = 0
    for text, name in start:
        line = classify("[2026-02-25 03:02:13] " + text)
        assert line is not None, text
        current = advance(plan, current, line)
        assert plan[current].name == name, text
    assert [step.name for step in plan if step.name not in {name for _, name in start}] == []


def test_without_draft_and_host_pool() -> None:
    plan = steps("0.5.9", draft=False, host_pool=False)
    assert [step.phase for step in plan] == [phase for phase in PHASES if phase is not Phase.HOST_POOL]
    current = 0
    for text, name in OLD_START[:9] + OLD_START[-3:]:
        line = classify("[2026-02-25 03:02:13] " + text)
        assert line is not None
        current = advance(plan, current, line)
        assert plan[current].name == name


def test_one_more_pool_of_a_hybrid_model_stays_in_its_step() -> None:
    plan = steps("0.5.9", draft=True, host_pool=False)
    line = classify("[2026-02-25 03:02:13] KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB")
    assert line is not None
    target = advance(plan, 0, line)
    assert advance(plan, target, line) == target


def test_a_late_line_moves_nothing_back() -> None:
    plan = steps("0.5.23", draft=True, host_pool=True)
    last = len(plan) - 1
    for text, _ in NEW_START:
        line = classify("[2026-02-25 03:02:13] " + text)
        assert line is not None
        assert advance(plan, last, line) == last


def test_marks_of_no_phase() -> None:
    assert phase_of(Mark.ACCESS) is None
    assert phase_of(Mark.STARTING) is None
    assert phase_of(Mark.HOST_POOL) is Phase.HOST_POOL
    assert {phase_of(mark) for mark in Mark} - {None} == set(PHASES)


PLAN = (
    Step(Phase.LAUNCH, False, 10),
    Step(Phase.WEIGHTS, False, 80),
    Step(Phase.WARM_UP, False, 10),
    Step(Phase.READY, False, 0),
)


def test_remaining() -> None:
    assert remaining_s(PLAN, 0, 4) == 96
    assert remaining_s(PLAN, 1, 500) == 10  # longer than usual: the rest of the step is unknown, and 0 at least
    assert remaining_s(PLAN, 1, 500, eta_s=60) == 70
    assert remaining_s(PLAN, 0, 0, learned={"weights": 1000.0}) == 1020
    assert remaining_s(PLAN, 3, 9) == 0


def test_done() -> None:
    assert done_ratio(PLAN, 0, 100) == 0
    assert done_ratio(PLAN, 1, remaining_s(PLAN, 1, 40)) == pytest.approx(0.5)
    assert done_ratio(PLAN, 1, 300) == pytest.approx(0.1)  # late: no less than what is behind it
    assert done_ratio(PLAN, 2, 0) == 0.99
    assert done_ratio(PLAN, 3, 0) == 1
