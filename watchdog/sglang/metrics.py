"""Prometheus text of an SGLang server → canonical names and numbers (docs/flight-record.md, kind `metrics`).

Names, labels and their version ranges: srt/observability/metrics_collector.py of SGLang 0.5.23 and its predecessors
(srt/metrics/collector.py), 0.4.6 to 0.5.23. The text format: prometheus.io, "Exposition formats", version 0.0.4.
"""

import math
import re
from collections.abc import Iterator

import msgspec

PREFIX = re.compile(r"sglang[:_]")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
NAME = re.compile(r"[a-zA-Z_]\w*")

MAX_NAMES = 2000
"""More canonical names than this are not kept: a real server has about 150 (0.5.23)."""

SPLIT = {
    "cached_tokens_total": "cache_source",
    "realtime_tokens_total": "mode",
    "hicache_dropped_tokens_total": "reason",
    "process_cpu_seconds_total": "component",
    "startup_time_seconds": "phase",
    "http_requests_active": "endpoint",
    "http_responses_total": "status_code",
}
"""Metrics of which one label becomes part of the name, beside the sum; those of the HTTP server only for users' endpoints."""

USER_ENDPOINTS = frozenset(
    ("/generate", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/responses", "/v1/score")
)
"""The only values of `endpoint` that are split off: unknown paths appear there as they were asked for, without limit.

What is in flight in the HTTP process; it goes on counting while the scheduler hangs, but a request that was refused or
given up may stay in it for ever (seen with 0.5.23): growth means something, the level does not."""

RANKED = frozenset(
    (
        "num_running_reqs",
        "num_queue_reqs",
        "num_used_tokens",
        "max_total_num_tokens",
        "token_usage",
        "gen_throughput",
        "realtime_tokens_total",
        "hicache_host_used_tokens",
        "hicache_host_total_tokens",
        "spec_accept_length",
        "scheduler_idle_seconds_total",
    )
)
"""Metrics that are kept by rank as well, where there are several ranks."""

RANK_LABELS = (("dp_rank", "DP"), ("pp_rank", "PP"), ("tp_rank", "TP"))
"""In the order in which SGLang's log prefix names them."""

COUNTED = re.compile(r"^(?!spec_)(num_.*|.*_(reqs|requests|tokens|bytes|gb|count|active|sum_seq_lens|pairs))$")
"""Gauges that count requests, tokens or bytes: summed. All others are ratios, speeds, lengths or settings: averaged."""

RATIO = re.compile(r"(^|_)(usage|hit_rate|accept_rate|utilization)$")
REQUESTS = re.compile(r"_(reqs|requests)$")
RATIO_MOST, REQUESTS_MOST, MOST = 1.5, 1e7, 1e18
"""Above these a ratio, a gauge of requests and any other number is no measurement; a pool may be used a bit beyond its size."""


class Scrape(msgspec.Struct):
    """What one body said.

    Attributes:
        values: canonical name → number.
        by_rank: rank ("TP3", "DP1 TP0") → the numbers of `RANKED`; None where only one rank reports.
        bad_lines: lines that are neither comments nor samples.
    """

    values: dict[str, float] = {}
    by_rank: dict[str, dict[str, float]] | None = None
    bad_lines: int = 0


class _Fold:
    """Samples of one canonical name, folded."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1


def parse(text: str) -> Scrape:
    """Fold the samples of the engine; samples of others (python_…, process_…) are left out.

    Samples that cannot be measurements are left out: NaN, infinite, negative (nothing that the engine counts or measures is), or
    far beyond what their kind can reach. Any text is accepted; a line that cannot be read
    is counted in `bad_lines`.
    """
    folds: dict[str, _Fold] = {}
    kinds: dict[str, str] = {}
    ranks: dict[tuple[str, ...], dict[str, _Fold]] = {}
    scrape = Scrape()
    for line in text.split("\n"):
        # Two of three lines are histogram buckets, the rest mostly help: looked at no further (a scrape comes every 10 s).
        if "_bucket{" in line:
            continue
        if line.startswith("#"):
            if line.startswith("# TYPE sglang"):
                _, _, name, kind = (*line.split(), "", "", "")[:4]
                kinds[name[7:]] = kind
            continue
        found = PREFIX.match(line)
        if found is None:
            scrape.bad_lines += not _foreign(line)
            continue
        sample = _sample(line[found.end() :])
        if sample is None:
            scrape.bad_lines += 1
            continue
        name, labels, value = sample
        if not 0 <= value <= _most(name):
            continue
        _add(folds, name, labels, value)
        if name in RANKED and "tp_rank" in labels:
            rank = tuple(labels.get(label, "") for label, _ in RANK_LABELS)
            _add(ranks.setdefault(rank, {}), name, labels, value)
    scrape.values = _numbers(folds, kinds)
    if len(ranks) > 1:
        scrape.by_rank = dict(_named(ranks, kinds))
    return scrape


def _sample(line: str) -> tuple[str, dict[str, str], float] | None:
    """`name{labels} value [timestamp]`, the name without its prefix; None if it is not of that form."""
    labels: dict[str, str] = {}
    name, brace, rest = line.partition("{")
    if brace:
        # A label's value may hold braces (endpoint="/v1/models/{model:path}"); what follows the last one is the number.
        inner, closed, number = rest.rpartition("}")
        if not closed:
            return None
        labels = dict(LABEL.findall(inner))
    else:
        name, _, number = line.partition(" ")
    parts = number.split()
    if not parts or len(parts) > 2 or NAME.fullmatch(name) is None:
        return None
    try:
        return name, labels, float(parts[0])
    except ValueError:
        return None


def _most(name: str) -> float:
    """The greatest value that a sample can have."""
    if RATIO.search(name):
        return RATIO_MOST
    return REQUESTS_MOST if REQUESTS.search(name) else MOST


def _foreign(line: str) -> bool:
    """Whether the line is empty or a sample of something else than the engine."""
    return not line.strip() or _sample(line) is not None


def _add(folds: dict[str, _Fold], name: str, labels: dict[str, str], value: float) -> None:
    names = [name]
    split = labels.get(SPLIT.get(name, ""))
    if split and (not name.startswith("http_") or labels.get("endpoint") in USER_ENDPOINTS):
        names.append(f"{name}.{split}")
    for key in names:
        if key not in folds:
            if len(folds) >= MAX_NAMES:
                return
            folds[key] = _Fold()
        folds[key].add(value)


def _folded(name: str, kinds: dict[str, str], fold: _Fold) -> float:
    base = name.partition(".")[0]
    kind = kinds.get(base)
    if kind is None:
        # Samples of a histogram, and counters of a text without types.
        summed = base.endswith(("_total", "_sum", "_count")) or COUNTED.match(base) is not None
    else:
        summed = kind != "gauge" or COUNTED.match(base) is not None
    return fold.total if summed else fold.total / fold.count


def _named(ranks: dict[tuple[str, ...], dict[str, _Fold]], kinds: dict[str, str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Ranks under the names that the log gives them: only the parts in which they differ."""
    varying = [i for i in range(len(RANK_LABELS)) if len({rank[i] for rank in ranks}) > 1]
    for rank, folds in sorted(ranks.items()):
        name = " ".join(f"{RANK_LABELS[i][1]}{rank[i]}" for i in varying)
        yield name, _numbers(folds, kinds)


def _numbers(folds: dict[str, _Fold], kinds: dict[str, str]) -> dict[str, float]:
    numbers = {name: _folded(name, kinds, fold) for name, fold in folds.items()}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}
