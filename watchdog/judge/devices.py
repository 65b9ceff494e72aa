"""GPUs and their driver: what they are worth as evidence, and when they make a restart useless."""

from collections.abc import Mapping

from msgspec import structs

from watchdog.judge import motion
from watchdog.judge.facts import Facts
from watchdog.judge.facts.devices import FRESH_S, POLLS, Devices
from watchdog.judge.facts.gpu_memory import ERRORS, Ailing, key_of
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.units import GIB
from watchdog.units import format_gib as gib
from watchdog.wording import counted, span

VIOLATED = 0.2
"""Thermal violation time: such a part of the last minutes is worth a word."""
FABRIC_S = 120.0
"""The fabric's state is asked for once a minute, and fails for a moment after each boot."""
FABRIC_ADVICE = (
    "Bring the NVLink fabric up first: systemctl status nvidia-fabricmanager, its version against the driver's, the kernel log "
    "for SXid lines; then reset the GPUs or reboot the host."
)
SLOW_S = 300.0
"""A driver that has not answered for so long is not slow."""


UNREAD = {
    "no_driver": "No NVIDIA driver is loaded on this host: GPUs are not looked at.",
    "driver_timeout": "The NVIDIA driver has not answered in time.",
    "version_mismatch": "The NVIDIA driver and its library have different versions.",
    "lost": "NVML says that a GPU is lost.",
    "reset_required": "NVML says that a GPU needs a reset.",
}
"""By what NVML's helper says where GPUs cannot be read."""


def _unread(error: str | None) -> str:
    return UNREAD.get(error or "", f"GPUs cannot be read: {error or 'no reason was given'}.")


def judge(f: Facts, now: float) -> Verdict:
    """The condition DevicesHealthy."""
    verdict = _devices(f)
    due = _reset_due(f.devices, now)
    if due is not None:
        if verdict.status is not Status.FALSE:
            verdict = structs.replace(verdict, status=Status.FALSE, reason=due.reason, message=due.message)
        verdict = structs.replace(verdict, calls=(*verdict.calls, due))
    life = f.life
    if life.down and (life.stop_asked_at is not None or life.deaths.asked(life.inv)):
        # Who has stopped the server may reset GPUs, or change the driver. What is still so when it is started is told then.
        verdict = structs.replace(verdict, calls=tuple(structs.replace(x, quiet=True) for x in verdict.calls))
    return verdict


def _reset_due(d: Devices, now: float) -> Call | None:
    """Errors in the memory of GPUs that go on working: nothing to be done at once, and no restart of the server mends them."""
    # A GPU of which more is wrong is told of for that, unless this was told first: it is not over then.
    faults = {fact.pci: at for at, fact in d.latched.values() if fact.pci is not None}
    found = [x for x in d.gpu_memory.ailing(now) if x.key not in faults or faults[x.key] > x.begun]
    if not found:
        return None
    index = {key_of(g): g.index for g in d.good.gpus if g.pci} if d.good is not None else {}
    worst = found[0]
    more = f"; likewise {counted(len(found) - 1, 'other GPU')}" if len(found) > 1 else ""
    gpu = worst.key.removeprefix("GPU ")
    advice = (
        "The server can go on meanwhile. At the next occasion reset the GPU: stop the server and this watchdog (both hold it "
        f"open), run nvidia-smi --gpu-reset -i {gpu}; a restart of the server alone changes nothing. If that fails or errors "
        "come again, see nvidia-smi -q -d ECC,ROW_REMAPPER and have the GPU replaced."
    )
    return Call(
        want=Want.ALERT,
        reason="GpuResetDue",
        message=f"{_ailing(worst, index)}{more}.",
        advice=advice,
        evidence=tuple(_ailing(x, index) for x in found[:8]),
        at=max(x.begun for x in found),
    )


