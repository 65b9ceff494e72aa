"""The Prometheus text of /metrics, with the names and labels of the version.

Names and versions: srt/observability/metrics_collector.py (0.5.x) and a capture of a real 0.5.23 server.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from watchdog.standin.board import Board
from watchdog.standin.options import Options

EDGES = (0.1, 0.4, 1.0, 2.0, 4.0, 8.0, 20.0, 60.0, 120.0)


@dataclass(frozen=True)
class Finished:
    """A request that came to its end, as it is counted: only then do the token counters move."""

    prompt: int
    generated: int
    cached_device: int
    cached_host: int
    streams: bool
    first_s: float
    total_s: float

    @classmethod
    def of(cls, message: dict[str, Any], streams: bool, first_s: float, total_s: float) -> Self:
        host = int(message["cached_host"])
        return cls(message["prompt"], message["generated"], message["cached"] - host, host, streams, first_s, total_s)


class Histogram:
    """Counts by upper edge, as Prometheus wants them."""

    def __init__(self) -> None:
        self._buckets = dict.fromkeys(EDGES, 0)
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """Count one value (seconds)."""
        self._sum += value
        self._count += 1
        for edge in self._buckets:
            if value <= edge:
                self._buckets[edge] += 1

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Its samples; `labels` without braces."""
        for edge, count in self._buckets.items():
            yield f'{name}_bucket{{le="{edge}",{labels}}} {count:.1f}'
        yield f'{name}_bucket{{le="+Inf",{labels}}} {self._count:.1f}'
        yield f"{name}_sum{{{labels}}} {self._sum}"
        yield f"{name}_count{{{labels}}} {self._count:.1f}"


