"""Would a restart help? What makes it useless, and what helps instead."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import structs

from watchdog.config import Restarting
from watchdog.judge import group, storage
from watchdog.judge.devices import FABRIC_ADVICE
from watchdog.judge.facts import Facts
from watchdog.judge.facts.deaths import LAST_LINES_S, Death, alike, count, ending
from watchdog.judge.facts.kills import BY_KERNEL
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.sglang.loglines import Mark
from watchdog.units import format_gib as gib
from watchdog.wording import ago, quoted, span

MIB = 1024**2
UNKILLABLE_S = 120.0
FAILED_S = 90.0
"""A start that printed its fatal line needs so long to end by itself (5 s, py-spy, 60 s for core dumps; 0.5.13 and later)."""
DAY_S = 86400.0
SHOWN = 10
"""So many deaths are listed as evidence."""


def judge(f: Facts, policy: Restarting, now: float) -> Verdict:
    """The condition Restartable: a restart of the unit would find what it needs."""
    kind = "Restartable"
    calls = tuple(_vetoes(f, now))
    # A healthy member of a group is no ill server: this veto alone is no news.
    standing = tuple(group.judge(f, policy))
    if not calls:
        message = "Nothing is known that would make a restart useless."
        if standing:
            message += f" But: {standing[0].message}"
        reason = standing[0].reason if standing else "NothingAgainst"
        return Verdict(type=kind, status=Status.TRUE, reason=reason, message=message, calls=standing)
    first = calls[0]
    return Verdict(type=kind, status=Status.FALSE, reason=first.reason, message=first.message, calls=calls + standing)


def _vetoes(f: Facts, now: float) -> Iterator[Call]:
    yield from _port(f)
    yield from _gpu_holders(f)
    yield from _shm(f)
    yield from storage.judge(f, now)
    yield from _killed_for_memory(f, now)
    yield from _same_death(f, now)
    yield from _start_fails(f, now)
    yield from _unkillable(f, now)
    yield from _debugged(f, now)


def _not_up(f: Facts) -> bool:
    return f.life.phase() in (Phase.OFF, Phase.STARTING)


def _deaths(f: Facts) -> Sequence[Death]:
    """The deaths that bear upon a server that is not up: none where it is off, and who wanted that is not known."""
    known = f.life.phase() is Phase.STARTING or f.life.deaths.told(f.life.inv) is not None
    return f.life.deaths if known else ()


def _veto(reason: str, message: str, advice: str, evidence: tuple[str, ...] = (), *, unmet: bool) -> Call:
    return Call(
        want=Want.VETO, reason=reason, message=message, severity=Severity.CRITICAL, advice=advice, evidence=evidence, unmet=unmet
    )


def _port(f: Facts) -> Iterator[Call]:
    port = f.life.listener.stranger
    if port is None:
        return
    holder = f"pid {port.pid}" if port.pid else "a process"
    message = (
        f"{holder} outside the unit listens on {port.address}: the server would load for minutes and then fail to bind its port."
    )
    advice = f"End {holder} or give the server another port; a restart cannot."
    starting = f.life.phase() is Phase.STARTING or (f.life.phase() is Phase.OFF and bool(_deaths(f)))
    yield _veto("PortTaken", message, advice, (f"{port.address} is held by {holder}",), unmet=starting)


def _gpu_holders(f: Facts) -> Iterator[Call]:
    holders = f.devices.strangers()
    failed = [d for d in _deaths(f) if d.mark in (Mark.OUT_OF_MEMORY, Mark.MEMORY_UNBALANCED, Mark.CUDA_ERROR) and not d.ready]
    if not holders or not _not_up(f):
        return
    pids = sorted({pid for _, pid, _ in holders})
    size = sum(mem for _, _, mem in holders)
    shown = ", ".join(str(pid) for pid in pids[:8])
    message = (
        f"Another process holds {gib(size)} of GPU memory outside the unit (pid {shown}): the server has no room on its GPUs."
    )
    advice = f"End the left-over or foreign process (pid {shown}); a restart of the unit cannot reach it."
    yield _veto(
        "GpuMemoryTaken",
        message,
        advice,
        tuple(f"GPU {g.index}: pid {pid} holds {gib(m)}" for g, pid, m in holders),
        unmet=bool(failed),
    )


def _shm(f: Facts) -> Iterator[Call]:
    h = f.memory.host
    if h is None or not h.shm_total or h.shm_free is None or h.shm_free > max(64 * MIB, 0.005 * h.shm_total) or not _not_up(f):
        return
    message = f"/dev/shm is full: {gib(h.shm_free)} of {gib(h.shm_total)} are free, and starts need it."
    yield _veto("ShmFull", message, SHM_ADVICE, unmet=any(not d.ready and not d.asked for d in _deaths(f)))


SHM_ADVICE = "Remove the segments of dead processes from /dev/shm (ls -l /dev/shm); they outlive every restart."
ADVICE: dict[Mark, str] = {
    Mark.HOST_MEMORY_SHORT: (
        "Lower --hicache-ratio or --hicache-size (hierarchical cache), or free host memory; a restart asks for the same again."
    ),
    Mark.NO_SPACE: f"Make room where its last lines say: on a disk, or in /dev/shm. {SHM_ADVICE}",
    Mark.OUT_OF_MEMORY: "Lower --mem-fraction-static or the context length, or free the GPUs.",
    Mark.PORT_IN_USE: "Find who listens on that port (ss -ltnp) and end it, or take another port.",
    Mark.BAD_ARGUMENTS: "Correct the server's command line in its unit.",
    Mark.WARMUP_FAILED: (
        "Look for HTTP proxy variables in the unit's environment (set NO_PROXY=127.0.0.1,localhost), then at the warm-up error."
    ),
    Mark.MEMORY_UNBALANCED: "Find who holds GPU memory (nvidia-smi) and end it.",
    Mark.CUDA_ERROR: "Look at the kernel log for Xid lines and at the driver; the start will fail alike until its cause is gone.",
    Mark.HICACHE_TROUBLE: (
        "Check LimitMEMLOCK=infinity in the unit, and lower the host pool or SGLANG_HICACHE_HOST_REGISTER_CHUNK_GB."
    ),
}
PIN_ADVICE = (
    "It may be the pinning of the host pool (init_kv_buffer in the traceback): check LimitMEMLOCK=infinity in the unit, lower "
    "--hicache-ratio or --hicache-size; else look at the kernel log for Xid lines and at the driver."
)
"""cudaHostAlloc of a whole pool answers "invalid argument" where the unit's limits or the driver do not let it be pinned."""
SHARE_ADVICE = "Raise --mem-fraction-static (the message names the least), or free the GPUs: the weights leave the cache no room."
POOL_OOM_ADVICE = (
    "Lower the host pool (--hicache-ratio, --hicache-size) or the unit's other memory, or raise its "
    "MemoryMax=: the kernel's OOM killer ends it at the same peak each time."
)
OOM_ADVICE = (
    "Find what takes the memory: the kernel's report on the kill lists each process (journalctl -k). Free the host of it, or "
    "raise the unit's MemoryMax= if that was the limit: the kernel's OOM killer ends it at the same peak each time."
)
LASTING = (Mark.OUT_OF_MEMORY, Mark.HOST_MEMORY_SHORT, Mark.BAD_ARGUMENTS, Mark.PORT_IN_USE, Mark.MEMORY_UNBALANCED)
"""Causes that outlive the process: the next start would meet them again."""
BRIEF = 3
"""So many lives in a row of one cause, each of which served for a shorter time than it took to start, are a crash loop: the next
one would serve no longer."""
BRIEF_ADVICE = (
    "Find what ends it so soon after each start: its last lines name the error. A request that comes again and again may be the "
    "cause, or a device (kernel log). Restart it by hand once that is gone."
)
UNKNOWN_ADVICE = "Read the last lines of the failed start in the journal; a restart would end the same way."
AT_ONCE = (Mark.BAD_ARGUMENTS, Mark.HOST_MEMORY_SHORT)
"""Deaths that one look suffices to know: the next start would ask for the same and get the same."""


