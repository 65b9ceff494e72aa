"""The exporter's figures come from what really happened to a watched server."""

import ast
from pathlib import Path

import msgspec

from tests.test_view import watch as watch  # noqa: PLC0414  # the fixture
from watchdog import figures as given
from watchdog.figures import figures
from watchdog.judge.verdict import Action, Intent, Severity
from watchdog.observation import Probe, Unit
from watchdog.watch import Watch
from watchdog.web.metrics import Figures, ServerFigures, render

INV = "a" * 32


def told(w: Watch) -> str:
    return render(figures(w.clock, [w], [], None, 0.25)).decode()


def test_a_server_that_was_not_seen_has_no_samples_of_what_is_unknown(watch: Watch) -> None:
    text = told(watch)

    assert f'server="{watch.server.name}"' in text
    assert "sglang_watchdog_up{" not in text
    assert "sglang_watchdog_tick_lag_seconds 0.25" in text
    assert 'sglang_watchdog_budget_remaining{server="kimi",window="short"} 2' in text


def test_probes_decisions_and_restarts_are_counted(watch: Watch) -> None:
    watch.take(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=-7200.0))
    watch.take(Probe(t=1.0, inv=INV, probe="health", outcome="ok", status=200, total_s=1.0))
    watch.take(Probe(t=2.0, inv=INV, probe="chat", outcome="timeout", total_s=60.0, limit_s=60.0))
    watch.take(Probe(t=3.0, inv=INV, probe="chat", outcome="skipped", why="traffic"))
    watch.tally.intent(Intent(action=Action.WITHHOLD, reason="DeviceLost", severity=Severity.CRITICAL, message="x"))
    watch.tally.intent(Intent(action=Action.ALERT, reason="Saturated", severity=Severity.WARNING, message="x"))
    watch.tally.restart("SchedulerHung", "begun")
    watch.tally.restart("SchedulerHung", "done")

    text = told(watch)

    assert 'sglang_watchdog_probe_failures_total{server="kimi",probe="chat",outcome="timeout"} 1' in text
    assert 'sglang_watchdog_probe_duration_seconds_count{server="kimi",probe="health"} 1' in text
    assert 'sglang_watchdog_restarts_total{server="kimi",reason="SchedulerHung",result="done"} 1' in text
    assert 'result="begun"' not in text
    assert 'sglang_watchdog_withheld_total{server="kimi",reason="DeviceLost"} 1' in text
    assert 'sglang_watchdog_alerts_total{server="kimi",reason="Saturated",severity="warning"} 1' in text
    assert 'sglang_watchdog_phase{server="kimi",phase="serving"} 1' in text
    assert 'sglang_watchdog_observations_total{server="kimi",kind="probe"} 3' in text


def test_the_daemon_gives_every_figure_that_the_exporter_can_show() -> None:
    tree = ast.parse(Path(given.__file__).read_text(encoding="utf-8"))
    calls = {ast.unparse(n.func): {k.arg for k in n.keywords} for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for kind in (Figures, ServerFigures):
        assert {f.name for f in msgspec.structs.fields(kind)} - calls[kind.__name__] == set()
