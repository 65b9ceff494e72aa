"""What people and programs are shown of a server: one plain dictionary for the commands, the API and the page."""

from typing import Any

import msgspec

from watchdog.act import redact
from watchdog.clock import rfc3339
from watchdog.incidents import Incident
from watchdog.judge import pool, proof
from watchdog.judge.facts import Facts
from watchdog.judge.sentence import doubts, unsure
from watchdog.judge.verdict import WORST, Status
from watchdog.observation import Gpu, Host, Probe, Unit
from watchdog.sglang import startup
from watchdog.watch import Watch

WEEK_S = 7 * 86400.0
LONGEST = 600
"""Characters of a sentence that is shown of an incident."""
PROBE_FIELDS = ("probe", "outcome", "status", "connect_s", "ttft_s", "total_s", "limit_s", "why", "detail")


def server_view(watch: Watch) -> dict[str, Any]:
    """Everything about one server at this moment. Moments are seconds ago (`…_age_s`) or RFC 3339 (`…_at`)."""
    f = watch.engine.facts
    now = watch.clock.now()
    phase = f.life.phase()
    ledger, policy = watch.engine.ledger, watch.server.restart
    wrong = broken(watch)
    held = pool.account(f)
    return {
        "name": watch.server.name,
        "unit": watch.server.unit,
        "base_url": watch.server.base_url,
        "mode": watch.mode,
        "phase": phase.value,
        "sentence": watch.sentence(fresh=True),
        "well": phase.value == "serving" and not wrong,
        "wrong": wrong,
        "unit_state": _unit(watch),
        "invocation": f.life.inv,
        "since_at": _at(watch, f.life.since),
        "ready_at": _at(watch, f.life.ready_at),
        "doubts": [c.type for c in doubts(watch.engine)] if phase.value == "serving" else [],
        "proven": f.life.proven,
        "verified": verified(watch),
        "paused": f.paused(now),
        "pause_reason": f.pause_reason if f.paused(now) else None,
        "stand_down": watch.stand_down() or watch.unread,
        "starting": _starting(f, now) if phase.value == "starting" else None,
        "conditions": [
            {
                "type": c.type,
                "status": str(c.status),
                "reason": c.reason,
                "message": c.message,
                "since_at": _at(watch, c.since),
                "since_age_s": _age(now, c.since),
                "reason_since_at": _at(watch, c.reason_since),
                "reason_age_s": _age(now, c.reason_since),
            }
            for c in watch.engine.conditions.values()
        ],
        "work": {
            "running": f.work.figure("num_running_reqs", "running"),
            "queued": f.work.figure("num_queue_reqs", "queue"),
            "token_usage": f.work.figure("token_usage", "token_usage"),
            "step_age_s": _age(now, f.work.stepped_at),
            "request_ended_age_s": _age(now, f.work.ended_at),
            "accept_length": f.accepted.latest(now),
        },
        "memory": {
            "announced": held.announced.total if held.announced is not None else None,
            "expected": held.expected.unit,
            "seen": held.place.size if held.place is not None else None,
            "seen_as": held.place.title if held.place is not None else None,
            "room": f.memory.room(),
            "host": _host(watch),
        },
        "gpus": _gpus(watch),
        "probes": {
            name: _probe(watch, p) for name, p in watch.last_probes.items() if p.inv in (None, f.life.inv) and not _absent(p)
        },
        "failed_probes": [_probe(watch, p) for p in watch.failed_probes if not _absent(p)],
        "restarts": [{"at": _at(watch, r.t), "reason": r.reason, "dry": r.dry, "proven": r.proven} for r in ledger.restarts],
        "incidents": [_incident(watch, i) for i in watch.incidents.all],
        "observed": _observed(watch, now),
        "budget": {
            "restarts": policy.budget,
            "window_s": policy.budget_s,
            "spent": sum(1 for r in ledger.restarts if now - r.t < policy.budget_s),
            "forbidden": ledger.spent(policy, now),
            "backoff_s": round(ledger.wait_s(policy, now), 1),
        },
        "alerts": sorted(ledger.alerts),
        "withheld": sorted(ledger.withheld),
        "diary": [{"at": _at(watch, r.t), "what": r.what, "text": redact.line(r.text), "reason": r.reason} for r in watch.diary],
        "observations": dict(watch.counts),
    }