def _same_death(f: Facts, now: float) -> Iterator[Call]:
    """The same early death twice in a row is no accident, nor is a third brief life: what it needs is missing."""
    if not _not_up(f) and not f.life.looping(now):
        return
    if f.life.phase() is Phase.STARTING and f.life.dying_at is None and _retrying(f, now):
        return
    # "killed with status 9" is the same each time, and no cause: the last lines are waited for.
    early = f.life.deaths.early()
    same = alike([d for d in early if d.mark in LASTING or now - d.t >= LAST_LINES_S])
    if not same:
        return
    last = next((d for d in reversed(same) if d.mark is not None), same[-1])
    once = last.mark in AT_ONCE or _proxied(f, last) or last.signature == "start timeout"
    need = 1 if once else 3 if last.mark is Mark.HICACHE_TROUBLE else 2
    starts = list(takewhile(lambda d: not d.ready, reversed(same)))
    if len(starts) < need and len(same) < BRIEF:
        return
    text = quoted(last.text) if last.text else ending(last.code)
    many = max(count(same), count(alike(early)))
    times = "of what the next one would meet again" if len(same) == 1 else f"{many} times in a row of the same cause"
    brief = len(starts) < len(same)
    message = f"It has died {times}, soon after each start: {text}." if brief else f"The start has died {times}: {text}."
    advice = BRIEF_ADVICE if last.ready and last.killed is None else start_advice(f, last) or UNKNOWN_ADVICE
    # The first death alone withholds only what systemd itself has given up: it may still be lucky.
    unmet = len(same) >= 2 or f.life.down
    yield _veto(
        "SameEarlyDeath",
        message,
        advice,
        tuple(f"{_lived(d)}: {ending(d.signature)}" for d in same[-SHOWN:]),
        unmet=unmet,
    )


