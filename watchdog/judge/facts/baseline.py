"""The baseline of a deployment: what was right when it was verified, and by what the deployment is known."""

from typing import Any

import msgspec

from watchdog.sglang import arguments

MATTERS = (
    *("model_path", "revision", "load_format", "dtype", "quantization", "kv_cache_dtype", "context_length", "page_size"),
    *("tp_size", "dp_size", "pp_size", "ep_size", "nnodes", "node_rank", "enable_dp_attention", "attention_backend"),
    *("mem_fraction_static", "max_total_tokens", "max_running_requests", "chunked_prefill_size", "cuda_graph_max_bs"),
    *("disable_cuda_graph", "disable_radix_cache", "enable_hierarchical_cache", "hicache_ratio", "hicache_size"),
    *("hicache_write_policy", "hicache_io_backend", "hicache_mem_layout", "hicache_storage_backend", "hicache_host_memory_mode"),
    *("speculative_algorithm", "speculative_draft_model_path", "speculative_num_steps", "speculative_eagle_topk"),
    *("speculative_num_draft_tokens", "disaggregation_mode"),
)
"""Arguments of which memory, speed or the start depend (srt/server_args.py); addresses, names and log settings do not matter."""


class Identity(msgspec.Struct, kw_only=True):
    """By what a deployment is known.

    Attributes:
        host: the machine's name.
        version: SGLang's version.
        arguments: those of `MATTERS` that are known.
    """

    host: str = ""
    version: str | None = None
    arguments: dict[str, Any] = {}

    def differences(self, other: "Identity") -> list[tuple[str, Any, Any]]:
        """What differs for certain: (name, here, there). What one of the two does not know is no difference."""
        out: list[tuple[str, Any, Any]] = []
        for name in ("host", "version"):
            here, there = getattr(self, name), getattr(other, name)
            if here and there and here != there:
                out.append((name, here, there))
        for name in MATTERS:
            here = self.arguments.get(name, arguments.DEFAULTS.get(name))
            there = other.arguments.get(name, arguments.DEFAULTS.get(name))
            if here is not None and there is not None and here != there:
                out.append((name, here, there))
        return out


def identity_of(args: dict[str, Any], version: str | None, host: str) -> Identity:
    """The identity of a server with these arguments on this host."""
    known = {name: args[name] for name in MATTERS if args.get(name) is not None}
    return Identity(host=host, version=version, arguments=known)


class Baseline(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was right. Bytes are bytes, times are seconds; None: not known when it was made.

    Attributes:
        identity: the deployment that it belongs to.
        made_at: when it was made (RFC 3339, UTC).
        made_by: "first verified life", "learn" or "accept".
        expected, within: the host pools of all ranks by arithmetic, and how exact that is.
        announced: what SGLang announced, all ranks.
        seen, seen_as: what memory showed, and where ("unit", "ranks", "hugetlb", "host").
        seen_grown: whether `seen` is what was added after the announcement (else it is all that the place held).
        tolerance: the share by which memory may differ from `seen` before it is called drift, 0…1.
        kv_tokens, kv_bytes, draft_bytes: the KV cache of one rank on its GPU.
        pool_tokens: tokens of one rank's host pool.
        start_s, phases: how long its starts took.
        accept_length: tokens a decode step yields for a request, with speculation.
        steps: seconds of a decode step by batch size ("1", "2", "4" …).
        first_token: seconds to the first token of our own requests by their kind ("chat", "prefix").
        prompts: seconds to the first token of users' requests by the prompt tokens that were computed ("1024": 1,024 to 2,047).
        idle_w: what a GPU draws while idle, in watts.
        gpu_bytes: memory of the fullest GPU in use.
        room: bytes that were left on the host.
    """

    identity: Identity
    made_at: str = ""
    made_by: str = ""
    expected: int | None = None
    within: int | None = None
    announced: int | None = None
    seen: int | None = None
    seen_as: str | None = None
    seen_grown: bool | None = None
    tolerance: float = 0.05
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    draft_bytes: int | None = None
    pool_tokens: int | None = None
    start_s: float | None = None
    phases: dict[str, float] = {}
    accept_length: float | None = None
    steps: dict[str, float] = {}
    first_token: dict[str, float] = {}
    prompts: dict[str, float] = {}
    idle_w: float | None = None
    gpu_bytes: int | None = None
    room: int | None = None
