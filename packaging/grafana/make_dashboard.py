"""Write sglang-watchdog.json, the Grafana dashboard (`make docs`)."""

import json
from pathlib import Path
from typing import Any

OUT = Path(__file__).with_name("sglang-watchdog.json")
WHERE = 'instance=~"$instance", server=~"$server"'
GREEN, RED, GREY, YELLOW = "green", "red", "text", "yellow"


class Board:
    """Panels, laid out in rows of 24 columns from the left to the right."""

    def __init__(self) -> None:
        self.panels: list[dict[str, Any]] = []
        self._x = self._y = self._height = 0

    def row(self, title: str) -> None:
        """A heading over the panels that follow."""
        self._y += self._height
        self._x = self._height = 0
        place = {"x": 0, "y": self._y, "w": 24, "h": 1}
        self.panels.append(
            {"id": len(self.panels) + 1, "type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}
        )
        self._y += 1

    def add(
        self, kind: str, title: str, *queries: tuple[str, str], w: int = 6, h: int = 7, unit: str = "none", **more: Any
    ) -> None:
        """A panel. Each query is an expression and the legend of its series."""
        if self._x + w > 24:
            self._y += self._height
            self._x = self._height = 0
        targets = [
            {
                "refId": chr(ord("A") + i),
                "expr": expr,
                "legendFormat": legend,
                "datasource": SOURCE,
                "instant": kind in ("stat", "table"),
            }
            for i, (expr, legend) in enumerate(queries)
        ]
        defaults = {"unit": unit, "noValue": "unknown", **more.pop("defaults", {})}
        self.panels.append(
            {
                "id": len(self.panels) + 1,
                "type": kind,
                "title": title,
                "datasource": SOURCE,
                "gridPos": {"x": self._x, "y": self._y, "w": w, "h": h},
                "targets": targets,
                "fieldConfig": {"defaults": defaults, "overrides": []},
                **more,
            }
        )
        self._x += w
        self._height = max(self._height, h)


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def mapped(*values: tuple[str, str, str]) -> dict[str, Any]:
    """Words and colours in place of numbers."""
    options = {value: {"text": text, "color": color, "index": i} for i, (value, text, color) in enumerate(values)}
    return {"mappings": [{"type": "value", "options": options}]}


def steps(*bounds: tuple[float | None, str]) -> dict[str, Any]:
    """Colours from a value on."""
    return {"thresholds": {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in bounds]}}


def events(counter: str) -> str:
    """How many there were of late. A counter that begins with its first event has not increased: that one is counted too."""
    found = f"{counter}{{{WHERE}}}"
    newborn = f"({found} unless {found} offset $__rate_interval)"
    return f"sum by (server, reason) ({newborn} or increase({found}[$__rate_interval]))"