def _ailing(x: Ailing, index: Mapping[str, int]) -> str:
    """What is known of a GPU with errors in its memory, as a sentence without its full stop."""
    known = index.get(x.key)
    name = f"GPU {known} ({x.key})" if known is not None else x.key if x.key.startswith("GPU") else f"GPU {x.key}"
    said = []
    if x.counted > 1:
        said.append(f"has counted {x.counted} uncorrectable memory errors")
    elif x.counted or ERRORS & set(x.xids):
        said.append("had an uncorrectable memory error")
    if x.waits():
        said.append("waits for a reset: part of its memory is marked to be replaced")
    told = f" (Xid {', '.join(str(n) for n in x.xids)})" if x.xids else ""
    return f"{name} {' and '.join(said)}{told}"


def _devices(f: Facts) -> Verdict:
    kind = "DevicesHealthy"
    d = f.devices
    fault = _fault(f)
    if fault is not None:
        veto, alert = fault
        unasked = f.life.deaths.told(f.life.inv) is not None and any(not x.asked for x in f.life.deaths)
        if f.life.down or (f.life.phase() is Phase.OFF and unasked):
            veto = structs.replace(veto, unmet=unasked)
        return Verdict(type=kind, status=Status.FALSE, reason=alert.reason, message=alert.message, calls=(veto, alert))
    if d.last is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotSeen", message="No GPU has been looked at.")
    if not d.last.ok:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotReadable", message=_unread(d.last.error))
    fabric = _fabric(f)
    if fabric is not None:
        return Verdict(type=kind, status=Status.FALSE, reason=fabric.reason, message=fabric.message, calls=(fabric,))
    leak = _leak(d)
    if leak is not None:
        return Verdict(type=kind, status=Status.FALSE, reason=leak[0].reason, message=leak[0].message, calls=leak)
    slow = d.throttled()
    if slow is not None:
        call = Call(
            want=Want.ALERT, reason="GpuThrottled", message=slow.message, advice=slow.advice, evidence=tuple(slow.evidence)
        )
        return Verdict(type=kind, status=Status.FALSE, reason="GpuThrottled", message=slow.message, calls=(call,))
    bursts = [(share, index) for index, share in d.violated.items() if share >= VIOLATED]
    if bursts:
        share, index = max(bursts)
        message = f"GPU {index} was slowed down by heat for {share:.0%} of the last minutes, in bursts between the looks."
        advice = "Check the cooling: fans, air flow, dust, the inlet temperature. A restart of the server does not help."
        call = Call(want=Want.ALERT, reason="GpuThrottled", message=message, advice=advice)
        return Verdict(type=kind, status=Status.FALSE, reason="GpuThrottled", message=message, calls=(call,))
    return Verdict(
        type=kind, status=Status.TRUE, reason="Healthy", message=f"{counted(len(d.last.gpus), 'GPU')}, none lost, none held back."
    )


def _fault(f: Facts) -> tuple[Call, Call] | None:
    """What makes a restart useless or dangerous: a veto, and the alert that goes with it."""
    d = f.devices
    if d.latched:
        at, fact = next(iter(d.latched.values()))
        return _both("DeviceFault", f"{fact.sentence} (kernel log)", fact.advice, (f"kernel line at {at:.0f}",))
    if d.error == "version_mismatch":
        message = (
            "The NVIDIA user-space library and the loaded kernel module differ: a running server goes on, but no "
            "start will succeed."
        )
        return _both(
            "DriverMismatch", message, "Reboot, or reload the kernel module, when it suits; do not restart the server before.", ()
        )
    if d.error == "driver_timeout" and d.bad_rounds >= POLLS:
        message = "The NVIDIA driver does not answer: calls into it never return."
        advice = "Reboot the host; a restart of the server would hang in the driver too."
        veto, alert = _both("DriverWedged", message, advice, ())
        return veto, _only_slow(f) or alert
    if d.error == "lost" and d.bad_rounds >= POLLS:
        return _both(
            "DeviceLost", "NVML reports a lost GPU.", "Reboot or power-cycle the host: only that brings a lost GPU back.", ()
        )
    if d.error == "no_driver" and d.most and d.bad_rounds >= POLLS:
        return _both(
            "DriverGone",
            "The NVIDIA driver is no longer loaded.",
            "Load the driver (or reboot) before the server is started.",
            (),
        )
    count = len(d.good.gpus) if d.good is not None else d.most
    if d.good is not None and d.bad_rounds >= POLLS and count < d.most:
        message = f"Only {count} of {d.most} GPUs are there: one has fallen off the bus."
        return _both(
            "DeviceLost",
            message,
            "Reboot or power-cycle the host: only that brings a lost GPU back.",
            (f"{count} of {d.most} GPUs",),
        )
    return None


