"""Wordings of a start, for all versions from 0.4.6 to 0.5.23. GPU and KV-cache lines print GiB, host-pool lines print GB."""

from watchdog.sglang.logrules import Rule, rule
from watchdog.sglang.marks import Mark

_GRAPH = r"(?P<text_what>.{0,30}?) ?(?:cuda|CUDA|cpu|CPU|npu|NPU|xpu|XPU) graph"
_AVAIL = r"(?:.{0,2000}?avail mem=(?P<avail_gib>-?[\d.]+) GB)?"

# The first word of the line's text → the rules for it.
STARTUP: dict[str, tuple[Rule, ...]] = {
    "Init": (
        rule(Mark.INIT_BEGIN, r"Init (?:torch distributed|parallel) begin\."),
        rule(
            Mark.STARTING,
            r"Init (?:torch distributed|parallel) ends\.(?: elapsed=(?P<elapsed_s>[\d.]+) s,?)?"
            r"(?: mem usage=(?P<mem_usage_gib>-?[\d.]+) GB)?",
        ),
        rule(Mark.STARTING, r"Init Unified Radix ?(?:Cache|Tree)"),
    ),
    "Load": (
        rule(Mark.WEIGHTS_BEGIN, r"Load weight begin\." + _AVAIL),
        rule(
            Mark.WEIGHTS_END,
            r"Load weight end\. (?:elapsed=(?P<elapsed_s>[\d.]+) s, )?type=(?P<text_type>\w+)"
            r".{0,2000}?avail mem=(?P<avail_gib>-?[\d.]+) GB, mem usage=(?P<mem_usage_gib>-?[\d.]+) GB",
        ),
    ),
    "Memory": (
        rule(Mark.MEMORY_POOL, r"Memory pool end\." + _AVAIL),
        rule(Mark.STARTING, r"Memory baseline taken\. mem usage=(?P<mem_usage_gib>-?[\d.]+) GB"),
    ),
    "Capture": (
        rule(Mark.GRAPHS_BEGIN, rf"Capture {_GRAPH} begin\." + _AVAIL),
        rule(
            Mark.GRAPHS_END,
            rf"Capture {_GRAPH} end\.(?:.{{0,2000}}?(?:Time elapsed: |elapsed=)(?P<elapsed_s>[\d.]+) s)?"
            r"(?:.{0,20}?mem usage=(?P<mem_usage_gib>-?[\d.]+) GB)?(?:.{0,20}?avail mem=(?P<avail_gib>-?[\d.]+) GB)?",
        ),
        rule(Mark.STARTING, r"Capture \w+ graph bs \["),
    ),
    "Allocating": (
        rule(
            Mark.HOST_POOL,
            r"Allocating (?P<text_label>\w+) hierarchical KV host pool: (?P<tokens>\d+) tokens, (?P<gb>[\d.]+) GB host memory",
        ),
        rule(Mark.HOST_POOL, r"Allocating (?P<gb>[\d.]+) GB host memory for hierarchical KV cache"),
        rule(Mark.HOST_POOL, r"Allocating (?P<gb>[\d.]+) GB host memory for hierarchical Mamba cache", label="mamba"),
        rule(Mark.HOST_POOL, r"Allocating (?P<gb>[\d.]+) GB host memory for (?P<text_label>[^(.]{1,60}?)(?: \(|\.|$)"),
        rule(Mark.HOST_POOL, r"Allocating (?P<text_label>.{1,60}?) host pool: .{0,60}?(?P<gb>[\d.]+) GB host memory"),
    ),
    "Attached": (
        rule(Mark.HOST_POOL_DONE, r"Attached hybrid pool stack to UnifiedRadixCache"),
        rule(Mark.STARTING, r"Attached HiCache storage backend: (?P<text_backend>\w+)"),
    ),
    "Attaching": (rule(Mark.STARTING, r"Attaching HiCache storage backend: (?P<text_backend>\w+)"),),
    "HiCache": (
        rule(Mark.HOST_POOL_DONE, r"HiCache draft KV registered: \w+ \(host (?P<tokens>\d+) slots\)", label="draft"),
        rule(Mark.STARTING, r"HiCache memory headroom: host (?P<host_gib>[\d.]+) GiB, cgroup (?P<cgroup_gib>[\d.]+) GiB"),
        rule(Mark.STARTING, r"HiCache auto-sizing: ratio [\d.]+ -> (?P<ratio>[\d.]+); (?P<gib>[\d.]+) GiB host memory per rank"),
        rule(
            Mark.HICACHE_TROUBLE,
            r"HiCache (?P<text_label>\w+) (?:KV )?(?:host )?(?:KV )?pool \((?P<tokens>\d+) tokens\) "
            r"is smaller than the device pool \((?P<device_tokens>\d+) tokens\)",
            cause="pool-small",
        ),
    ),
    "Tree": (
        rule(Mark.HOST_POOL_DONE, r"Tree cache initialized: .{0,500}?(?:hierarchical|hicache_attached)=True"),
        rule(Mark.STARTING, r"Tree cache initialized: "),
    ),
    "Engine": (
        rule(
            Mark.RANKS_UP,
            r"Engine startup timings \(s\): load_weight=(?P<load_weight_s>[\d.]+), "
            r"kv_cache_allocation=(?P<kv_cache_allocation_s>[\d.]+), "
            r"scheduler_e2e=(?P<scheduler_s>[\d.]+)",
        ),
    ),
    "Started": (rule(Mark.RANKS_UP, r"Started server process \[(?P<pid>\d+)\]"),),
    "Uvicorn": (rule(Mark.HTTP_UP, r"Uvicorn running on (?P<text_url>\S+)"),),
    "Application": (rule(Mark.STARTING, r"Application startup complete\."),),
    "Waiting": (rule(Mark.STARTING, r"Waiting for application startup\."),),
    "The": (rule(Mark.READY, r"The server is fired up and ready to roll!"),),
    "Running": (
        rule(Mark.WARMUP, r"Running warmup (?P<text_name>\S+)"),
        rule(Mark.STARTING, r"Running FlashInfer autotune"),
    ),
    "Warmup": (rule(Mark.WARMUP, r"Warmup ended$"),),
    "Using": (
        rule(Mark.WARMUP, r"Using a \d+x\d+ image for .{0,40}?VLM startup warmup"),
        rule(Mark.STARTING, r"Using (?:KV cache dtype: |CompressedTensors\w+|default HuggingFace chat template)"),
    ),
    "Use": (
        rule(
            Mark.STARTING,
            r"Use [Ss]liding window memory pool\. "
            r"full_layer_tokens=(?P<tokens>\d+), swa_layer_tokens=(?P<swa_tokens>\d+)",
        ),
    ),
    "Attention": (rule(Mark.STARTING, r"Attention backend not (?:explicitly )?specified\."),),
    "Auto-detected": (rule(Mark.STARTING, r"Auto-detected template features: "),),
    "Max": (rule(Mark.STARTING, r"Max running requests is reset to (?P<max_running_requests>\d+) for speculative decoding\."),),
    "Overlap": (rule(Mark.STARTING, r"Overlap scheduler (?:is|and mixed chunked prefill are) disabled"),),
    "sglang": (rule(Mark.STARTING, r"sglang is using nccl=="),),
    "NCCL/RCCL": (rule(Mark.STARTING, r"NCCL/RCCL warmup completed"),),
    "NCCL/RCCL/HCCL": (rule(Mark.STARTING, r"NCCL/RCCL/HCCL warmup completed"),),
    "FlashInfer": (rule(Mark.STARTING, r"FlashInfer autotune completed\."),),
    "Registering": (rule(Mark.STARTING, r"Registering \d+ cuda graph addresses"),),
    "Disable": (rule(Mark.STARTING, r"Disable (?:(?:target|draft) )?prefill CUDA graph because "),),
    "Watchdog": (rule(Mark.STARTING, r"Watchdog \w+ initialized\."),),
    "Dummy": (rule(Mark.STARTING, r"Dummy health check server "),),
    "Page": (rule(Mark.STARTING, r"Page first layout is not supported with direct IO backend"),),
}

KV_CACHE = rule(
    Mark.KV_CACHE,
    r"(?:(?P<text_label>[\w.-]{1,20}(?: [\w.-]{1,20}){0,3}) )?"
    r"KV Cache (?:is allocated|VA upper bound)\. (?:dtype: (?P<text_dtype>[\w.]+), )?"
    r"#tokens: (?P<tokens>\d+), (?:KV size: (?P<kv_gib>[\d.]+) GB|K size: (?P<k_gib>[\d.]+) GB, V size: (?P<v_gib>[\d.]+) GB)",
)

TOKENS_TOTAL = rule(
    Mark.TOKENS_TOTAL,
    r"max_total_num_tokens=(?P<max_total_num_tokens>\d+), chunked_prefill_size=(?P<chunked_prefill_size>-?\d+|None), "
    r"max_prefill_tokens=(?P<max_prefill_tokens>\d+), max_running_requests=(?P<max_running_requests>\d+), "
    r"context_len=(?P<context_len>\d+)(?:, available_(?:gpu|cpu)_mem=(?P<available_gpu_gib>-?[\d.]+) GB)?",
)
