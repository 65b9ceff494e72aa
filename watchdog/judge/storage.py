"""Do files come? A file server that does not answer holds up whoever waits for it, and whoever is started in its place."""

from collections.abc import Iterator

from msgspec import structs

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.ranks import ESSENTIAL
from watchdog.judge.verdict import Call, Severity, Want
from watchdog.sglang import processes
from watchdog.wording import ago, counted

SILENT_S = 60.0
"""A start that has shown no progress for so long may wait for files."""


def judge(f: Facts, now: float) -> Iterator[Call]:
    """A veto and an alert while the server waits for a file server that the kernel says to be away."""
    life = f.life
    if not life.active or life.phase() not in (Phase.STARTING, Phase.SERVING):
        return
    away = f.devices.storage.away(now, life.since)
    if not away or not _waits(f, now):
        return
    since, name = away[0]
    waiting = len(_blocked(f))
    waits = "wait" if waiting > 1 else "waits"
    who = f"; {counted(waiting, 'process', 'processes')} of the unit {waits} in the kernel (state D)" if waiting else ""
    more = f", nor {len(away) - 1} more" if len(away) > 1 else ""
    message = f"{name} does not answer (the kernel said so {ago(now - since)}){more}{who}."
    veto = Call(
        want=Want.VETO,
        reason="FileServerAway",
        message=message,
        severity=Severity.CRITICAL,
        advice="Bring the file server or the network to it back: what waits for it goes on by itself then. A new start would "
        "wait for the same files (findmnt shows what is mounted from it).",
        evidence=tuple(f"{x}: the kernel said so {ago(now - t)}" for t, x in away[:8]),
    )
    yield veto
    yield structs.replace(veto, want=Want.ALERT)


def _waits(f: Facts, now: float) -> bool:
    """Whether the server waits for files, as far as can be seen. A start does not get on meanwhile."""
    if f.life.phase() is not Phase.STARTING:
        return bool(_blocked(f) & _blocked(f, before=True))
    progress = f.start.progress_at
    if progress is not None and now - progress < SILENT_S:
        return False
    # Between two looks they may have gone on: the signs of that are waited for.
    return f.ranks.last is None or bool(_blocked(f) | _blocked(f, before=True))


def _blocked(f: Facts, *, before: bool = False) -> set[int]:
    """The main process and those of the engine that wait in the kernel and cannot be interrupted: at the last look, or before."""
    look = f.ranks.before if before else f.ranks.last
    main = f.life.unit.main_pid if f.life.unit is not None else None
    procs = look.procs if look is not None else []
    return {x.pid for x in procs if x.state == "D" and (x.pid == main or processes.role(x.name) in ESSENTIAL)}
