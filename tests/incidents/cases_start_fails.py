"""Starts that die of what the next one would meet again, and those that die by chance."""

from typing import Any

from tests.incidents.case import MAY, case, must
from tests.incidents.sim import Sim

GIB = 1024**3


def fails(s: Sim, step: str, error: str, *, times: int = 99, status: int = 9, code: str = "killed", bare: bool = False) -> None:
    """Every start dies in `step` with `error`, so many times."""
    count = [0]

    def last_words() -> None:
        if bare:
            s.log(error, "bare")
        else:
            s.exception(error)
            s.log("Received sigquit from a child process. It usually means the child failed.")

    def how() -> dict[str, Any]:
        count[0] += 1
        return {"die": step, "last_words": last_words, "status": status, "code": code} if count[0] <= times else {}

    s.next_start = how  # type: ignore[method-assign]
    s.at(20, lambda: s.boot(**how()))


@case("sgl-cudahostregister-crashloop", until=1500, variants=("plain",), mid_life=False)
def pinning_fails_once(s: Sim) -> None:
    fails(s, "warmup", "RuntimeError: cudaHostRegister failed (rc=1, invalid argument) at offset=0 size=34760392704", times=1)


@case(
    "sgl-cudahostregister-crashloop",
    until=2600,
    variants=("plain",),
    mid_life=False,
    restart=MAY,
    withhold=must(600, 2400, "chunk", "memlock", "host"),
    burst=3,
)
def pinning_fails_always(s: Sim) -> None:
    fails(s, "warmup", "RuntimeError: cudaHostRegister failed (rc=1, invalid argument) at offset=0 size=34760392704")


@case(
    "sgl-shm-leak-permanent-crashloop",
    until=1500,
    variants=("plain", "0.5.9"),
    mid_life=False,
    withhold=must(60, 900, "/dev/shm", "shm"),
)
def dev_shm_full(s: Sim) -> None:
    s.looks.shm_free_ratio = 0.0
    fails(s, "weights", "OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_1'")


@case("sgl-orphan-holds-rpc-port", until=1500, variants=("plain", "0.5.9"), mid_life=False, withhold=must(50, 900, "find who"))
def derived_port_taken_as_the_main_process_finds_out(s: Sim) -> None:
    """No scheduler runs yet: nothing is said but a traceback."""
    error = (
        "ValueError: rpc_port at 31233 is not available in 30 seconds. rpc_port is used by a process already. process.name()='x'"
    )
    fails(s, "init", error, code="exited", status=1, bare=True)


@case("bad-path", until=1500, variants=("plain", "0.5.9"), mid_life=False, withhold=must(50, 900, "/models/templates/tool.jinja"))
def main_process_dies_of_an_exception(s: Sim) -> None:
    """Whatever ends it, the last line of its traceback says so."""
    error = "FileNotFoundError: [Errno 2] No such file or directory: '/models/templates/tool.jinja'"
    fails(s, "init", error, code="exited", status=1, bare=True)


@case(
    "sgl-shm-leak-permanent-crashloop",
    until=1200,
    variants=("plain", "0.5.9"),
    mid_life=False,
    withhold=must(100, 900, "/dev/shm"),
)
def no_room_in_shared_memory(s: Sim) -> None:
    """There is room whenever we look: only the line after the exception names the cause."""
    error = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.27.7"
    cause = "Error while creating shared memory segment /dev/shm/nccl-7cT5rX (size 33030528), error: No space left on device (28)"
    fails(s, "init", f"{error}\n{cause}")


@case("gpu-off-bus-without-xid", until=1500, variants=("plain",), mid_life=False, withhold=must(50, 1200, "reboot", "bus", "gpu"))
def gpu_lost_at_start(s: Sim) -> None:
    s.looks.gpu_missing = {5}
    fails(s, "init", "RuntimeError: CUDA error: no CUDA-capable device is detected")


@case(
    "sgl-hicache-half-of-ram",
    until=2400,
    variants=("plain", "0.5.9", "one-gpu"),
    mid_life=False,
    withhold=must(150, 1400, "host memory", "hicache", "ratio"),
)
def host_pool_refused(s: Sim) -> None:
    fails(
        s,
        "warmup",
        "ValueError: Not enough host memory available. Requesting 44.77 GB but only have 44.20 GB free. Please reduce the size of the hierarchical cache.",
    )


@case(
    "sgl-orphans-escape-cgroup",
    until=1800,
    variants=("plain", "0.5.9", "one-gpu", "no-metrics"),
    mid_life=False,
    withhold=must(100, 1300, "pid", "process", "holds"),
)
def strangers_hold_the_gpus(s: Sim) -> None:
    s.looks.strangers = [(3321, 80 * GIB)]
    fails(
        s,
        "pool",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 0 has a total capacity of 95.59 GiB of which 412.00 MiB is free.",
    )


@case("sgl-orphan-holds-rpc-port", until=1500, variants=("plain", "0.5.9"), mid_life=False, withhold=must(50, 900, "port"))
def derived_port_taken(s: Sim) -> None:
    fails(
        s,
        "init",
        "ValueError: rpc_port at 31233 is not available in 30 seconds. rpc_port is used by a process already. process.name()='sglang::scheduler'",
        code="exited",
        status=1,
    )


@case("nccl-eaddrinuse", until=1200, variants=("plain",), mid_life=False)
def rendezvous_port_taken_once(s: Sim) -> None:
    fails(
        s,
        "weights",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        times=1,
    )


@case("nccl-eaddrinuse", until=1500, variants=("plain", "0.5.9"), mid_life=False, withhold=must(150, 900, "port"))
def rendezvous_port_taken_always(s: Sim) -> None:
    fails(
        s,
        "weights",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    )


@case(
    "sgl-port-bound-only-after-load",
    until=2000,
    variants=("plain", "0.5.9", "one-gpu"),
    mid_life=False,
    withhold=must(20, 1500, "port", "listen"),
)
def port_taken_by_a_stranger(s: Sim) -> None:
    s.looks.stranger_port = 1877
    fails(
        s,
        "ready",
        "[2026-01-14 02:05:00] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
        bare=True,
        status=3,
        code="exited",
    )


@case(
    "bad arguments",
    until=900,
    variants=("plain", "0.5.9"),
    mid_life=False,
    withhold=must(20, 600, "command line", "argument", "unit"),
)
def bad_arguments(s: Sim) -> None:
    fails(
        s,
        "imports",
        "launch_server.py: error: unrecognized arguments: --enable-hirarchical-cache",
        bare=True,
        status=2,
        code="exited",
    )


@case(
    "nvml-driver-mismatch", until=1500, variants=("plain",), mid_life=False, withhold=must(60, 1200, "driver", "reboot", "module")
)
def driver_mismatch_at_start(s: Sim) -> None:
    s.looks.gpu_error = "version_mismatch"
    fails(
        s,
        "init",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver combination",
        code="exited",
        status=1,
    )
