"""The exporter: figures of the daemon as Prometheus' text format 0.0.4. Pure rendering; docs/metrics.md is made from here.

Written by hand instead of with prometheus-client: that would be 1.5 MiB of resident memory for what is a page of code, and its
registries hold what the daemon already knows. Format: prometheus.io/docs/instrumenting/exposition_formats.
A figure that is not known (None) has no sample; it is never 0.
"""

import bisect
import math
from collections.abc import Iterator, Mapping

import msgspec

from watchdog.judge.verdict import Condition, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "sglang_watchdog_"
PHASES = ("off", "starting", "serving", "draining", "stopping", "unknown")
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0)
"""Upper bounds of probe durations, in seconds: from a static page to the deadline of a canary."""


class Durations(msgspec.Struct):
    """A histogram of durations in seconds.

    Attributes:
        counts: how many fell into each bucket of BUCKETS (not cumulated), and into the one above them.
        total: their sum.
    """

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; what is no duration is left out."""
        if math.isfinite(seconds) and seconds >= 0:
            self.counts[bisect.bisect_left(BUCKETS, seconds)] += 1
            self.total += seconds


class ServerFigures(msgspec.Struct, kw_only=True):
    """One server's figures. Counters count since the daemon's start; bytes are bytes, times are seconds, ratios 0…1.

    Attributes:
        well: whether it serves and no condition is False; None where that cannot be told.
        restarts: (reason, result) → count; results as in observation.Acted.
        withheld: reason → count.
        alerts: (reason, severity) → count.
        probe_durations: probe → histogram of those that were answered.
        probe_failures: (probe, outcome) → count.
        observations: kind → count.
        budget_remaining: window ("short", "long") → restarts that are left.
        host_pool: "expected", "announced", "seen" → bytes.
        start_progress: of the present step, while starting.
        start_eta_s: forecast until ready, while starting.
        progress_age_s: since the engine's last step or sign of progress.
        canary_age_s: since a canary was last answered well.
    """

    name: str
    unit: str
    mode: str
    phase: str | None = None
    well: bool | None = None
    paused: bool | None = None
    conditions: list[Condition] = []
    restarts: Mapping[tuple[str, str], int] = {}
    withheld: Mapping[str, int] = {}
    alerts: Mapping[tuple[str, str], int] = {}
    probe_durations: Mapping[str, Durations] = {}
    probe_failures: Mapping[tuple[str, str], int] = {}
    observations: Mapping[str, int] = {}
    budget_remaining: Mapping[str, int] = {}
    host_pool: Mapping[str, int | None] = {}
    start_progress: float | None = None
    start_eta_s: float | None = None
    progress_age_s: float | None = None
    canary_age_s: float | None = None


class Figures(msgspec.Struct, kw_only=True):
    """All that the exporter shows at one moment.

    Attributes:
        started: the daemon's start, in seconds since 1970.
        reload_ok: whether the last reload of the configuration was taken.
        sources: source → whether it works; None where it has not run yet.
        tick_lag_s: how late the last tick of the judges was.
        dropped: observations that had to be dropped.
        alerts_sent, alerts_failed, alerts_dropped, alerts_waiting: channel → count (act.alerts.Counts).
    """

    version: str
    python: str = ""
    started: float | None = None
    reload_ok: bool | None = None
    sources: Mapping[str, bool | None] = {}
    tick_lag_s: float | None = None
    dropped: int | None = None
    alerts_sent: Mapping[str, int] = {}
    alerts_failed: Mapping[str, int] = {}
    alerts_dropped: Mapping[str, int] = {}
    alerts_waiting: Mapping[str, int] = {}
    servers: list[ServerFigures] = []


class Family(msgspec.Struct, frozen=True):
    """One metric: its name without the prefix, its type, its help text and its labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


