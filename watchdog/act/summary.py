"""The summary of an incident: one page of Markdown that can be pasted into a bug report."""

import json
import platform
from collections.abc import Callable, Mapping
from typing import Any

from watchdog import __version__
from watchdog.act import redact
from watchdog.act.scene import Scene
from watchdog.judge.verdict import DOUBTS, WORST, Action, Condition, Status
from watchdog.observation import Cgroup, Gpu, Host, Observation, Port, Probe, Procs, Server, Unit
from watchdog.units import format_gib
from watchdog.wording import counted, span

FLAGS = 60
FLAG_CAP = 120
FIRST = (
    *("model_path", "served_model_name", "revision", "load_format", "dtype", "quantization", "kv_cache_dtype"),
    *("context_length", "page_size", "tp_size", "dp_size", "pp_size", "ep_size", "nnodes", "node_rank", "enable_dp_attention"),
    *("attention_backend", "mem_fraction_static", "max_total_tokens", "max_running_requests", "max_queued_requests"),
    *("chunked_prefill_size", "cuda_graph_max_bs", "disable_cuda_graph", "disable_radix_cache", "enable_hierarchical_cache"),
    *("hicache_ratio", "hicache_size", "hicache_write_policy", "hicache_io_backend", "hicache_mem_layout"),
    *("hicache_storage_backend", "speculative_algorithm", "speculative_draft_model_path", "speculative_num_steps"),
    *("speculative_eagle_topk", "speculative_num_draft_tokens", "disaggregation_mode", "reasoning_parser", "tool_call_parser"),
    *("watchdog_timeout", "soft_watchdog_timeout", "schedule_policy", "enable_metrics", "decode_log_interval", "log_level"),
)
"""Launch arguments that say most about how a server behaves; the page has room for a third of all."""
NAMED = 24
"""So many processes are named."""
TURNED = 6
LATELY_S = 900.0
"""So many conditions that turned within so long are told besides those that do not hold."""
WORDS = {Status.FALSE: "does not hold", Status.UNKNOWN: "is in doubt or unknown", Status.TRUE: "has held"}
TAKEN_FOR = {
    Action.DIAGNOSE: "the suspicion, before any decision:",
    Action.RESTART: "a restart, before anything was done:",
}


def summary(scene: Scene, files: Mapping[str, int], failed: Mapping[str, str]) -> str:
    """The page. It ends with the heading below which `bundles.follow` adds what followed.

    Args:
        scene: the incident.
        files: what the bundle holds: name → bytes.
        failed: what it does not hold: name → why.
    """
    intent = scene.intent
    lines = [
        f"# {intent.reason} on {scene.server.name}",
        "",
        intent.message,
        "",
        f"* When: {scene.when(scene.t)}",
        f"* Taken for: {TAKEN_FOR.get(intent.action, 'the decision')} {intent.reason} ({intent.severity})",
        *([f"* Advice: {intent.advice}"] if intent.advice else []),
        f"* Unit: {scene.server.unit}, invocation {scene.inv or 'unknown'}",
        "",
        "## Evidence",
        "",
        *([f"* {each}" for each in intent.evidence] or ["* none beside the message"]),
        *(f"* {each}" for each in scene.notes),
        "",
        "## Conditions",
        "",
        *(_conditions(scene) or ["None was judged yet."]),
        "",
        "## Seen last",
        "",
        *_seen(scene),
        "",
        "## Versions",
        "",
        *_versions(scene),
        "",
        "## Launch arguments",
        "",
        *_flags(scene),
        "",
        "## Files",
        "",
        *(f"* {name} ({counted(size, 'byte')})" for name, size in sorted(files.items())),
        *(f"* {name} is missing: {why}" for name, why in sorted(failed.items())),
        "",
        "Keys, passwords, prompts and answers were left out. Please look through it before you publish it.",
        "",
        "## What followed",
        "",
        "Added as it happens, for as long as the watchdog runs:",
        "",
        "",
    ]
    return redact.block("\n".join(lines))


def _conditions(scene: Scene) -> list[str]:
    """What does not hold, what is in doubt, what has just turned, in order of weight; the rest is only counted."""
    known = {c.type: c for c in scene.conditions}
    weight = [*(kind for kind in WORST if kind in known), *(kind for kind in known if kind not in WORST)]
    ordered = [known[kind] for kind in weight]
    first = min((c.since for c in ordered), default=0.0)
    wrong = [c for c in ordered if c.status is Status.FALSE]
    doubts = [c for c in ordered if c.status is Status.UNKNOWN and (c.type, c.reason) in DOUBTS]
    turned = [c for c in ordered if c not in wrong and c not in doubts and _turned(c, first, scene.t)]
    shown = [*wrong, *doubts, *turned[:TURNED]]
    lines = [
        f"* {c.type} {WORDS[c.status]}{_turn(scene.t - c.since)} "
        f"({c.reason}, since {scene.when(max(c.since, c.reason_since))}): {c.message}"
        for c in shown
    ]
    rest = [c for c in ordered if c not in shown]
    if rest:
        held = sum(c.status is Status.TRUE for c in rest)
        lines.append(f"* The others ({held} as they should be, {len(rest) - held} not known) are in conditions.json.")
    return lines