def _incident(watch: Watch, i: Incident) -> dict[str, Any]:
    """One incident; `took_s` is None and `ended_at` null while it lasts."""
    return {
        "begun_at": _at(watch, i.begun),
        "ended_at": _at(watch, i.ended),
        "took_s": None if i.ended is None else round(i.ended - i.begun, 1),
        "reason": i.reason,
        "cause": redact.line(i.cause, LONGEST),
        "done": [{"at": _at(watch, d.t), "text": redact.line(d.text, LONGEST)} for d in i.deeds],
        "restarts": i.restarts,
        "outcome": i.outcome,
        "bundles": i.bundles,
    }


def _observed(watch: Watch, now: float) -> dict[str, Any] | None:
    """In mode observe: for how long, and how many restarts it would have made within the last week."""
    seconds = watch.observed_s()
    if seconds is None:
        return None
    would = sum(r.dry and now - r.t < WEEK_S for r in watch.engine.ledger.restarts)
    return {"s": round(seconds, 1), "week": seconds >= WEEK_S, "would_restart": would}


def broken(watch: Watch) -> list[str]:
    """The types of the conditions that do not hold, the worst first."""
    conditions = watch.engine.conditions
    return [kind for kind in WORST if kind in conditions and conditions[kind].status is Status.FALSE]


def verified(watch: Watch) -> bool:
    """Whether this life is proven: ready, answered by a canary or real traffic, and nothing that matters against it."""
    f = watch.engine.facts
    unasked = not watch.server.probe.chat or not watch.server.endpoint
    return proof.serving(f) and (unasked or proof.answered(f)) and proof.against(f, watch.engine.conditions) is None


def _unit(watch: Watch) -> dict[str, Any] | None:
    u = watch.latest.get(Unit)
    names = ("load_state", "active_state", "sub_state", "result", "n_restarts", "main_pid")
    return {name: getattr(u, name) for name in names} if u is not None else None


def _starting(f: Facts, now: float) -> dict[str, Any]:
    """How far a start is, which never goes back. Draft and target model count as one phase: the log does not always tell which.

    Where the draft model is loaded after the target's graphs, it is shown as what is left of the farthest phase.
    """
    start, learned = f.start, f.learned.phases
    version = f.life.server.version if f.life.server is not None else None
    plan = startup.steps(version, draft=False, host_pool=f.life.arg("enable_hierarchical_cache") is True)
    phases = [step.phase for step in plan]
    current = phases.index(start.reached) if start.reached in phases else 0
    back = start.step is not start.reached
    in_step = start.took.get(phases[current].value, 0.0)
    if not back and start.step_since is not None:
        in_step += now - start.step_since
    eta = start.eta_s if start.bar is not None and not back else None
    draft = back and f.life.arg("speculative_algorithm") is not None
    step = start.step.value if start.step is not None else None
    remaining = startup.remaining_s(plan, current, in_step, eta_s=eta, learned=learned)
    return {
        "unsure": unsure(f, now),
        "step": f"draft {step}" if draft else step,
        "ratio": start.bar,
        "steps": [step.name for step in plan],
        "at": current,
        "done": round(startup.done_ratio(plan, current, remaining, learned=learned), 3),
        "eta_s": f.eta_s(now),
        "progress_age_s": _age(now, start.progress_at),
        "progress_by": redact.line(start.progress_by),
    }


def _at(watch: Watch, t: float | None) -> str | None:
    return None if t is None else rfc3339(watch.clock.wall(t))


def _age(now: float, t: float | None) -> float | None:
    return None if t is None else round(now - t, 1)


def _absent(p: Probe) -> bool:
    """Whether it asked for what this server does not have: SGLang has /ready since 0.5.20."""
    return p.probe == "ready" and p.status in (404, 405)


def _probe(watch: Watch, p: Probe) -> dict[str, Any]:
    out = {name: value for name in PROBE_FIELDS if (value := getattr(p, name)) is not None}
    out["at"] = _at(watch, p.t)
    if p.answer is not None:
        out["answer"] = redact.value(msgspec.to_builtins(p.answer))
    elif p.body and p.outcome != "ok":
        out["body"] = redact.line(p.body)
    return out


def _host(watch: Watch) -> dict[str, Any] | None:
    h = watch.latest.get(Host)
    return {k: v for k, v in msgspec.to_builtins(h).items() if k not in ("kind", "t", "inv")} if h is not None else None


def _gpus(watch: Watch) -> dict[str, Any] | None:
    g = watch.latest.get(Gpu)
    return {k: v for k, v in msgspec.to_builtins(g).items() if k not in ("kind", "inv")} if g is not None else None