FAMILIES = (
    Family("info", "gauge", "Always 1; the labels say which watchdog this is.", ("version", "python")),
    Family("start_time_seconds", "gauge", "When the watchdog started, in seconds since 1970."),
    Family("config_reload_ok", "gauge", "1 if the last reload of the configuration was taken, 0 if it was refused."),
    Family("source_up", "gauge", "1 if a source of observations works, 0 if it fails.", ("source",)),
    Family("tick_lag_seconds", "gauge", "How late the judges' last tick was."),
    Family("dropped_total", "counter", "Observations that the watchdog had to drop."),
    Family("alerts_sent_total", "counter", "Messages that a channel took.", ("channel",)),
    Family("alerts_failed_total", "counter", "Attempts to send a message that failed.", ("channel",)),
    Family("alerts_dropped_total", "counter", "Messages that were given up: too old, too many, or refused.", ("channel",)),
    Family("alerts_waiting", "gauge", "Messages that still have to be sent.", ("channel",)),
    Family("server_info", "gauge", "Always 1; the labels say what is watched and in which mode.", ("server", "unit", "mode")),
    Family("up", "gauge", "1 if the watched server serves and is well, 0 if it is not; no sample if unknown.", ("server",)),
    Family("phase", "gauge", "1 for the phase that the server is in, 0 for the others.", ("server", "phase")),
    Family("paused", "gauge", "1 while a person has paused the watchdog for the server.", ("server",)),
    Family(
        "condition",
        "gauge",
        "1 for the status that a condition has, 0 for the others; True is the good one for every type.",
        ("server", "type", "status"),
    ),
    Family("restarts_total", "counter", "Restarts of the server by the watchdog.", ("server", "reason", "result")),
    Family(
        "restarts_done_total", "counter", "Restarts that were carried out, whatever the reason; there from 0 on.", ("server",)
    ),
    Family("withheld_total", "counter", "Restarts that were withheld because they would not have helped.", ("server", "reason")),
    Family("alerts_total", "counter", "Alerts that were raised.", ("server", "reason", "severity")),
    Family("probe_duration_seconds", "histogram", "Duration of probes that were answered.", ("server", "probe")),
    Family("probe_failures_total", "counter", "Probes that failed.", ("server", "probe", "outcome")),
    Family("observations_total", "counter", "Observations that the judges took in.", ("server", "kind")),
    Family("budget_remaining", "gauge", "Restarts that the budget still allows within its window.", ("server", "window")),
    Family(
        "host_pool_bytes",
        "gauge",
        "The host pool of the hierarchical cache: expected by arithmetic, announced in the log, seen in memory.",
        ("server", "kind"),
    ),
    Family("start_progress_ratio", "gauge", "Progress of the present step of a start.", ("server",)),
    Family("start_remaining_seconds", "gauge", "Forecast of the time until the server is ready, while it starts.", ("server",)),
    Family("progress_age_seconds", "gauge", "Time since the engine's last sign of progress.", ("server",)),
    Family("canary_age_seconds", "gauge", "Time since a canary was last answered well.", ("server",)),
)

Sample = tuple[str, tuple[str, ...], float | None]
"""Name of a family, values of its labels in order, value."""


def render(figures: Figures) -> bytes:
    """The page that Prometheus scrapes."""
    found: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for name, labels, value in _samples(figures):
        if value is not None:
            found.setdefault(name, []).append((labels, value))
    histograms = [(s.name, probe, d) for s in figures.servers for probe, d in s.probe_durations.items()]
    lines: list[str] = []
    for family in FAMILIES:
        name = PREFIX + family.name
        if family.kind == "histogram":
            rows = [
                row for server, probe, durations in histograms for row in _histogram(name, family, (server, probe), durations)
            ]
        else:
            rows = [f"{name}{_labels(family.labels, labels)} {_number(value)}" for labels, value in found.get(family.name, ())]
        if rows:
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *rows]
    return ("\n".join(lines) + "\n").encode()