def _lived(d: Death) -> str:
    return "after an unknown time" if d.lived_s is None else f"after {span(d.lived_s)}"


def _retrying(f: Facts, now: float) -> bool:
    """Whether the present start has already outlived the deaths before it."""
    lived = [d.lived_s for d in f.life.deaths.early() if d.lived_s is not None]
    since = f.life.since
    return bool(lived) and since is not None and now - since > 1.5 * max(lived) + 30


def _proxied(f: Facts, d: Death) -> bool:
    """A warm-up that got an answer which SGLang never gives, or a proxy that it may have gone through."""
    env = f.life.server.env if f.life.server is not None else {}
    proxy = any(name.upper() in ("HTTP_PROXY", "ALL_PROXY") for name in env)
    return d.mark is Mark.WARMUP_FAILED and (proxy or "502" in d.text or "Response [5" in d.text or "roxy" in d.text)


def _share_too_small(text: str) -> bool:
    """Whether the weights leave the KV cache no room within the share (kv_cache_configurator.py, pool_configurator.py)."""
    return any(f"{word} --mem-fraction-static" in text.lower() for word in ("raise", "increase"))


def start_advice(f: Facts, d: Death) -> str | None:
    """What helps against what a start died of; None where that is not known."""
    if d.signature == "oom-kill":
        return oom_advice(f)
    if "is not available in" in d.text or "EADDRINUSE" in d.text:
        return ADVICE[Mark.PORT_IN_USE]
    if _share_too_small(d.text):
        return SHARE_ADVICE
    if d.signature == "start timeout":
        return "Raise TimeoutStartSec= in the server's unit: the start gets on, but takes longer than that."
    if d.mark is Mark.CUDA_ERROR:
        fabric = f.devices.fabric_said()
        # A fabric manager that failed on a host without NVSwitches explains nothing.
        if "system not yet initialized" in d.text or f.devices.without_fabric():
            return f"{fabric[:1].upper()}{fabric[1:]}. {FABRIC_ADVICE}" if fabric is not None else FABRIC_ADVICE
        if "invalid argument" in d.text and f.life.arg("enable_hierarchical_cache", False):
            return PIN_ADVICE
    return ADVICE.get(d.mark) if d.mark is not None else None


