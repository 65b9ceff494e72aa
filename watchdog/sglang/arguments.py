"""Launch arguments of SGLang: from a command line, or from the line `server_args=…` that the server logs at its start.

Source: srt/server_args.py of 0.4.6 to 0.5.23. A command line says what was asked for; the logged line and /server_info say what
SGLang made of it.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from watchdog.observation import STRUCK

DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 30000,
    "tp_size": 1,
    "dp_size": 1,
    "pp_size": 1,
    "ep_size": 1,
    "nnodes": 1,
    "node_rank": 0,
    "base_gpu_id": 0,
    "gpu_id_step": 1,
    "enable_dp_attention": False,
    "page_size": 1,
    "kv_cache_dtype": "auto",
    "enable_hierarchical_cache": False,
    "hicache_ratio": 2.0,
    "hicache_size": 0,
    "hicache_host_memory_mode": "cache",
    "hicache_storage_backend": None,
    "speculative_algorithm": None,
    "reasoning_parser": None,
    "tool_call_parser": None,
    "enable_metrics": False,
    "enable_cache_report": False,
    "watchdog_timeout": 300,
    "soft_watchdog_timeout": None,
    "decode_log_interval": 40,
    "log_level": "info",
    "log_requests": False,
    "disaggregation_mode": "null",
    "skip_server_warmup": False,
    "max_running_requests": None,
    "max_queued_requests": None,
    "tokenizer_worker_num": 1,
    "load_format": "auto",
    "api_key": None,
    "admin_api_key": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
}
"""What an argument is where it is not given (the same in all versions, but for what `hostpool` says of the ratio)."""

_ALIASES = {
    "model": "model_path",
    "tensor_parallel_size": "tp_size",
    "tp": "tp_size",
    "data_parallel_size": "dp_size",
    "dp": "dp_size",
    "pipeline_parallel_size": "pp_size",
    "pp": "pp_size",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "nccl_init_addr": "dist_init_addr",
    "speculative_draft_model": "speculative_draft_model_path",
    "attention_context_parallel_size": "attn_cp_size",
    "moe_data_parallel_size": "moe_dp_size",
    "modelopt_quantization": "modelopt_quant",
}
_SWITCHES = frozenset(
    """trust_remote_code skip_server_warmup skip_tokenizer_init log_requests sleep_on_idle show_time_cost is_embedding grpc_mode
    smg_grpc_mode use_ray return_input_ids return_output_ids strip_thinking_cache allow_auto_truncate incremental_streaming_output
    stream_response_default_include_usage export_metrics_to_file constrained_json_disable_any_whitespace debug_cuda_graph
    triton_attention_reduce_in_fp32 flashinfer_mla_disable_ragged pre_warm_nccl speculative_adaptive encoder_only language_only
    delete_ckpt_after_loading weight_loader_disable_mmap quantize_and_serve multi_node""".split()  # noqa: SIM905
)
_SWITCH_STARTS = ("enable_", "disable_", "enforce_", "no_enable_", "no_disable_")
# Values that stay text even where they look like numbers.
_TEXTS = re.compile(r"(?:.*_)?(?:path|name|key|host|addr|file|folder|dir|revision|password|token)")
_SECRET = re.compile(r"(?:.*_)?(?:api_key|secret|password|credentials?|access_key|auth_token|hf_token|token)", re.IGNORECASE)
_SECRET_IN_TEXT = re.compile(
    r"""(--[\w-]{0,40}(?:api[_-]key|password|secret|hf-token|auth-token)(?:=|\s{1,3})"""
    r"""|\b\w{0,40}(?:api_key|password|secret|access_key|hf_token|auth_token)["']?\s{0,3}[:=]\s{0,3})"""
    r"""("[^"]*"|'[^']*'|(?!None\b|null\b)[^\s,)}]+)""",
    re.IGNORECASE,
)
_VALUE_LIMIT = 16384
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d{1,18}\.?\d{0,18}|\.\d{1,18})(?:[eE][+-]?\d{1,3})?")
_ENTRY = re.compile(r"\s*(?:'(?P<quoted>[\w.-]+)'\s*:|(?P<name>\w+)\s*=)\s*")


def parse_argv(argv: Sequence[str]) -> dict[str, Any]:
    """The launch arguments that a command line gives, under SGLang's own names; nothing that it does not give.

    Numbers are numbers, switches True or False, several values a list; an unknown flag keeps its text under the name that
    argparse would give it. `config` names a YAML file that SGLang reads as well: its arguments are not in the result.

    Args:
        argv: the whole command line (/proc/PID/cmdline), or only its arguments.
    """
    given: dict[str, Any] = {}
    tokens = list(_after_entry(argv))
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if not token.startswith("--") or len(token) == 2:
            continue
        flag, has_value, value = token[2:].partition("=")
        name = flag.replace("-", "_")
        name = _ALIASES.get(name, name)
        if has_value:
            given[name] = _typed(name, value)
            continue
        values: list[str] = []
        while index < len(tokens) and not tokens[index].startswith("--"):
            values.append(tokens[index])
            index += 1
        if name in _SWITCHES or name.startswith(_SWITCH_STARTS):
            if name.startswith("no_"):
                given[name[3:]] = False
            else:
                given[name] = _typed(name, values[0]) is not False if values else True
        elif not values:
            given[name] = True
        else:
            given[name] = _typed(name, values[0]) if len(values) == 1 else [_typed(name, each) for each in values]
    return given