def dashboard() -> str:
    """The dashboard as JSON."""
    board = Board()
    board.row("Is it well?")
    well = mapped(("0", "not well", RED), ("1", "well", GREEN))
    board.add("stat", "Servers", (f"sglang_watchdog_up{{{WHERE}}}", "{{server}}"), w=8, h=5, defaults=well)
    board.add(
        "stat", "Well over a day", (f"server:sglang_watchdog_up:avg1d{{{WHERE}}}", "{{server}}"), w=4, h=5, unit="percentunit"
    )
    color = steps((None, GREEN), (1, YELLOW), (3, RED))
    board.add(
        "stat",
        "Restarts in a day",
        (f"server:sglang_watchdog_restarts:increase1d{{{WHERE}}}", "{{server}}"),
        w=4,
        h=5,
        defaults=color,
    )
    left = steps((None, RED), (1, YELLOW), (2, GREEN))
    board.add(
        "stat", "Budget left", (f"sglang_watchdog_budget_remaining{{{WHERE}}}", "{{server}} {{window}}"), w=4, h=5, defaults=left
    )
    waiting = steps((None, GREEN), (1, RED))
    board.add(
        "stat",
        "Alerts undelivered",
        ('sglang_watchdog_alerts_waiting{instance=~"$instance"}', "{{channel}}"),
        w=4,
        h=5,
        defaults=waiting,
    )
    phases = mapped(*[(str(i), name, c) for i, (name, c) in enumerate(PHASES)])
    phase = " or ".join(f'(sglang_watchdog_phase{{{WHERE}, phase="{name}"}} == 1) * {i}' for i, (name, _) in enumerate(PHASES))
    # The labels of the phase go, so that one server is one line through all its phases.
    board.add("state-timeline", "Phases", (f"max by (instance, server) ({phase})", "{{server}}"), w=12, h=6, defaults=phases)
    false = f'max by (server, type) (sglang_watchdog_condition{{{WHERE}, status="False"}}) == 1'
    ill = mapped(("1", "does not hold", RED))
    board.add(
        "state-timeline",
        "Conditions that do not hold",
        (false, "{{server}} {{type}}"),
        w=12,
        h=10,
        defaults=ill,
        description="A row for each condition that did not hold at some time. No data: all of them held, or nobody looked.",
    )

    board.row("What the watchdog did")
    board.add(
        "timeseries",
        "Restarts, withheld, alerts",
        (events("sglang_watchdog_restarts_total"), "restart {{server}} {{reason}}"),
        (events("sglang_watchdog_withheld_total"), "withheld {{server}} {{reason}}"),
        (events("sglang_watchdog_alerts_total"), "alert {{server}} {{reason}}"),
        w=12,
    )
    board.add(
        "timeseries",
        "Start: progress of the step",
        (f"sglang_watchdog_start_progress_ratio{{{WHERE}}}", "{{server}}"),
        unit="percentunit",
    )
    board.add("timeseries", "Start: time to go", (f"sglang_watchdog_start_remaining_seconds{{{WHERE}}}", "{{server}}"), unit="s")

    board.row("Answers")
    p95 = f"server:sglang_watchdog_probe_duration_seconds:p95_1h{{{WHERE}}}"
    board.add("timeseries", "Probes: 95th percentile", (p95, "{{server}} {{probe}}"), w=8, unit="s")
    failures = f"server:sglang_watchdog_probe_failures:rate5m{{{WHERE}}} * 60"
    board.add("timeseries", "Probes that failed, a minute", (failures, "{{server}} {{probe}}"), w=8)
    ages = (
        (f"sglang_watchdog_progress_age_seconds{{{WHERE}}}", "{{server}} progress"),
        (f"sglang_watchdog_canary_age_seconds{{{WHERE}}}", "{{server}} canary"),
    )
    board.add("timeseries", "Since progress, since a good answer", *ages, w=8, unit="s")

    board.row("Host pool")
    board.add(
        "timeseries",
        "Expected, announced, seen",
        (f"sglang_watchdog_host_pool_bytes{{{WHERE}}}", "{{server}} {{kind}}"),
        w=16,
        unit="bytes",
    )
    board.add(
        "timeseries",
        "Seen of what was announced",
        (f"server:sglang_watchdog_host_pool:seen_ratio{{{WHERE}}}", "{{server}}"),
        w=8,
        unit="percentunit",
    )

    board.row("The watchdog itself")
    works = mapped(("0", "fails", RED), ("1", "works", GREEN))
    board.add(
        "state-timeline", "Sources", ('sglang_watchdog_source_up{instance=~"$instance"}', "{{source}}"), w=8, defaults=works
    )
    board.add(
        "timeseries",
        "Lateness of ticks",
        ('sglang_watchdog_tick_lag_seconds{instance=~"$instance"}', "{{instance}}"),
        w=8,
        unit="s",
    )
    rate = f"sum by (kind) (rate(sglang_watchdog_observations_total{{{WHERE}}}[$__rate_interval]))"
    board.add("timeseries", "Observations a second", (rate, "{{kind}}"), w=8)
    return json.dumps(_frame(board.panels), indent=1) + "\n"


PHASES = (
    ("off", GREY),
    ("starting", YELLOW),
    ("serving", GREEN),
    ("draining", "orange"),
    ("stopping", "orange"),
    ("unknown", GREY),
)


def _frame(panels: list[dict[str, Any]]) -> dict[str, Any]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "sglang-watchdog",
        "title": "SGLang watchdog",
        "tags": ["sglang"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {
            "list": [
                source,
                _choice("instance", "label_values(sglang_watchdog_info, instance)"),
                _choice("server", 'label_values(sglang_watchdog_server_info{instance=~"$instance"}, server)'),
            ]
        },
        "annotations": {"list": []},
        "panels": panels,
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    OUT.write_text(dashboard(), encoding="utf-8")