def oom_advice(f: Facts) -> str:
    """What helps against the OOM killer: there is a host pool to lower only where hicache is on, or may be."""
    off = f.life.server is not None and not f.life.arg("enable_hierarchical_cache", False)
    return OOM_ADVICE if off else POOL_OOM_ADVICE


def _killed_for_memory(f: Facts, now: float) -> Iterator[Call]:
    """The same peak comes each time: one kill may be an accident, the second is the footprint."""
    kills = [d for d in f.life.deaths if d.killed == BY_KERNEL and not d.asked and now - d.t < DAY_S]
    if len(kills) < 2 or not _not_up(f):
        return
    many = sum(1 + d.before for d in kills)
    message = f"The kernel has killed it for want of memory {many} times in 24 h, the last time {ago(now - kills[-1].t)}."
    evidence = tuple(f"oom-kill {_lived(d)}" for d in kills)
    yield _veto("KilledForMemory", message, oom_advice(f), evidence, unmet=True)


def _start_fails(f: Facts, now: float) -> Iterator[Call]:
    """A start that dies of something that the next one would meet again, and whose main process does not end."""
    life = f.life
    if life.phase() is not Phase.STARTING or life.dying_at is None or life.cause is None or now - life.dying_at < FAILED_S:
        return
    if life.cause.mark not in LASTING:
        return
    advice = SHARE_ADVICE if _share_too_small(life.cause.message) else ADVICE[life.cause.mark]
    said = quoted(life.cause.message)
    message = f"The start failed {ago(now - life.dying_at)} and its main process has not ended: {said}."
    yield _veto("StartFailed", message, f"{advice} Then restart it by hand.", unmet=True)


def _unkillable(f: Facts, now: float) -> Iterator[Call]:
    u = f.life.unit
    if f.life.down and f.ranks.left:
        names = ", ".join(f"{x.name} (pid {x.pid}, state {x.state or 'unknown'})" for x in f.ranks.left[:4])
        message = f"systemd holds the unit to be down, but SIGKILL did not end {names}: a new start would find its GPU taken."
        death = f.life.deaths.told(f.life.inv)
        unmet = death is not None and not death.asked
        yield from _reboot(message, unmet=unmet)
        return
    if u is None or u.active_state != "deactivating" or f.life.stopping_since is None:
        return
    # A drain may last (TimeoutStopSec=infinity). While systemd says that it waits after SIGTERM, only we can have sent SIGKILL.
    killed = "sigkill" in u.sub_state if u.sub_state else u.timeout_stop_s is not None
    if not killed and not f.life.ours:
        return
    lasting = now - f.life.stopping_since
    limit = (u.timeout_stop_s or 90.0) + UNKILLABLE_S
    left = f.ranks.last.procs if f.ranks.last is not None else []
    if lasting < limit or not left:
        return
    names = ", ".join(f"{x.name} (pid {x.pid}, state {x.state or 'unknown'})" for x in left[:4])
    message = f"The stop has lasted {span(lasting)} and SIGKILL did not end {names}: stuck in the kernel."
    yield from _reboot(message, unmet=True)


def _debugged(f: Facts, now: float) -> Iterator[Call]:
    """A debugger is a person at work, whose process the restart would end."""
    held = [x for x in f.ranks.halted(now) if x.state == "t"]
    if not held:
        return
    names = ", ".join(f"{x.name} (pid {x.pid})" for x in held[:4])
    message = f"A debugger holds {names}: it answers nobody until it is let go."
    yield _veto("UnderDebugger", message, "Detach the debugger (its pid is TracerPid in /proc/PID/status).", unmet=False)


def _reboot(message: str, *, unmet: bool) -> Iterator[Call]:
    veto = _veto("Unkillable", message, "Reboot the host: a process that survives SIGKILL ends with nothing else.", unmet=unmet)
    yield veto
    yield structs.replace(veto, want=Want.ALERT, unmet=False)