def _only_slow(f: Facts) -> Call | None:
    """The alert while the driver may be only slow: the engine goes on, or has nothing to do; None where it is more than that."""
    d = f.devices
    if d.last is None or d.bad_since is None or f.life.phase() is not Phase.SERVING or d.last.t - d.bad_since >= SLOW_S:
        return None
    moved = motion.last_motion(f)
    still = f.work.in_hand(d.last.t) and not (moved > d.bad_since and d.last.t - moved < FRESH_S)
    if still or f.probes.failures_since(max(moved, d.bad_since - FRESH_S)):
        return None
    return Call(
        want=Want.ALERT,
        reason="DriverSlow",
        message="The NVIDIA driver has not answered several times in a row, and nothing else says that the engine stands still.",
        advice="Wait; if it goes on, the driver is stuck, and no restart of the server will get through it.",
    )


def _both(reason: str, message: str, advice: str | None, evidence: tuple[str, ...]) -> tuple[Call, Call]:
    veto = Call(want=Want.VETO, reason=reason, message=message, severity=Severity.CRITICAL, advice=advice, evidence=evidence)
    alert = Call(want=Want.ALERT, reason=reason, message=message, severity=Severity.CRITICAL, advice=advice, evidence=evidence)
    return veto, alert


def _fabric(f: Facts) -> Call | None:
    """A fabric that stays failed while the server does not come up: on hosts with NVSwitches CUDA cannot start without it."""
    d = f.devices
    if f.life.phase() is not Phase.STARTING and not (f.life.phase() is Phase.OFF and f.life.deaths.early()):
        return None
    said = d.fabric_said()
    if said is None or d.last is None or d.fabric_failed_at is None or d.last.t - d.fabric_failed_at < FABRIC_S:
        return None
    message = f"The server is not up, and {said}."
    return Call(want=Want.ALERT, reason="FabricFailed", message=message, advice=FABRIC_ADVICE)


def _leak(d: Devices) -> tuple[Call, ...] | None:
    """Device memory is flat after the start: a steady climb ends in an out-of-memory error."""
    worst: tuple[float, str, float] | None = None
    for index, series in d.memory.items():
        climb = series.climb(2 * GIB, 900.0)
        if climb is None or d.good is None:
            continue
        device = next((g for g in d.good.gpus if g.index == index), None)
        if device is None or device.mem_total is None or device.mem_used is None:
            continue
        room = device.mem_total - device.mem_used
        left = room / climb.per_s
        if climb.reaches(left) and climb.ahead >= room and (worst is None or left < worst[0]):
            worst = (
                left,
                f"GPU {index} holds {gib(climb.grown)} more than after the start and grows by {gib(climb.per_s * 3600)} an hour",
                left,
            )
    if worst is None or worst[0] > 24 * 3600:
        return None
    message = f"{worst[1]}; it is full in {span(worst[0])}."
    advice = "Restart the server in a quiet moment before it runs out of GPU memory."
    alert = Call(want=Want.ALERT, reason="GpuMemoryLeak", message=message, advice=advice)
    if worst[0] < 4 * 3600:
        return (alert, Call(want=Want.PLAN_RESTART, reason="GpuMemoryLeak", message=message, advice=advice))
    return (alert,)
