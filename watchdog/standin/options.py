"""The command line of the stand-in: arguments of SGLang, and its own."""

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchdog.standin.faults import DEFAULT_DIR
from watchdog.standin.log import is_version, version_key
from watchdog.standin.parser import Help, Parser, port

PHASES = ("init", "weights", "kv", "graphs", "pool", "http", "warmup")
SHARES = {"init": 0.1, "weights": 0.45, "kv": 0.02, "graphs": 0.18, "pool": 0.15, "http": 0.02, "warmup": 0.08}
"""How `--start-seconds` is shared out, after a start of Kimi-K2.5 on 8 GPUs."""
FAILURES = {
    "init": ("exception", "oom-kill", "arguments"),
    "weights": ("exception", "oom-kill", "gpu-memory"),
    "kv": ("gpu-memory", "exception", "oom-kill"),
    "graphs": ("gpu-memory", "exception", "oom-kill"),
    "pool": ("host-memory", "exception", "oom-kill"),
    "http": ("port",),
    "warmup": ("warmup",),
}
"""How a start can fail, by phase; the first is what usually happens."""
POOL_KINDS = ("auto", "anon", "shared", "memfd", "huge", "none")

KIMI_TOKENS = 159277
"""KV cache of the reference deployment: Kimi-K2.5, INT4, 8 GPUs, tokens a rank."""
KIMI_TOKEN_BYTES = 61 * (512 + 64) * 2
"""Bytes of one token in it: 61 layers, 512 + 64 latent values of 2 bytes, not divided by TP."""
DRAFT_SHARE = 4096 / KIMI_TOKEN_BYTES
"""The EAGLE3 draft model's bytes per token, as a share of the target's."""

_ARGUMENTS: tuple[tuple[str, Callable[[str], Any] | None, Any], ...] = (
    ("model-path", str, "/models/Kimi-K2.5"),
    ("tokenizer-path", str, None),
    ("tokenizer-mode", str, "auto"),
    ("load-format", str, "auto"),
    ("trust-remote-code", None, False),
    ("context-length", int, 262144),
    ("quantization", str, None),
    ("dtype", str, "auto"),
    ("kv-cache-dtype", str, "auto"),
    ("host", str, "127.0.0.1"),
    ("port", port, 30000),
    ("mem-fraction-static", float, 0.92),
    ("max-running-requests", int, 48),
    ("max-queued-requests", int, None),
    ("max-total-tokens", int, None),
    ("chunked-prefill-size", int, 8192),
    ("max-prefill-tokens", int, 16384),
    ("schedule-policy", str, "fcfs"),
    ("page-size", int, 1),
    ("tp-size", int, 1),
    ("pp-size", int, 1),
    ("dp-size", int, 1),
    ("ep-size", int, 1),
    ("nnodes", int, 1),
    ("node-rank", int, 0),
    ("dist-init-addr", str, None),
    ("dist-timeout", int, None),
    ("base-gpu-id", int, 0),
    ("random-seed", int, 777389390),
    ("watchdog-timeout", float, 300),
    ("soft-watchdog-timeout", float, None),
    ("decode-log-interval", int, 40),
    ("log-level", str, "info"),
    ("log-requests", None, False),
    ("enable-metrics", None, False),
    ("enable-metrics-for-all-schedulers", None, False),
    ("enable-cache-report", None, False),
    ("served-model-name", str, None),
    ("api-key", str, None),
    ("admin-api-key", str, None),
    ("chat-template", str, None),
    ("reasoning-parser", str, None),
    ("tool-call-parser", str, None),
    ("attention-backend", str, None),
    ("speculative-algorithm", str, None),
    ("speculative-draft-model-path", str, None),
    ("speculative-num-steps", int, None),
    ("speculative-eagle-topk", int, None),
    ("speculative-num-draft-tokens", int, None),
    ("enable-hierarchical-cache", None, False),
    ("hicache-ratio", float, 2.0),
    ("hicache-size", int, 0),
    ("hicache-write-policy", str, "write_through"),
    ("hicache-io-backend", str, "kernel"),
    ("hicache-mem-layout", str, "layer_first"),
    ("hicache-storage-backend", str, None),
    ("disable-radix-cache", None, False),
    ("disable-cuda-graph", None, False),
    ("disable-overlap-schedule", None, False),
    ("skip-server-warmup", None, False),
    ("crash-dump-folder", str, None),
    ("sleep-on-idle", None, False),
    ("disaggregation-mode", str, "null"),
)

