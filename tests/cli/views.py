"""What the daemon shows of a server, for tests of what the commands make of it."""

from typing import Any


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "since_at": None, "since_age_s": 12.0}


def view(**changes: Any) -> dict[str, Any]:
    """A server that serves and is well, but for what is changed."""
    return {
        "name": "kimi",
        "unit": "sglang-kimi.service",
        "base_url": "http://127.0.0.1:30000",
        "mode": "act",
        "phase": "serving",
        "sentence": "serving, 3 running, canary 0.41 s",
        "well": True,
        "wrong": [],
        "unit_state": {"load_state": "loaded", "active_state": "active", "sub_state": "running", "result": "success"},
        "invocation": "0123456789abcdef0123456789abcdef",
        "since_at": "2026-01-14T02:00:00.000Z",
        "ready_at": "2026-01-14T02:10:00.000Z",
        "proven": True,
        "verified": True,
        "paused": False,
        "pause_reason": None,
        "stand_down": None,
        "starting": None,
        "conditions": [condition("UnitActive", "True", "Active", "The unit is active (running).")],
        "work": {
            "running": 3.0,
            "queued": 0.0,
            "token_usage": 0.12,
            "step_age_s": 0.2,
            "request_ended_age_s": 1.0,
            "accept_length": 2.74,
        },
        "memory": {"announced": 358_158_155_520, "seen": 359_000_000_000, "seen_as": "memory", "room": 10**12, "host": None},
        "gpus": None,
        "probes": {"health": {"outcome": "ok", "total_s": 0.01}, "chat": {"outcome": "status", "status": 503}},
        "failed_probes": [],
        "restarts": [],
        "observed": None,
        "budget": {"restarts": 2, "window_s": 21600.0, "spent": 0, "forbidden": None, "backoff_s": 0.0},
        "alerts": [],
        "withheld": [],
        "diary": [{"at": "2026-01-14T02:10:00.000Z", "what": "condition", "text": "Started: Ready.", "reason": "Ready"}],
        "observations": {},
        "bundle": None,
        "why": {"restart": ["Not called for as hung: the engine last moved 1 s ago."]},
        **changes,
    }


STARTING = {
    "step": "weights",
    "ratio": 0.45,
    "steps": ["launch", "weights", "KV cache", "graphs", "host pool", "warm-up", "ready"],
    "at": 1,
    "done": 0.4,
    "eta_s": 180.0,
    "progress_age_s": 2.0,
    "progress_by": "45% of weights",
}
ILL = view(
    well=False,
    wrong=["SchedulerProgressing"],
    verified=False,
    sentence="hung for 41 s: no batch, canary timed out",
    conditions=[
        condition("UnitActive", "True", "Active", "The unit is active."),
        condition("SchedulerProgressing", "False", "Hung", "No batch for 41 s."),
        condition("SpeculationEffective", "Unknown", "NoTraffic", "Too few decode batches."),
    ],
)
