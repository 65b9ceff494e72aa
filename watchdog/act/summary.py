"""The summary of an incident: one page of Markdown that can be pasted into a bug report."""

import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from watchdog import __version__
from watchdog.act import redact
from watchdog.act.scene import Scene
from watchdog.judge.verdict import Condition, Status
from watchdog.observation import Cgroup, Gpu, Host, Port, Procs, Server, Unit

GIB = 1 << 30
FLAGS = 60
FLAG_CAP = 120


def summary(scene: Scene, files: Mapping[str, int], failed: Mapping[str, str]) -> str:
    """The page.

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
        f"* Decision: {intent.action} ({intent.severity})",
        f"* Advice: {intent.advice or 'none'}",
        f"* Unit: {scene.server.unit}, invocation {scene.inv or 'none'}",
        "",
        "## Evidence",
        "",
        *([f"* {each}" for each in intent.evidence] or ["* none beside the message"]),
        *(f"* {each}" for each in scene.notes),
        "",
        "## Conditions",
        "",
        *(_conditions(scene, scene.conditions) or ["none was told"]),
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
        *(f"* {name} ({size} bytes)" for name, size in sorted(files.items())),
        *(f"* {name} is missing: {why}" for name, why in sorted(failed.items())),
        "",
        "Keys, passwords, prompts and answers were left out. Please look through it before you publish it.",
        "",
    ]
    return redact.block("\n".join(lines))


def _conditions(scene: Scene, conditions: Sequence[Condition]) -> list[str]:
    """Those that are not well first."""
    order = {Status.FALSE: 0, Status.UNKNOWN: 1, Status.TRUE: 2}
    return [
        f"* {each.type} is {each.status} since {scene.when(each.since)} ({each.reason}): {each.message}"
        for each in sorted(conditions, key=lambda each: order[each.status])
    ]


def _seen(scene: Scene) -> list[str]:
    lines: list[str] = []
    if (unit := scene.last(Unit)) is not None:
        lines.append(f"* unit {unit.active_state}/{unit.sub_state}, result {unit.result}, {unit.n_restarts} automatic restarts")
    if (procs := scene.last(Procs)) is not None:
        names = ", ".join(f"{each.name or '?'} ({each.pid}, {each.state or '?'})" for each in procs.procs[:24])
        lines.append(f"* {len(procs.procs)} processes: {names or 'none'}")
    if (cgroup := scene.last(Cgroup)) is not None:
        lines.append(
            f"* unit's memory {_gib(cgroup.memory_current)}, limit {_gib(cgroup.memory_max, 'none')}, OOM kills {cgroup.oom_kill}"
        )
    if (host := scene.last(Host)) is not None:
        lines.append(f"* host's memory {_gib(host.mem_available)} available of {_gib(host.mem_total)}, load {host.load1}")
    if (gpu := scene.last(Gpu)) is not None:
        lines.append(f"* GPUs: {f'{len(gpu.gpus)} answer' if gpu.ok else f'not readable ({gpu.error})'}")
    if (port := scene.last(Port)) is not None:
        lines.append(f"* port {port.address}: listening {port.listening}, pid {port.pid}, of the unit {port.in_unit}")
    return lines or ["nothing"]


def _gib(amount: int | None, otherwise: str = "unknown") -> str:
    return otherwise if amount is None else f"{amount / GIB:.1f} GiB"


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
    lines = [f"* {name}: {_short(each)}" for name, each in sorted(given.items())[:FLAGS]]
    if len(given) > FLAGS:
        lines.append(f"* … and {len(given) - FLAGS} more in record.jsonl.gz")
    return lines + [f"* {name}={each}" for name, each in sorted(server.env.items())]


def _short(content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(redact.value(content), default=str)
    return text if len(text) <= FLAG_CAP else f"{text[: FLAG_CAP - 1]}…"
