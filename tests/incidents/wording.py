"""Lines as SGLang prints them, by version, and what a start says step by step."""

from collections.abc import Iterator

NEW = (0, 5, 13)


def number(version: str) -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:3])


def prefill(version: str, *, new: int, cached: int, usage: float, running: int, queue: int, pending: int) -> str:
    comma = "." if number(version) < (0, 5, 3) else ","
    tail = f", #pending-token: {pending}, cuda graph: False" if number(version) >= NEW else ", cuda graph: False"
    return (
        f"Prefill batch{comma} #new-seq: 1, #new-token: {new}, #cached-token: {cached}, token usage: {usage:.2f}, "
        f"#running-req: {running}, #queue-req: {queue}{tail}, input throughput (token/s): {new / 2:.2f}"
    )


def decode(version: str, *, running: int, tokens: int, usage: float, accept: float | None, speed: float, queue: int) -> str:
    comma = "." if number(version) < (0, 5, 3) else ","
    spec = f"accept len: {accept:.2f}, accept rate: {(accept - 1) / 3:.2f}, " if accept is not None else ""
    return (
        f"Decode batch{comma} #running-req: {running}, #token: {tokens}, token usage: {usage:.2f}, {spec}cuda graph: True, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: {queue}"
    )


def health_failed(started: str, heartbeat: str) -> str:
    return (
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
        f"tic start time: {started}. last_heartbeat time: {heartbeat}"
    )


def access(peer: str, method: str, path: str, status: int) -> str:
    words = {
        200: "OK",
        400: "Bad Request",
        401: "Unauthorized",
        404: "Not Found",
        500: "Internal Server Error",
        503: "Service Unavailable",
    }
    return f'INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {words.get(status, "Error")}'


def child_crashed(name: str, pid: int, code: int) -> str:
    return f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."


SIGQUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
SIGQUIT_START = "Received sigquit from a child process. It usually means the child failed."
SIGTERM = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
READY = "The server is fired up and ready to roll!"


def traceback(error: str) -> list[str]:
    """What follows "Scheduler hit an exception: Traceback (most recent call last):"; bare lines, without a prefix."""
    return [
        '  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 2711, in run_scheduler_process',
        "    scheduler.event_loop_overlap()",
        *error.splitlines(),
    ]


def watchdog_fired(version: str, seconds: float, *, soft: bool = False) -> str:
    if number(version) < (0, 5, 8):
        return f"Watchdog timeout (self.watchdog_timeout={seconds:.0f})"
    return f"Scheduler watchdog timeout (self.watchdog_timeout={seconds:.0f}, self.soft={soft})"


def start(version: str, *, ranks: int, hicache: bool, times: dict[str, float]) -> Iterator[tuple[float, str, str | None, str]]:
    """The lines of a start: (seconds since its beginning, step, rank or None, text); "bare" in place of a rank: no prefix."""
    names = [f"TP{i}" for i in range(ranks)] if ranks > 1 else [None]  # type: ignore[list-item]
    t = 5.0
    yield t, "imports", None, "Attention backend not specified. Use flashinfer backend by default."
    yield t + 2, "imports", None, "server_args=ServerArgs(model_path='/models/M', tp_size=8, host='0.0.0.0', port=30000)"
    t += times["imports"]
    for i, name in enumerate(names):
        yield t + 0.1 * i, "init", name, "Init torch distributed begin."
    t += times["init"]
    for i, name in enumerate(names):
        yield t + 0.1 * i, "init", name, "Init torch distributed ends. elapsed=7.59 s, mem usage=1.21 GB"
        yield t + 1 + 0.1 * i, "weights", name, "Load weight begin. avail mem=93.61 GB"
    shards = 32
    for i in range(1, shards + 1):
        at = t + 2 + times["weights"] * i / shards
        left = times["weights"] * (shards - i) / shards
        bar = f"{100 * i // shards:3d}% Completed | {i}/{shards} [{clock(at - t)}<{clock(left)}, {times['weights'] / shards:5.2f}s/it]"
        yield at, "weights", "bare", f"Loading safetensors checkpoint shards: {bar}"
    t += 2 + times["weights"]
    for i, name in enumerate(names):
        yield (
            t + 0.1 * i,
            "pool",
            name,
            "Load weight end. elapsed=100.12 s, type=Model, dtype=torch.bfloat16, avail mem=20.38 GB, mem usage=73.23 GB.",
        )
    t += times["pool"]
    for i, name in enumerate(names):
        yield t + 0.1 * i, "graphs", name, "Memory pool end. avail mem=9.60 GB"
        begin = (
            "Capture decode CUDA graph begin. avail mem=9.60 GB"
            if number(version) >= NEW
            else ("Capture cuda graph begin. This can take up to several minutes. avail mem=9.60 GB")
        )
        yield t + 0.5 + 0.1 * i, "graphs", name, begin
    t += times["graphs"]
    for i, name in enumerate(names):
        yield (
            t + 0.1 * i,
            "host",
            name,
            (
                "Capture decode CUDA graph end. elapsed=35.70 s, mem usage=1.38 GB, avail mem=8.22 GB"
                if number(version) >= NEW
                else "Capture cuda graph end. Time elapsed: 35.70 s. mem usage=1.38 GB. avail mem=8.22 GB."
            ),
        )
    if hicache:
        for i, name in enumerate(names):
            yield (
                t + 1 + 0.1 * i,
                "host",
                name,
                (
                    "Allocating kv hierarchical KV host pool: 637109 tokens, 44.77 GB host memory."
                    if number(version) >= NEW
                    else "Allocating 44.77 GB host memory for hierarchical KV cache."
                ),
            )
        t += times["host"]
    yield (
        t + 2,
        "warmup",
        names[0],
        (
            "max_total_num_tokens=159277, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
            "context_len=262144, available_gpu_mem=6.10 GB"
        ),
    )
    yield t + 4, "warmup", None, "INFO:     Started server process [1000]"
    yield t + 4.1, "warmup", None, "INFO:     Application startup complete."
    yield t + 4.2, "warmup", None, "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)"
    yield t + 4 + times["warmup"], "ready", None, READY


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
