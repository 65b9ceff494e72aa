"""Figures with all that the exporter can show."""

from watchdog.judge.verdict import Condition, Status
from watchdog.web.metrics import Durations, Figures, ServerFigures


def full() -> Figures:
    """One server that is well, and one of which little is known."""
    chat = Durations()
    for seconds in (0.02, 0.41, 0.43, 70.0, float("nan"), -1.0):
        chat.add(seconds)
    conditions = [
        Condition(type="SchedulerProgressing", status=Status.TRUE, reason="Working", message=""),
        Condition(type="AnswersSane", status=Status.UNKNOWN, reason="NothingSeen", message=""),
    ]
    kimi = ServerFigures(
        name="kimi",
        unit="sglang-kimi.service",
        mode="act",
        phase="serving",
        well=True,
        paused=False,
        conditions=conditions,
        restarts={("SchedulerHung", "done"): 2},
        withheld={"DeviceLost": 1},
        alerts={("DeviceLost", "critical"): 1},
        probe_durations={"chat": chat},
        probe_failures={("health", "timeout"): 3},
        observations={"log": 12345, "probe": 17},
        budget_remaining={"short": 0, "long": 2},
        host_pool={"expected": 358_158_155_520, "announced": 358_158_155_520, "seen": None},
        start_progress=0.45,
        start_eta_s=181.5,
        progress_age_s=0.25,
        canary_age_s=61.0,
    )
    return Figures(
        version="0.1.0",
        python="3.11.7",
        started=1_768_356_000.25,
        reload_ok=True,
        sources={"journal": True, "gpu": False, "bus": None},
        tick_lag_s=0.0004,
        dropped=0,
        alerts_sent={"webhook": 3},
        alerts_failed={"webhook": 1},
        alerts_dropped={"webhook": 0},
        alerts_waiting={"webhook": 1},
        servers=[kimi, ServerFigures(name="other", unit="o.service", mode="observe")],
    )
