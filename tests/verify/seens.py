"""A server that is well, as `verify` would see it: eight ranks with a host pool and a draft model."""

from typing import Any

import msgspec

from watchdog import config
from watchdog.observation import (
    Answer,
    Cgroup,
    Deps,
    Gpu,
    GpuDevice,
    GpuProc,
    Host,
    Log,
    Metrics,
    Port,
    Probe,
    Proc,
    Procs,
    Server,
)
from watchdog.systemd import UnitState
from watchdog.verify.life import Life
from watchdog.verify.seen import Seen, Settings

GB = 10**9
GIB = 2**30
ARGS: dict[str, Any] = {
    "tp_size": 8,
    "enable_hierarchical_cache": True,
    "hicache_ratio": 4.0,
    "speculative_algorithm": "EAGLE3",
    "enable_metrics": True,
}
SERVER = config.Server(name="kimi", unit="sglang-kimi.service")


def lines(ranks: int = 8) -> list[str]:
    """The lines of a start that matter, in the wording of SGLang 0.5.9."""
    said = []
    for mark in (
        "KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB",
        "KV Cache is allocated. #tokens: 159277, K size: 0.30 GB, V size: 0.30 GB",
        "Allocating 44.77 GB host memory for hierarchical KV cache.",
    ):
        said += [f"[2026-02-25 03:08:10 TP{rank}] {mark}" for rank in range(ranks)]
    return [*said, "[2026-02-25 03:10:10] The server is fired up and ready to roll!"]


def life(*more: str, said: list[str] | None = None) -> Life:
    """A life that was read from lines."""
    found = Life()
    for message in [*(lines() if said is None else said), *more]:
        found.see(Log(t=0.0, inv="1", message=message))
    return found


def processes(ranks: int = 8, stopped: str = "") -> Procs:
    titles = ["python3 -m sglang.launch_server", *(f"sglang::scheduler_TP{n}" for n in range(ranks)), "sglang::detokenizer"]
    procs = [Proc(pid=100 + n, name=t, state="T" if t == stopped else "S", rss=46 * GB) for n, t in enumerate(titles)]
    return Procs(t=0.0, procs=procs)


def well(**changes: Any) -> Seen:
    """All is well, but for what is changed."""
    seen = Seen(
        server=SERVER,
        unit=UnitState(
            load_state="loaded", active_state="active", sub_state="running", n_restarts=0, invocation="1" * 32, main_pid=100
        ),
        settings=Settings(
            kill_mode="mixed",
            memlock=float("inf"),
            rate_interval_s=1.0,
            rate_burst=1_000_000,
            journald_interval_s=30.0,
            journald_burst=10_000,
            timeout_stop_s=180.0,
            restart="always",
        ),
        life=life("[2026-02-25 03:20:10 TP0] Decode batch, #running-req: 2, #token: 900, token usage: 0.01, accept len: 2.74"),
        starts=1,
        probes={
            "health": Probe(t=0.0, probe="health", outcome="ok", status=200, total_s=0.01),
            "models": Probe(t=0.0, probe="models", outcome="ok", status=200, total_s=0.01, body='{"data":[{"id":"kimi"}]}'),
            "chat": Probe(
                t=0.0, probe="chat", outcome="ok", status=200, total_s=0.4, answer=Answer(text="Paris.", finish_reason="stop")
            ),
        },
        engine=Server(t=0.0, version="0.5.9", args=ARGS),
        metrics=Metrics(t=0.0, ok=True, values={"num_running_reqs": 2.0}),
        procs=processes(),
        port=Port(t=0.0, listening=True, address="127.0.0.1:30000", pid=100, in_unit=True, established=3),
        cgroup=Cgroup(t=0.0, memory_current=400 * GB, anon=390 * GB, file=0, shmem=GB, oom_kill=0),
        host=Host(
            t=0.0,
            mem_total=1024 * GIB,
            mem_available=500 * GIB,
            hugepages_total=0,
            hugepages_free=0,
            hugepage_size=2 << 20,
            shm_total=512 * GIB,
            shm_free=500 * GIB,
        ),
        gpu=Gpu(
            t=0.0,
            ok=True,
            gpus=[
                GpuDevice(index=n, temp_c=60.0, ecc_uncorrected=0, mem_used=90 * GIB, procs=[GpuProc(pid=101 + n, in_unit=True)])
                for n in range(8)
            ],
        ),
        deps=Deps(t=0.0, units={"nvidia-fabricmanager.service": "active"}),
    )
    return msgspec.structs.replace(seen, **changes)


def setting(**changes: Any) -> Seen:
    """All is well, but for a setting."""
    return well(settings=msgspec.structs.replace(well().settings, **changes))


def probed(name: str, **changes: Any) -> Seen:
    """All is well, but for a probe."""
    probes = well().probes
    return well(probes={**probes, name: msgspec.structs.replace(probes[name], **changes)})
