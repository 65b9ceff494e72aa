"""The exporter's text, and the rules, the dashboard and the page that are written for it."""

import json
import re
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.web.figures import full
from watchdog.web import metrics
from watchdog.web.metrics import FAMILIES, PREFIX, Figures, ServerFigures, render

PROJECT = Path(__file__).resolve().parents[2]
RULES = PROJECT / "packaging/prometheus/sglang-watchdog.rules.yml"
DASHBOARD = PROJECT / "packaging/grafana/sglang-watchdog.json"

LABEL = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"([a-z_]+)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9][0-9.e+-]*|[+-]Inf|NaN)")


def samples(figures: Figures) -> dict[str, str]:
    """Name and labels → value; fails on a line that the format does not know."""
    out: dict[str, str] = {}
    for line in render(figures).decode().removesuffix("\n").split("\n"):
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP|TYPE) sglang_watchdog_[a-z_]+ .+", line)
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        key = line.rpartition(" ")[0]
        assert key not in out, f"twice: {key}"
        out[key] = found[3]
    return out


def test_all_that_is_known_is_shown() -> None:
    got = samples(full())
    assert (
        got.items()
        >= {
            'sglang_watchdog_info{version="0.1.0",python="3.11.7"}': "1",
            "sglang_watchdog_start_time_seconds": "1768356000.25",
            'sglang_watchdog_source_up{source="journal"}': "1",
            'sglang_watchdog_source_up{source="gpu"}': "0",
            'sglang_watchdog_up{server="kimi"}': "1",
            'sglang_watchdog_phase{server="kimi",phase="serving"}': "1",
            'sglang_watchdog_phase{server="kimi",phase="off"}': "0",
            'sglang_watchdog_condition{server="kimi",type="SchedulerProgressing",status="True"}': "1",
            'sglang_watchdog_condition{server="kimi",type="SchedulerProgressing",status="False"}': "0",
            'sglang_watchdog_condition{server="kimi",type="AnswersSane",status="Unknown"}': "1",
            'sglang_watchdog_restarts_total{server="kimi",reason="SchedulerHung",result="done"}': "2",
            'sglang_watchdog_budget_remaining{server="kimi",window="short"}': "0",
            'sglang_watchdog_host_pool_bytes{server="kimi",kind="announced"}': "358158155520",
            'sglang_watchdog_start_progress_ratio{server="kimi"}': "0.45",
            'sglang_watchdog_alerts_waiting{channel="webhook"}': "1",
        }.items()
    )


def test_a_histogram_counts_upwards_and_leaves_out_what_is_no_duration() -> None:
    got = samples(full())
    name = "sglang_watchdog_probe_duration_seconds"
    buckets = [got[f'{name}_bucket{{server="kimi",probe="chat",le="{bound}"}}'] for bound in (*metrics.BUCKETS, "+Inf")]
    assert buckets == ["0", "1", "1", "1", "3", "3", "3", "3", "3", "3", "3", "4"]
    assert got[f'{name}_count{{server="kimi",probe="chat"}}'] == "4"
    assert float(got[f'{name}_sum{{server="kimi",probe="chat"}}']) == pytest.approx(70.86)


def test_what_is_unknown_has_no_sample() -> None:
    got = samples(full())
    other = {key.partition("{")[0] for key in got if 'server="other"' in key}
    assert other == {"sglang_watchdog_server_info", "sglang_watchdog_restarts_done_total"}
    assert 'sglang_watchdog_source_up{source="bus"}' not in got
    assert 'sglang_watchdog_host_pool_bytes{server="kimi",kind="seen"}' not in got
    assert samples(Figures(version="1")) == {'sglang_watchdog_info{version="1",python=""}': "1"}


def test_each_family_is_shown_by_the_full_figures_and_has_its_labels() -> None:
    text = render(full()).decode()
    for family in FAMILIES:
        assert f"# TYPE {PREFIX}{family.name} {family.kind}\n" in text
        line = next(each for each in text.split("\n") if re.match(rf"{PREFIX}{family.name}(_bucket)?[{{ ]", each))
        assert tuple(label for label in re.findall(r'(\w+)="', line) if label != "le") == family.labels


@given(st.text(max_size=60), st.floats() | st.integers())
def test_no_text_breaks_the_page(text: str, number: float) -> None:
    server = ServerFigures(name="x", unit=text, mode="act", withheld={text: 1}, progress_age_s=number)
    got = samples(Figures(version=text, servers=[server]))
    assert len(got) == 5


def test_the_page_of_metrics_is_in_step() -> None:
    assert (PROJECT / "docs/metrics.md").read_text(encoding="utf-8") == metrics.reference(), "run: make docs"


def known() -> set[str]:
    names = {PREFIX + f.name for f in FAMILIES if f.kind != "histogram"}
    return names | {PREFIX + f.name + end for f in FAMILIES if f.kind == "histogram" for end in ("_bucket", "_sum", "_count")}


@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=lambda p: p.name)
def test_rules_and_dashboard_ask_only_for_metrics_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    asked = set(re.findall(r"(?<!:)\bsglang_watchdog_[a-z_]+\b(?!:)", text))
    assert asked
    assert asked - known() == set()


def test_the_dashboard_is_made_from_its_script_and_every_panel_asks_something() -> None:
    script = runpy.run_path(str(PROJECT / "packaging/grafana/make_dashboard.py"))
    assert DASHBOARD.read_text(encoding="utf-8") == script["dashboard"](), "run: make docs"
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = [p for p in dashboard["panels"] if p["type"] != "row"]
    assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(t["expr"] for p in panels for t in p["targets"])
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)


def test_dashboard_and_rules_know_the_same_recorded_names() -> None:
    rules = RULES.read_text(encoding="utf-8")
    recorded = set(re.findall(r"record: (\S+)", rules))
    asked = set(re.findall(r"\bserver:sglang_watchdog\w*(?::\w+)*", DASHBOARD.read_text(encoding="utf-8")))
    assert asked
    assert asked <= recorded


def test_every_alerting_rule_says_what_helps() -> None:
    rules = RULES.read_text(encoding="utf-8")
    alerts = re.findall(r"(?ms)^      - alert: (\w+)$(.*?)(?=^      - |\Z)", rules)
    assert len(alerts) >= 8
    for name, body in alerts:
        for part in ("severity:", "summary:", "description:", "for:"):
            assert part in body, f"{name} has no {part}"