class Totals:
    """What the parent counts itself."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str, int]] = Counter()
        self.active: Counter[tuple[str, str]] = Counter()
        self.aborted = 0
        self.prompt: Counter[bool] = Counter()
        self.generated: Counter[bool] = Counter()
        self.ended: Counter[bool] = Counter()
        self.cached: Counter[str] = Counter()
        self.first: defaultdict[bool, Histogram] = defaultdict(Histogram)
        self.total: defaultdict[bool, Histogram] = defaultdict(Histogram)
        self.between: defaultdict[bool, Histogram] = defaultdict(Histogram)

    def finished(self, request: Finished) -> None:
        """Count a request that has ended."""
        kind = request.streams
        self.prompt[kind] += request.prompt
        self.generated[kind] += request.generated
        self.ended[kind] += 1
        self.cached["device"] += request.cached_device
        self.cached["host"] += request.cached_host
        self.first[kind].add(request.first_s)
        self.total[kind].add(request.total_s)
        if request.generated > 1:
            self.between[kind].add((request.total_s - request.first_s) / (request.generated - 1))


class Exposition:
    """Makes the text."""

    def __init__(self, options: Options, board: Board, totals: Totals) -> None:
        self._options = options
        self._board = board
        self._totals = totals

    def text(self) -> str:
        """The body of /metrics."""
        return "\n".join([*self._http(), *self._requests(), *self._scheduler(), ""])

    def _labels(self, *, rank: bool, **more: str) -> str:
        labels = {"model_name": str(self._options.server["served_model_name"]), **more}
        if rank or self._options.since(0, 5, 11):
            labels["engine_type"] = "unified"
        if rank:
            labels |= {"tp_rank": "0", "pp_rank": "0"}
            if self._options.since(0, 5, 7):
                labels["moe_ep_rank"] = "0"
        return ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))

    def _http(self) -> Iterator[str]:
        if self._options.since(0, 5, 7):
            yield from _head("http_requests_total", "counter", "Total number of HTTP requests by endpoint and method")
            for (path, method), count in self._totals.requests.items():
                yield f'sglang:http_requests_total{{endpoint="{path}",method="{method}"}} {count:.1f}'
        if self._options.since(0, 5, 6):
            yield from _head("http_responses_total", "counter", "Total number of HTTP responses by endpoint and status code")
            for (path, method, status), count in self._totals.responses.items():
                yield f'sglang:http_responses_total{{endpoint="{path}",method="{method}",status_code="{status}"}} {count:.1f}'
        if self._options.since(0, 5, 8):
            yield from _head("http_requests_active", "gauge", "Number of currently active HTTP requests")
            for (path, method), count in self._totals.active.items():
                yield f'sglang:http_requests_active{{endpoint="{path}",method="{method}"}} {count:.1f}'

    def _requests(self) -> Iterator[str]:
        totals = self._totals
        counters = (
            ("prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt),
            ("generation_tokens_total", "Number of generation tokens processed.", totals.generated),
            ("num_requests_total", "Number of requests processed.", totals.ended),
        )
        for name, text, counter in counters:
            yield from _head(name, "counter", text)
            for kind, value in self._by_stream(counter):
                yield f"sglang:{name}{{{kind}}} {value:.1f}"
        yield from _head("cached_tokens_total", "counter", "Number of cached prompt tokens by source (device/host/storage).")
        if self._options.since(0, 5, 9):
            for source, count in totals.cached.items():
                yield f"sglang:cached_tokens_total{{{self._labels(rank=False, cache_source=source)}}} {count:.1f}"
        else:
            yield f"sglang:cached_tokens_total{{{self._labels(rank=False)}}} {totals.cached.total():.1f}"
        yield from _head("num_aborted_requests_total", "counter", "Number of requests aborted.")
        yield f"sglang:num_aborted_requests_total{{{self._labels(rank=False)}}} {totals.aborted:.1f}"
        histograms = (
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", totals.first),
            ("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", totals.total),
            ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", totals.between),
        )
        for name, text, kinds in histograms:
            yield from _head(name, "histogram", text)
            for streams, histogram in kinds.items():
                yield from histogram.lines(f"sglang:{name}", self._stream_labels(streams))

    def _by_stream(self, counter: Counter[bool]) -> Iterator[tuple[str, int]]:
        """By whether it streamed: since 0.5.17."""
        if self._options.since(0, 5, 17):
            yield from ((self._stream_labels(streams), value) for streams, value in counter.items())
        else:
            yield self._labels(rank=False), counter.total()

    def _stream_labels(self, streams: bool) -> str:
        if self._options.since(0, 5, 17):
            return self._labels(rank=False, is_streaming=str(streams).lower())
        return self._labels(rank=False)

    def _scheduler(self) -> Iterator[str]:
        board, options = self._board, self._options
        labels = self._labels(rank=True)
        used = board["used_tokens"]
        gauges: list[tuple[str, str, float, tuple[int, ...]]] = [
            ("num_running_reqs", "The number of running requests.", board["running"], (0, 4, 6)),
            ("num_queue_reqs", "The number of requests in the waiting queue.", board["queued"], (0, 4, 6)),
            ("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0, (0, 4, 6)),
            ("num_used_tokens", "The number of used tokens.", used, (0, 4, 6)),
            ("token_usage", "The token usage.", used / options.kv_tokens, (0, 4, 6)),
            ("full_token_usage", "The token usage of the full attention pool.", used / options.kv_tokens, (0, 5, 10)),
            ("gen_throughput", "The generation throughput (token/s).", board["gen_throughput"], (0, 4, 6)),
            ("cache_hit_rate", "The prefix cache hit rate.", board["cache_hit_rate"], (0, 4, 6)),
            ("spec_accept_length", "The average acceptance length of speculative decoding.", board["accept_len"], (0, 4, 6)),
            ("spec_accept_rate", "The average acceptance rate of speculative decoding.", board["accept_rate"], (0, 5, 3)),
            ("num_retracted_reqs", "The number of retracted requests.", 0, (0, 5, 2)),
            ("num_paused_reqs", "The number of paused requests by async weight sync.", 0, (0, 5, 2)),
            ("utilization", "The utilization.", 0, (0, 5, 2)),
            ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", options.kv_tokens, (0, 5, 6)),
            ("kv_evictable_tokens", "Number of evictable (radix-cached) token slots.", board["evictable"], (0, 5, 11)),
            ("kv_used_tokens", "Number of used token slots in the KV cache pool.", used, (0, 5, 11)),
            ("fwd_occupancy", "The forward occupancy (%).", float("nan"), (0, 5, 12)),
        ]
        if options.host_tokens:
            gauges += [
                (
                    "hicache_host_used_tokens",
                    "Number of tokens currently used in the host KV cache.",
                    board["host_used"],
                    (0, 5, 10),
                ),
                ("hicache_host_total_tokens", "Total capacity of the host KV cache in tokens.", options.host_tokens, (0, 5, 10)),
            ]
        for name, text, value, version in gauges:
            if options.since(*version):
                yield from _head(name, "gauge", text)
                yield f"sglang:{name}{{{labels}}} {_number(value)}"
        if options.since(0, 5, 7):
            yield from _head(
                "realtime_tokens_total", "counter", "Total number of tokens processed (updated on each log interval)."
            )
            for mode, key in (
                ("prefill_compute", "prefill_tokens"),
                ("decode", "decode_tokens"),
                ("prefill_cache", "prefill_cached"),
            ):
                yield f"sglang:realtime_tokens_total{{{self._labels(rank=True, mode=mode)}}} {board[key]:.1f}"
        if options.since(0, 5, 3):
            yield from _head("queue_time_seconds", "histogram", "Histogram of queueing time in seconds.")
            yield f'sglang:queue_time_seconds_bucket{{le="+Inf",{labels}}} {board["queue_count"]:.1f}'
            yield f"sglang:queue_time_seconds_sum{{{labels}}} {board['queue_seconds']}"
            yield f"sglang:queue_time_seconds_count{{{labels}}} {board['queue_count']:.1f}"
        if options.since(0, 5, 20):
            yield from _head(
                "scheduler_idle_seconds_total", "counter", "Total wall time while the scheduler has no runnable or queued work."
            )
            yield f"sglang:scheduler_idle_seconds_total{{{labels}}} {board['idle_seconds']}"
        yield from self._hicache()
        if options.since(0, 5, 17):
            yield from _head("startup_time_seconds", "gauge", "Engine startup duration by phase in seconds.")
            for phase, key in (("load_weight", "weights"), ("kv_cache_allocation", "kv")):
                yield f"sglang:startup_time_seconds{{{self._labels(rank=False, phase=phase)}}} {options.phases[key]}"

    def _hicache(self) -> Iterator[str]:
        if not self._options.host_tokens:
            return
        labels = 'cache_type="UnifiedRadixCache",dp_rank="0",pp_rank="0",tp_rank="0"'
        counters: list[tuple[str, str, str, tuple[int, ...]]] = [
            ("evicted_tokens_total", "The number of device KV token slots freed by eviction.", "evicted", (0, 5, 5)),
            (
                "load_back_tokens_total",
                "The number of tokens loaded back from local host DRAM (L2) to GPU.",
                "load_back",
                (0, 5, 5),
            ),
            (
                "hicache_backup_tokens_total",
                "The number of tokens backed up from GPU to local host DRAM (L2).",
                "backup",
                (0, 5, 18),
            ),
        ]
        for name, text, key, version in counters:
            if self._options.since(*version):
                yield from _head(name, "counter", text)
                yield f"sglang:{name}{{{labels}}} {self._board[key]:.1f}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else str(float(value))


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP sglang:{name} {text}"
    yield f"# TYPE sglang:{name} {kind}"