def _after_entry(argv: Sequence[str]) -> Sequence[str]:
    """The part of a command line that SGLang's own parser sees."""
    for index, token in enumerate(argv):
        if token in ("sglang.launch_server", "sglang.cli.main") or token.endswith("launch_server.py"):
            return argv[index + 1 :]
        if token in ("serve", "launch") and index > 0 and argv[index - 1].rpartition("/")[2] == "sglang":
            return argv[index + 1 :]
    return argv


def _typed(name: str, value: str) -> Any:
    if _TEXTS.fullmatch(name):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value == "None":
        return None
    if _INTEGER.fullmatch(value):
        return int(value)
    if _NUMBER.fullmatch(value):
        return float(value)
    return value


def parse_server_args_line(message: str) -> dict[str, Any]:
    """The arguments in the log line `server_args=ServerArgs(…)` (up to 0.5.18) or `server_args={…}` (0.5.19 on).

    A value that is no Python literal keeps its text. A line that was cut gives what stands before the cut; one that is no such
    line gives an empty dict.
    """
    start = message.find("server_args=")
    opening = re.compile(r"server_args=(?:\w+\(|\{)").match(message, max(0, start))
    if start < 0 or opening is None:
        return {}
    return dict(_entries(message, opening.end()))


def _entries(text: str, position: int) -> Iterator[tuple[str, Any]]:
    while True:
        entry = _ENTRY.match(text, position)
        if entry is None:
            return
        end = _end_of_value(text, entry.end())
        if end is None:
            return
        yield entry["quoted"] or entry["name"], _literal(text[entry.end() : end])
        if text[end] != ",":
            return
        position = end + 1


def _end_of_value(text: str, position: int) -> int | None:
    """Where a value ends: at the next comma or closing bracket that is neither in a string nor in a bracket of its own."""
    depth = 0
    quote = ""
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{<":
            depth += 1
        elif character in ")]}>" and depth > 0:
            depth -= 1
        elif character in ",)}" and depth == 0:
            return position
        position += 1
    return None


def _literal(text: str) -> Any:
    if len(text) > _VALUE_LIMIT:
        return text[:_VALUE_LIMIT]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


def redact(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with keys, passwords and tokens replaced by "…", also within values; those that are not set stay None."""
    return {name: _redacted(name, value) for name, value in args.items()}


def _redacted(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if _SECRET.fullmatch(name.replace("-", "_")):
        return STRUCK
    if isinstance(value, Mapping):
        return {key: _redacted(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted("", each) for each in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Text (a log line, a command line) with the values after `api_key=`, `--api-key`, `"password":` … replaced by "…"."""
    return _SECRET_IN_TEXT.sub(rf"\1{STRUCK}", text)


class Layout(msgspec.Struct, frozen=True):
    """How a server's ranks lie over pipeline, tensor and data parallelism, and over hosts.

    Attributes:
        dp_outside: each data-parallel rank has schedulers of its own (no --enable-dp-attention).
        tp_here: the tensor-parallel ranks on this host.
        pp_here: the pipeline stages on this host.
    """

    tp: int
    pp: int
    dp: int
    ep: int
    dp_outside: bool
    tp_here: range
    pp_here: range

    @property
    def here(self) -> int:
        """How many scheduler processes this host has."""
        return len(self.tp_here) * len(self.pp_here) * (self.dp if self.dp_outside else 1)


def layout(args: Mapping[str, Any]) -> Layout:
    """The layout that launch arguments ask for, with the defaults for what they leave out (entrypoints/engine.py)."""
    tp, pp, dp, ep, nodes = (_count(args, name) for name in ("tp_size", "pp_size", "dp_size", "ep_size", "nnodes"))
    node = args.get("node_rank")
    node = node if isinstance(node, int) and 0 <= node < nodes else 0
    nodes_per_stage = max(nodes // pp, 1)
    stages_per_node = max(pp // nodes, 1)
    tp_per_node = max(tp // nodes_per_stage, 1)
    first_stage = stages_per_node * (node // nodes_per_stage)
    first_tp = tp_per_node * (node % nodes_per_stage)
    return Layout(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        dp_outside=dp > 1 and args.get("enable_dp_attention") is not True,
        tp_here=range(first_tp, first_tp + tp_per_node),
        pp_here=range(first_stage, first_stage + stages_per_node),
    )


def _count(args: Mapping[str, Any], name: str) -> int:
    value = args.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4096 else 1


def ranks_here(args: Mapping[str, Any]) -> int:
    """How many scheduler processes (ranks) this host has, at least 1: tp x pp over the hosts, x dp without DP attention."""
    return layout(args).here
