"""The helper process that calls NVML, so that a driver that never answers wedges it and not the daemon.

It is run by its path (`python -P nvml_helper.py PARENT_PID`) and imports nothing of ours, to stay small. Standard input and
output are one socket: for each line that it reads, it makes one round over all GPUs and writes one line of JSON,
`{"error": null | word, "count": GPUs that NVML knows, "gpus": [fields of observation.GpuDevice]}`. Units are those of GpuDevice.

A value that NVML cannot give is null. After an error the helper ends: NVML keeps its view of the devices from its
initialisation, and an open handle would stand in the way of `nvidia-smi --gpu-reset`; the source starts another helper later.
Calls and units: NVIDIA's NVML API reference (docs.nvidia.com/deploy/nvml-api), nvidia-ml-py 12.560 and later.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml as nvml

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that we get when the thread that started us ends."""

SLOW_EVERY = 12
"""What changes rarely (retired rows, fabric, links) is asked in every so many rounds: once a minute at 5 s."""

THROTTLE_NAMES = (
    (0x001, "idle"),
    (0x002, "app_clocks"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal"),
    (0x040, "hw_thermal"),
    (0x080, "hw_power_brake"),
    (0x100, "display"),
)
"""nvml.h, nvmlClocksEventReasons: bit → the word of the flight record."""

ABSENT = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
GONE = {nvml.NVML_ERROR_GPU_IS_LOST: "lost", nvml.NVML_ERROR_RESET_REQUIRED: "reset_required"}
WORDS = {
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no_driver",
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: "no_driver",
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "version_mismatch",
    **GONE,
}
"""nvmlReturn_t → the error word of a `gpu` observation."""


class GoneError(Exception):
    """The device does not answer any more; `args[0]` is the error word."""


def word(error: nvml.NVMLError) -> str:
    """What an NVML error is called in an observation."""
    return WORDS.get(error.value, f"NVML: {error}")


class Device:
    """One GPU: what is fixed about it, and how to read the rest.

    Raises:
        pynvml.NVMLError: NVML has no handle for it.
        GoneError: it is lost.
    """

    def __init__(self, index: int) -> None:
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._absent: set[str] = set()
        self._linked = False
        self.fixed = {
            "index": index,
            "uuid": self._read("uuid", lambda: nvml.nvmlDeviceGetUUID(self.handle)),
            "pci": self._read("pci", self._pci),
            "sm_max_mhz": self._read("sm_max", lambda: nvml.nvmlDeviceGetMaxClockInfo(self.handle, nvml.NVML_CLOCK_SM)),
            "mig": self._read("mig", lambda: nvml.nvmlDeviceGetMigMode(self.handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE),
        }
        self._links = self._read("links", self._link_count) or 0
        self._slow: dict[str, Any] = {}

    def _read(self, name: str, call: Callable[[], Any]) -> Any:
        """The value, or None where NVML cannot give it; what the device does not support is not asked again."""
        if name in self._absent:
            return None
        try:
            return call()
        except nvml.NVMLError as e:
            if e.value in GONE:
                raise GoneError(GONE[e.value]) from e
            if e.value in ABSENT:
                self._absent.add(name)
            return None

    def values(self, *, slow: bool) -> dict[str, Any]:
        """Everything about this GPU now; `slow` also asks what changes rarely.

        Raises:
            GoneError: it is lost or needs a reset.
        """
        h, read = self.handle, self._read
        if slow or not self._slow:
            self._slow = {
                "retired_pending": self._retired_pending(),
                "fabric": read("fabric", self._fabric),
                "nvlinks_down": self._links_down(),
            }
        memory = read("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(h))
        util = read("util", lambda: nvml.nvmlDeviceGetUtilizationRates(h).gpu)
        return {
            **self.fixed,
            **self._slow,
            "util": None if util is None else util / 100,
            "mem_used": memory and memory.used,
            "mem_total": memory and memory.total,
            "power_w": _thousandth(read("power", lambda: nvml.nvmlDeviceGetPowerUsage(h))),
            "power_limit_w": _thousandth(read("limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(h))),
            "temp_c": read("temp", lambda: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)),
            "sm_mhz": read("sm", lambda: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),
            "throttle": self._throttle(),
            "throttle_s": self._throttle_s(),
            "ecc_uncorrected": read(
                "ecc",
                lambda: nvml.nvmlDeviceGetTotalEccErrors(h, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
            ),
            "procs": read("procs", self._procs),
        }

    def _pci(self) -> str:
        # NVML says 00000000:16:00.0, the kernel and the flight record 0000:16:00.0
        return str(nvml.nvmlDeviceGetPciInfo(self.handle).busId).lower()[-12:]

    def _throttle(self) -> list[str] | None:
        bits = self._read("reasons", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle))
        if bits is None:  # drivers before 535 know it by its older name
            bits = self._read("reasons-old", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))
        return None if bits is None else [name for bit, name in THROTTLE_NAMES if bits & bit]

    def _throttle_s(self) -> dict[str, float] | None:
        seconds = {}
        for name, policy in (("power", nvml.NVML_PERF_POLICY_POWER), ("thermal", nvml.NVML_PERF_POLICY_THERMAL)):
            time = self._read(name, partial(nvml.nvmlDeviceGetViolationStatus, self.handle, policy))
            if time is not None:
                seconds[name] = time.violationTime / 1e9  # nanoseconds
        return seconds or None

    def _retired_pending(self) -> bool | None:
        """Whether rows (Ampere and later) or pages (before) wait for a reset to be remapped or retired."""
        rows = self._read("rows", lambda: nvml.nvmlDeviceGetRemappedRows(self.handle)[2])
        pages = self._read("pages", lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(self.handle))
        return None if rows is None and pages is None else bool(rows or pages)

    def _fabric(self) -> str | None:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(self.handle, ctypes.byref(info))
        if info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED:
            return "completed" if info.status == nvml.NVML_SUCCESS else "failed"
        return {nvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not_started", nvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in_progress"}.get(
            info.state
        )

    def _link_count(self) -> int:
        value = nvml.nvmlDeviceGetFieldValues(self.handle, [nvml.NVML_FI_DEV_NVLINK_LINK_COUNT])[0]
        return min(value.value.uiVal, nvml.NVML_NVLINK_MAX_LINKS) if value.nvmlReturn == nvml.NVML_SUCCESS else 0

    def _links_down(self) -> int | None:
        """How many links are inactive; None for a card whose links are all unused, as without a bridge."""
        states = [self._read(f"link{i}", partial(nvml.nvmlDeviceGetNvLinkState, self.handle, i)) for i in range(self._links)]
        known = [state for state in states if state is not None]
        self._linked = self._linked or any(known)
        return known.count(0) if self._linked else None

    def _procs(self) -> list[dict[str, Any]]:
        return [{"pid": p.pid, "mem": p.usedGpuMemory} for p in nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)]


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1000


class Round:
    """All GPUs, read again and again."""

    def __init__(self) -> None:
        self._devices: dict[int, Device] = {}
        self._count: int | None = None
        self._rounds = 0

    def read(self) -> dict[str, Any]:
        """One answer; errors of NVML are in it."""
        gpus: list[dict[str, Any]] = []
        error = None
        try:
            if self._count is None:
                nvml.nvmlInit()
                self._count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as e:
            return {"error": word(e), "count": self._count, "gpus": gpus}
        for index in range(self._count):
            try:
                if index not in self._devices:
                    self._devices[index] = Device(index)
                gpus.append(self._devices[index].values(slow=self._rounds % SLOW_EVERY == 0))
            except GoneError as e:
                error = str(e)
            except nvml.NVMLError as e:
                error = error or word(e)
        self._rounds += 1
        return {"error": error, "count": self._count, "gpus": gpus}


def main() -> None:
    """Answer until our parent closes the socket or dies, or NVML fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which then closes the socket
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before prctl
        return
    every = Round()
    for _ in sys.stdin:
        answer = every.read()
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        sys.stdout.flush()
        if answer["error"]:
            return


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the daemon is gone
        os._exit(0)