def _turn(seconds: float) -> str:
    return "" if seconds < 1 else f" for {span(seconds)}"


def _turned(c: Condition, first: float, t: float) -> bool:
    """Whether a condition turned of late, other than by the mere beginning of the watch or the end of serving."""
    return c.since > first + 1.0 and t - c.since <= LATELY_S and c.reason != "NotServing"


def conditions(scene: Scene) -> list[dict[str, str]]:
    """All conditions as plain data, for the bundle."""
    return [
        {"type": c.type, "status": str(c.status), "reason": c.reason, "message": c.message, "since": scene.when(c.since)}
        for c in scene.conditions
    ]


def _seen(scene: Scene) -> list[str]:
    """The last look of each kind, each with its age."""
    lines = [
        f"* {word(x)}, {_age(scene, x)}{_since_then(scene, x)}"
        for kind, word in SAID.items()
        if (x := scene.last(kind)) is not None and not _overtaken(scene, x)
    ]
    return lines or ["Nothing."]


def _overtaken(scene: Scene, x: Observation) -> bool:
    """Whether what was seen since says otherwise: a probe was connected to a port on which nobody listened before."""
    probe = scene.last(Probe)
    return isinstance(x, Port) and not x.listening and probe is not None and probe.t > x.t and probe.connected


def _since_then(scene: Scene, x: Observation) -> str:
    """A port is looked at seldom while it is known to be open; what probes found there since is newer."""
    probe = scene.last(Probe)
    if not isinstance(x, Port) or not x.listening or probe is None or probe.t - x.t < 1 or probe.outcome == "skipped":
        return ""
    return f"; since then a probe was {'let in' if probe.connected else 'not let in'} ({_age(scene, probe)})"


def _age(scene: Scene, x: Observation) -> str:
    passed = scene.t - x.t
    return "at that moment" if passed < 1 else f"{span(round(passed))} before"


def _unit(u: Unit) -> str:
    restarts = "an unknown number of automatic restarts" if u.n_restarts is None else counted(u.n_restarts, "automatic restart")
    return f"unit {_or_unknown(u.active_state)} ({_or_unknown(u.sub_state)}), last result {_or_unknown(u.result)}, {restarts}"


def _procs(p: Procs) -> str:
    names = ", ".join(
        f"{each.name or 'without a name'} ({each.pid}, state {_or_unknown(each.state)})" for each in p.procs[:NAMED]
    )
    more = f" and {len(p.procs) - NAMED} more" if len(p.procs) > NAMED else ""
    return f"{counted(len(p.procs), 'process', 'processes')}{f': {names}{more}' if names else ''}"


def _cgroup(c: Cgroup) -> str:
    kills = "OOM kills unknown" if c.oom_kill is None else counted(c.oom_kill, "OOM kill")
    return f"unit's memory {_gib(c.memory_current)}, limit {_gib(c.memory_max, 'none or unknown')}, {kills}"


def _host(h: Host) -> str:
    load = "unknown" if h.load1 is None else f"{h.load1:.1f}"
    return f"host's memory {_gib(h.mem_available)} available of {_gib(h.mem_total)}, load {load}"


def _gpu(g: Gpu) -> str:
    return f"{counted(len(g.gpus), 'GPU')} seen" if g.ok else f"GPUs not readable ({_or_unknown(g.error).replace('_', ' ')})"


def _port(p: Port) -> str:
    address = f"port {_or_unknown(p.address)}"
    if not p.listening:
        return f"{address}: {'nobody listens' if p.listening is False else 'whether somebody listens is unknown'}"
    whose = {True: "of the unit", False: "not of the unit", None: "whose is unknown"}[p.in_unit]
    return f"{address}: {'a process' if p.pid is None else f'pid {p.pid}'} listens, {whose}"


SAID: dict[type[Observation], Callable[[Any], str]] = {
    Unit: _unit,
    Procs: _procs,
    Cgroup: _cgroup,
    Host: _host,
    Gpu: _gpu,
    Port: _port,
}


def _or_unknown(word: str | None) -> str:
    return word or "unknown"


def _gib(amount: int | None, otherwise: str = "unknown") -> str:
    return otherwise if amount is None else format_gib(amount)


def _versions(scene: Scene) -> list[str]:
    server = scene.last(Server)
    return [
        f"* sglang-watchdog {__version__}",
        f"* SGLang {(server.version if server is not None else None) or 'unknown'}",
        f"* {_distribution()}, Linux {platform.release()}, Python {platform.python_version()}",
    ]


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "unknown distribution"


def _flags(scene: Scene) -> list[str]:
    server = scene.last(Server)
    if server is None or not server.args:
        return ["unknown"]
    given = {name: each for name, each in server.args.items() if each not in (None, False, "", [])}
    # The sort keeps the order of the others: what stood on the command line comes before what SGLang filled in.
    ordered = sorted(given, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    lines = [f"* {name}: {_short(given[name])}" for name in ordered[:FLAGS]]
    if len(given) > FLAGS:
        lines.append(f"* … and {len(given) - FLAGS} more in record.jsonl.gz")
    return lines + [f"* {name}={each}" for name, each in sorted(server.env.items())]


def _short(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(redact.value(content), default=str)
    return text if len(text) <= FLAG_CAP else f"{text[: FLAG_CAP - 1]}…"