_SHORT = {"tp-size": ("--tp",), "dp-size": ("--dp",), "pp-size": ("--pp",), "ep-size": ("--ep",)}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the stand-in was asked to be.

    Attributes:
        server: SGLang's arguments under SGLang's names, resolved as SGLang shows them.
        launch_command: the command line after the program's name.
        scale: factor on the fixed waits of SGLang (its health poll of 1 s, health limit of 20 s, crash waits of 5 and 60 s …).
        phases: seconds of each phase of the start.
        stuck_at: the phase that never ends.
        fail_at: the phase in which the start fails, and how.
        pool_bytes: host pool of each rank; 0 without one.
        step_seconds: one decode step; prefill_rate: tokens a second in prefill.
        accept_len: tokens that a decode step yields for a request (1 without speculation).
        speculates: whether decode steps draft at all.
        traffic: requests a second of its own.
    """

    version: str
    server: dict[str, Any]
    launch_command: str
    scale: float
    health_limit: float
    shallow_health: bool
    phases: dict[str, float]
    shards: int
    stuck_at: str | None
    fail_at: str | None
    failure: str | None
    pool_kind: str
    pool_bytes: int
    kv_tokens: int
    step_seconds: float
    prefill_rate: float
    accept_len: float
    speculates: bool
    traffic: float
    fault_dir: Path | None

    def since(self, *version: int) -> bool:
        """True if the imitated version is this one or later."""
        return version_key(self.version) >= version

    @property
    def ranks(self) -> int:
        return int(self.server["tp_size"]) * int(self.server["pp_size"])

    @property
    def drafts(self) -> bool:
        return self.server["speculative_algorithm"] is not None

    @property
    def host_tokens(self) -> int:
        """Tokens of the host pool: one page more than the ratio gives, since 0.5.5 (pool_host classes of memory_pool_host.py)."""
        if not self.server["enable_hierarchical_cache"]:
            return 0
        page = int(self.server["page_size"])
        return (int(self.kv_tokens * self.server["hicache_ratio"]) // page + 1) * page

    @property
    def draft_pool_bytes(self) -> int:
        """Host pool of the draft model: since 0.5.11."""
        return int(self.pool_bytes * DRAFT_SHARE) if self.drafts and self.since(0, 5, 11) else 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    result = Parser(
        prog="sglang-watchdog standin",
        usage="sglang-watchdog standin [options] | sglang-watchdog standin fault NAME [KEY=VALUE …]",
        description="A stand-in SGLang server: processes, endpoints, log lines and metrics of SGLang, without a model\n"
        "or a GPU. `sglang-watchdog standin fault --help` tells how to order a fault while it runs.\n\n"
        "Exit status: 0 it was told to end, 2 it was used wrongly, 130 Ctrl-C; as SGLang's where its start fails.",
        epilog="example:\n  sglang-watchdog standin --port 30000 --tp-size 2 --enable-metrics",
        formatter_class=Help,
    )
    own = result.add_argument_group("the stand-in's own")
    own.add_argument(
        "--sglang-version", default="0.5.9", type=_version, metavar="V", help="whose wording and behaviour to imitate"
    )
    own.add_argument(
        "--time-scale", type=_positive, default=1.0, metavar="X", help="factor on SGLang's fixed waits (0.1: ten times faster)"
    )
    own.add_argument(
        "--health-timeout", type=_positive, default=None, metavar="S", help="limit of /health before its 503 (20 s, scaled)"
    )
    own.add_argument("--start-seconds", type=_seconds, default=3.0, metavar="S", help="length of the whole start")
    own.add_argument(
        "--phase", action="append", default=[], type=_phase, metavar="NAME=S", help=f"length of one phase: {', '.join(PHASES)}"
    )
    own.add_argument("--slow", type=_positive, default=1.0, metavar="X", help="factor on all phases of the start")
    own.add_argument("--shards", type=int, default=64, metavar="N", help="weight files to load")
    own.add_argument("--stuck-at", choices=PHASES, help="the phase that never ends")
    kinds = "; ".join(f"{phase}: {', '.join(kinds)}" for phase, kinds in FAILURES.items())
    own.add_argument("--fail-at", type=_failure, metavar="PHASE[=KIND]", help=f"the phase that fails, and how: {kinds}")
    own.add_argument(
        "--host-pool-mib",
        type=_seconds,
        default=64.0,
        metavar="M",
        help="host pool of each rank, with --enable-hierarchical-cache",
    )
    own.add_argument(
        "--host-pool-kind",
        choices=POOL_KINDS,
        default="auto",
        help="its memory; auto: what the version uses; none: announced only",
    )
    own.add_argument("--kv-tokens", type=int, default=KIMI_TOKENS, metavar="N", help="tokens of the KV cache of each rank")
    own.add_argument("--step-seconds", type=_positive, default=0.02, metavar="S", help="time of a decode step")
    own.add_argument("--prefill-rate", type=_positive, default=8000.0, metavar="N", help="prompt tokens a second")
    own.add_argument(
        "--accept-len", type=_positive, default=2.74, metavar="N", help="tokens a step, with --speculative-algorithm"
    )
    own.add_argument(
        "--speculation-off", action="store_true", help="with --speculative-algorithm: drafting was turned off without a word"
    )
    own.add_argument(
        "--traffic", type=_seconds, default=0.0, metavar="RPS", help="requests a second that the server makes itself"
    )
    own.add_argument(
        "--fault-dir",
        type=Path,
        default=Path(os.environ.get("STANDIN_FAULT_DIR", DEFAULT_DIR)),
        metavar="DIR",
        help="where faults are ordered",
    )
    group = result.add_argument_group("SGLang's arguments (accepted; those that make no difference here are only shown)")
    for flag, kind, default in _ARGUMENTS:
        names = [f"--{flag}", *_SHORT.get(flag, ())]
        if kind is None:
            group.add_argument(*names, action="store_true", help="as in SGLang")
        else:
            group.add_argument(*names, type=kind, default=default, metavar=kind.__name__.upper(), help="as in SGLang")
    return result


def parse(argv: Sequence[str]) -> Options:
    """The options of a command line; exits with status 2 and one line if it is wrong."""
    args = parser().parse_args(argv)
    server = {flag.replace("-", "_"): getattr(args, flag.replace("-", "_")) for flag, _, _ in _ARGUMENTS}
    server["tokenizer_path"] = server["tokenizer_path"] or server["model_path"]
    server["served_model_name"] = server["served_model_name"] or server["model_path"]
    if server["speculative_algorithm"]:
        for name, value in (("num_steps", 3), ("eagle_topk", 1), ("num_draft_tokens", 4)):
            server[f"speculative_{name}"] = server[f"speculative_{name}"] or value
    phases = {name: args.start_seconds * share for name, share in SHARES.items()} | dict(args.phase)
    fail_at, failure = args.fail_at or (None, None)
    kv_tokens = server["max_total_tokens"] or args.kv_tokens
    limit = args.health_timeout or float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20")) * args.time_scale
    speculates = server["speculative_algorithm"] is not None and not args.speculation_off
    return Options(
        version=args.sglang_version,
        server=server,
        launch_command=shlex.join(argv),
        scale=args.time_scale,
        health_limit=limit,
        shallow_health=os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower() in ("0", "false"),
        phases={name: seconds * args.slow for name, seconds in phases.items()},
        shards=max(1, args.shards),
        stuck_at=args.stuck_at,
        fail_at=fail_at,
        failure=failure,
        pool_kind=args.host_pool_kind if args.host_pool_kind != "auto" else _pool_kind(args.sglang_version),
        pool_bytes=int(args.host_pool_mib * 2**20) if server["enable_hierarchical_cache"] else 0,
        kv_tokens=kv_tokens,
        step_seconds=args.step_seconds,
        prefill_rate=args.prefill_rate,
        accept_len=args.accept_len if speculates else 1.0,
        speculates=speculates,
        traffic=args.traffic,
        fault_dir=args.fault_dir,
    )


def _pool_kind(version: str) -> str:
    """What the version's host pool is made of (mem_cache/storage/mmap/mmap_allocator.py of 0.5.23)."""
    if version_key(version) < (0, 5, 13):
        return "anon"
    return "huge" if os.environ.get("SGLANG_HUGEPAGE_SIZE") else "shared"


def _version(text: str) -> str:
    if not is_version(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no version like 0.5.9")
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is negative or no number")
    return value


def _positive(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def _phase(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    if name not in PHASES:
        raise argparse.ArgumentTypeError(f"no phase {name!r}; the phases are {', '.join(PHASES)}")
    return name, _seconds(seconds)


def _failure(text: str) -> tuple[str, str]:
    phase, _, kind = text.partition("=")
    if phase not in PHASES:
        raise argparse.ArgumentTypeError(f"no phase {phase!r}; the phases are {', '.join(PHASES)}")
    if kind and kind not in FAILURES[phase]:
        raise argparse.ArgumentTypeError(f"{phase} cannot fail by {kind!r}, only by {', '.join(FAILURES[phase])}")
    return phase, kind or FAILURES[phase][0]