def reference() -> str:
    """The text of docs/metrics.md."""
    rows = [
        f"| `{PREFIX}{f.name}` | {f.kind} | {', '.join(f'`{label}`' for label in f.labels) or 'none'} | {f.help} |"
        for f in FAMILIES
    ]
    return "\n".join([INTRODUCTION, *rows, ""])


INTRODUCTION = """\
# Metrics

<!-- Made from watchdog/web/metrics.py by `make docs`; a test keeps both in step. -->

With `web.enabled = true` the daemon answers `GET /metrics` on loopback (port 9430 by default) in Prometheus' text format.
What is not known has no sample: a missing `sglang_watchdog_up` means "cannot be told", not "down". Counters count since the
daemon's start. Recording and alerting rules are in `packaging/prometheus/`, a Grafana dashboard is in `packaging/grafana/`.

```yaml
scrape_configs:
  - job_name: sglang-watchdog
    static_configs:
      - targets: ["127.0.0.1:9430"]
```

| metric | type | labels | meaning |
|---|---|---|---|"""


def _samples(f: Figures) -> Iterator[Sample]:
    yield "info", (f.version, f.python), 1
    yield "start_time_seconds", (), f.started
    yield "config_reload_ok", (), f.reload_ok
    yield from (("source_up", (source,), works) for source, works in f.sources.items())
    yield "tick_lag_seconds", (), f.tick_lag_s
    yield "dropped_total", (), f.dropped
    for name, counts in (
        ("alerts_sent_total", f.alerts_sent),
        ("alerts_failed_total", f.alerts_failed),
        ("alerts_dropped_total", f.alerts_dropped),
        ("alerts_waiting", f.alerts_waiting),
    ):
        yield from ((name, (channel,), count) for channel, count in counts.items())
    for server in f.servers:
        yield from _server(server)


def _server(s: ServerFigures) -> Iterator[Sample]:
    yield "server_info", (s.name, s.unit, s.mode), 1
    yield "up", (s.name,), s.well
    if s.phase is not None:
        yield from (("phase", (s.name, phase), phase == s.phase) for phase in PHASES)
    yield "paused", (s.name,), s.paused
    for c in s.conditions:
        yield from (("condition", (s.name, c.type, status.value), c.status is status) for status in Status)
    yield from (("restarts_total", (s.name, *key), count) for key, count in s.restarts.items())
    yield "restarts_done_total", (s.name,), sum(count for (_, result), count in s.restarts.items() if result == "done")
    yield from (("withheld_total", (s.name, reason), count) for reason, count in s.withheld.items())
    yield from (("alerts_total", (s.name, *key), count) for key, count in s.alerts.items())
    yield from (("probe_failures_total", (s.name, *key), count) for key, count in s.probe_failures.items())
    yield from (("observations_total", (s.name, kind), count) for kind, count in s.observations.items())
    yield from (("budget_remaining", (s.name, window), count) for window, count in s.budget_remaining.items())
    yield from (("host_pool_bytes", (s.name, kind), size) for kind, size in s.host_pool.items())
    yield "start_progress_ratio", (s.name,), s.start_progress
    yield "start_remaining_seconds", (s.name,), s.start_eta_s
    yield "progress_age_seconds", (s.name,), s.progress_age_s
    yield "canary_age_seconds", (s.name,), s.canary_age_s


def _histogram(name: str, family: Family, labels: tuple[str, ...], durations: Durations) -> Iterator[str]:
    below = 0
    for bound, count in zip([*(str(b) for b in BUCKETS), "+Inf"], durations.counts, strict=True):
        below += count
        yield f"{name}_bucket{_labels((*family.labels, 'le'), (*labels, bound))} {below}"
    yield f"{name}_sum{_labels(family.labels, labels)} {_number(durations.total)}"
    yield f"{name}_count{_labels(family.labels, labels)} {below}"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """A number as Go reads it; whole numbers without an exponent."""
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
