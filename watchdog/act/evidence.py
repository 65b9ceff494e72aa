"""An incident bundle: what can be seen of a sick server, saved before anything is done about it.

All parts are gathered at once, each bounded; what fails is named in the summary. The whole never blocks the loop, takes no
longer than its limit, and never harms the server. Where the disk is full or cannot be written, the bundle is lost.
"""

import asyncio
import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.act import bundles, redact
from watchdog.act.bundle_names import SUMMARY, folder_name
from watchdog.act.collectors import COLLECTORS, Collector
from watchdog.act.command import CommandError
from watchdog.act.scene import Scene
from watchdog.act.summary import conditions, summary
from watchdog.worker import Worker

GATHER_SHARE = 0.8
"""This part of the time is for gathering; of what is left, the summary has half, and writing the rest."""
COLLECTOR_SHARES = (0.9, 0.96)
"""Of the time for gathering, a collector is told so much; after so much it is broken off, and has the rest to end."""
MIB = 1 << 20


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """What was saved.

    Attributes:
        name: the bundle's name, such as "2026-01-14T02-00-00Z-SchedulerHung".
        path: its folder; None if it could not be written.
        size: bytes of all files.
        failed: parts that could not be had: file name → why.
        warning: one sentence with its cure, if it could not be written.
        took_s: how long it took, in seconds.
    """

    name: str
    path: Path | None = None
    size: int = 0
    failed: dict[str, str] = {}
    warning: str | None = None
    took_s: float = 0.0


async def collect(
    scene: Scene,
    home: Path,
    *,
    limit_s: float,
    limits: config.Recording | None = None,
    collectors: Mapping[str, Collector] = COLLECTORS,
) -> Bundle:
    """Gather and save.

    Args:
        scene: the incident.
        home: where the server's bundles lie: STATE/SERVER/incidents.
        limit_s: the whole may take so many seconds.
        limits: how much, and for how long, bundles are kept.
        collectors: file name → what gathers it.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()

    def left() -> float:
        return max(0.0, begun + limit_s - loop.time())

    limits = limits or config.Recording()
    files, failed = await _gather(scene, limit_s * GATHER_SHARE, collectors)
    for name, content in (("intent.json", msgspec.to_builtins(scene.intent)), ("conditions.json", conditions(scene))):
        files[name] = msgspec.json.format(msgspec.json.encode(redact.value(content)), indent=2)
    sizes = {name: len(content) for name, content in files.items()}
    worker = Worker("bundle")
    try:
        files[SUMMARY] = (await worker.call(lambda: summary(scene, sizes, failed), left() / 2)).encode()
    except TimeoutError:
        failed[SUMMARY] = "the host is too slow to write it"
        worker = Worker("bundle")
    total = sum(map(len, files.values()))

    at = scene.clock.wall(scene.t)
    name = folder_name(at, scene.intent.reason)
    path, warning = None, None
    try:
        save = functools.partial(_save, home, name, files, limits, scene)
        path = await worker.call(save, left())
    except OSError as e:  # TimeoutError is one
        why = e.strerror or str(e) or "the disk does not answer"
        warning = (
            f"the incident bundle could not be written to {home} ({why}) and is lost: "
            "free space there, or make it writable for the watchdog's user"
        )
    return Bundle(
        name=path.name if path is not None else name,
        path=path,
        size=total,
        failed=failed,
        warning=warning,
        took_s=round(loop.time() - begun, 3),
    )


def _save(home: Path, name: str, files: Mapping[str, bytes], limits: config.Recording, scene: Scene) -> Path:
    """Blocking: make room, then write."""
    room = limits.incidents_mib * MIB - sum(map(len, files.values()))
    bundles.prune(home, scene.clock.sure(), room, limits.incidents_days)
    return bundles.write(home, name, files)


async def _gather(scene: Scene, limit_s: float, collectors: Mapping[str, Collector]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Run all collectors at once; what they got, and why others got nothing."""
    told_s, broken_off_s = (limit_s * share for share in COLLECTOR_SHARES)
    tasks = {name: asyncio.create_task(collector(scene, told_s)) for name, collector in collectors.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=broken_off_s)
    finally:
        for task in tasks.values():
            task.cancel()
    late = {name for name, task in tasks.items() if not task.done()}
    if late:
        await asyncio.wait([tasks[name] for name in late], timeout=limit_s - broken_off_s)
    files: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    for name, task in tasks.items():
        if not task.done() or task.cancelled():
            failed[name] = f"it took longer than {broken_off_s:.1f} s"
        elif (error := task.exception()) is None:
            files[name] = task.result()
        elif isinstance(error, CommandError):
            failed[name] = str(error)
        elif isinstance(error, TimeoutError):
            failed[name] = f"it took longer than {broken_off_s:.1f} s"
        else:
            failed[name] = redact.line(f"{type(error).__name__}: {error}", 300)
    return files, failed
