"""The GPUs, where there are any. Pure."""

from watchdog.observation import Gpu, GpuDevice
from watchdog.units import format_gib
from watchdog.verify.findings import Item, bad, odd, ok, unknown
from watchdog.verify.seen import Seen
from watchdog.wording import counted

AREA = "GPU"
NO_DRIVER = "no_driver"
CURES = {
    "driver_timeout": "the driver does not answer: look at the kernel log for Xid lines; it may need a reset of the host",
    "version_mismatch": "driver and library differ after an upgrade: reboot, or load the new driver",
    "lost": "a GPU has fallen off the bus: a restart of the server does not help; reset the GPU or the host",
    "reset_required": "a GPU must be reset: nvidia-smi -r, or reboot the host",
}


def check(seen: Seen) -> list[Item]:
    """The findings of the GPUs; none on a host without a driver where none are expected."""
    gpu = seen.gpu
    if gpu is None:
        return []
    if gpu.error == NO_DRIVER:
        if not seen.gpus_expected:
            return []
        return [bad(AREA, "driver", counted(seen.gpus_expected, "GPU"), "no driver is loaded", "look at: nvidia-smi, dmesg")]
    items = [count(seen, gpu)]
    if gpu.gpus:
        items += [state(gpu), users(gpu)]
    return items


def count(seen: Seen, gpu: Gpu) -> Item:
    """Whether all of them are there."""
    wanted = seen.gpus_expected or seen.ranks
    expected = f"{wanted} or more" if wanted and not seen.gpus_expected else f"{wanted or 'all'}"
    if not gpu.ok:
        error = gpu.error or "an error without a name"
        return bad(AREA, "GPUs", expected, f"NVML says: {error}", CURES.get(error, "look at: nvidia-smi, dmesg"))
    found = len(gpu.gpus)
    if seen.gpus_expected and found != seen.gpus_expected:
        return bad(AREA, "GPUs", expected, str(found), "a GPU may be lost: look at nvidia-smi and dmesg")
    if wanted is None:
        return ok(AREA, "GPUs", "some", str(found))
    if found < wanted and not any(g.mig for g in gpu.gpus):
        return odd(AREA, "GPUs", expected, str(found), "compare --tp-size with the GPUs of this host")
    return ok(AREA, "GPUs", expected, str(found))


def state(gpu: Gpu) -> Item:
    """What NVML holds against any of them."""
    expected = "no lasting error, no link down"
    complaints = [f"GPU {g.index}: {said}" for g in gpu.gpus for said in _complaints(g)]
    if complaints:
        return odd(AREA, "GPU state", expected, "; ".join(complaints[:4]), "plan a reset or a replacement")
    if all(g.ecc_uncorrected is None and g.temp_c is None for g in gpu.gpus):
        return unknown(AREA, "GPU state", expected, "NVML does not tell it here")
    hottest = max((g.temp_c for g in gpu.gpus if g.temp_c is not None), default=None)
    return ok(AREA, "GPU state", expected, "none" + ("" if hottest is None else f", {hottest:.0f} °C at most"))


def _complaints(g: GpuDevice) -> list[str]:
    said = []
    if g.ecc_uncorrected:
        said.append(f"{g.ecc_uncorrected} uncorrected memory errors")
    if g.retired_pending:
        said.append("memory waits to be retired")
    if g.nvlinks_down:
        said.append(f"{g.nvlinks_down} NVLinks down")
    return said


def users(gpu: Gpu) -> Item:
    """Who holds memory of them."""
    expected = "memory held by this unit only"
    strangers = [(g.index, p) for g in gpu.gpus for p in g.procs or () if p.in_unit is False]
    used = sum(g.mem_used or 0 for g in gpu.gpus)
    if strangers:
        index, proc = strangers[0]
        size = f" ({format_gib(proc.mem)})" if proc.mem else ""
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        return odd(
            AREA,
            "GPU memory",
            expected,
            f"GPU {index}: pid {proc.pid}{size} is of another unit{more}",
            "end it if it is a leftover",
        )
    if not any(p.in_unit for g in gpu.gpus for p in g.procs or ()):
        return unknown(AREA, "GPU memory", expected, f"{format_gib(used)} in use; whose it is is not to be seen")
    return ok(AREA, "GPU memory", expected, f"{format_gib(used)} in use")
