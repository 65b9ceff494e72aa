"""The parts of an incident bundle: each reads one thing, within a time and a size, and without harm to the server.

Nothing here stops, traces or signals a process of the server. py-spy runs with --nonblocking, which reads the stacks while the
process runs on. Of /proc only files are read that do not wait for the process's memory map.
"""

import asyncio
import gzip
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from watchdog.act import redact
from watchdog.act.command import CommandError, find, output
from watchdog.act.scene import Scene
from watchdog.act.stacks import stacks
from watchdog.observation import Cgroup, Gpu, Host, Metrics, Observation, encode
from watchdog.wording import counted
from watchdog.worker import Worker

MIB = 1 << 20
JOURNAL_LINES = 2000
JOURNAL_LINE_CAP = 1000
RECORD_CAP = 64 * MIB
"""Bytes of the flight record before compression."""

TEXT_CAP = 512 * 1024
PROCESSES = 64
THREADS = 48
STACKS_LIMIT_S = 5.0
STACKS_AT_ONCE = 4
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

Collector = Callable[[Scene, float], Coroutine[Any, Any, bytes]]


async def journal(scene: Scene, limit_s: float) -> bytes:
    """The last lines of the unit's journal; request logs and lines of more than 4096 bytes are left out."""
    fields = "MESSAGE,_LINE_BREAK,_STREAM_ID,SYSLOG_IDENTIFIER,_PID"
    command = [
        "journalctl",
        f"--unit={scene.server.unit}",
        f"--lines={JOURNAL_LINES}",
        "--output=json",
        f"--output-fields={fields}",
    ]
    if scene.server.journal_namespace:
        command.append(f"--namespace={scene.server.journal_namespace}")
    text = await output([*command, "--no-pager", "--quiet"], limit_s, 32 * MIB)
    return await Worker("journal-excerpt").call(lambda: "\n".join(journal_lines(text)).encode() + b"\n", limit_s)


def journal_lines(text: bytes) -> list[str]:
    """Entries of `journalctl --output=json` as lines for people. It writes null for a field of more than 4096 bytes."""
    lines: list[str] = []
    broken: set[object] = set()
    for raw in text.splitlines():
        try:
            entry = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError:
            continue
        stream = entry.get("_STREAM_ID")
        continued = stream is not None and stream in broken
        broken.discard(stream)
        if entry.get("_LINE_BREAK") in ("line-max", "eof", "pid-change") and stream is not None:
            broken.add(stream)
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # it has bytes that are no printable text, such as colours
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
        if continued:
            message = "[the rest of a long line left out]"
        elif not isinstance(message, str):
            message = "[a line of more than 4096 bytes left out]"
        clean = redact.line(_CONTROL.sub(" ", _ANSI.sub("", message)), JOURNAL_LINE_CAP)
        lines.append(
            f"{_moment(entry.get('__REALTIME_TIMESTAMP'))} {entry.get('SYSLOG_IDENTIFIER')}[{entry.get('_PID')}]: {clean}"
        )
    return lines


def _moment(microseconds: object) -> str:
    try:
        return datetime.fromtimestamp(int(str(microseconds)) / 1e6, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return "-"


async def record(scene: Scene, limit_s: float) -> bytes:
    """The flight record around the incident, compressed; log lines without secrets and prompts."""
    return await Worker("record-excerpt").call(lambda: pack(scene.record), limit_s)


def pack(lines: Iterable[bytes]) -> bytes:
    """Encoded observations as .jsonl.gz; blocking."""
    kept: list[bytes] = []
    total = 0
    for line in lines:
        total += len(line)
        if total > RECORD_CAP:
            break
        kept.append(clean_observation(line).rstrip(b"\n") + b"\n")
    return gzip.compress(b"".join(kept), 6, mtime=0)


def clean_observation(line: bytes) -> bytes:
    """An encoded observation without secrets and prompts. Only these kinds carry text from outside."""
    if not any(kind in line for kind in (b'"log"', b'"kernel"', b'"probe"', b'"server"', b'"flight"')):
        return line
    try:
        content = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return b"{}"
    if content.get("kind") == "probe":
        # The canary's prompt and answer are our own words.
        return msgspec.json.encode(
            {name: redact.secrets(each) if isinstance(each, str) else each for name, each in content.items()}
        )
    return msgspec.json.encode(redact.value(content))


async def unit(scene: Scene, limit_s: float) -> bytes:
    """The unit's properties, as systemd shows them."""
    text = await output(["systemctl", "show", "--no-pager", scene.server.unit], limit_s, TEXT_CAP)
    return redact.block(text.decode("utf-8", "replace")).encode()


async def gpu(scene: Scene, limit_s: float) -> bytes:
    """What nvidia-smi reports, and our own last look."""
    last = scene.last(Gpu)
    seen = b"The last look through NVML:\n" + msgspec.json.format(encode(last), indent=2) + b"\n\n" if last is not None else b""
    if last is not None and last.error == "driver_timeout":
        # One more process that waits for a wedged driver would not end either.
        return seen + b"nvidia-smi was not run: the driver does not answer.\n"
    try:
        return seen + await output(["nvidia-smi", "-q"], limit_s, TEXT_CAP)
    except CommandError as e:
        if not seen:
            raise
        return seen + f"{e}\n".encode()


async def metrics(scene: Scene, limit_s: float) -> bytes:  # noqa: ARG001
    """The last scrape."""
    last = scene.last(Metrics)
    if last is None:
        raise CommandError("the metrics were never scraped")
    head = f"# scraped at {scene.when(last.t)}; {'ok' if last.ok else f'failed: {last.error}'}"
    lines = [head] + [f"{name} {number:g}" for name, number in sorted(last.values.items())]
    for rank, values in sorted((last.by_rank or {}).items()):
        lines += [f"{name}{{rank={rank}}} {number:g}" for name, number in sorted(values.items())]
    return redact.secrets("\n".join(lines) + "\n").encode()[:TEXT_CAP]


async def memory(scene: Scene, limit_s: float) -> bytes:
    """Our last looks at the unit's and the host's memory, and the kernel's own tables."""
    looks: list[Observation | None] = [scene.last(Cgroup), scene.last(Host)]
    parts = [f"{type(each).__name__} at {scene.when(each.t)}: ".encode() + encode(each) for each in looks if each is not None]
    names = ("meminfo", "pressure/memory", "pressure/io", "pressure/cpu", "loadavg", "buddyinfo")
    tables = await Worker("memory-tables").call(lambda: [(name, _file(f"/proc/{name}")) for name in names], limit_s)
    parts += [f"/proc/{name}:\n".encode() + text for name, text in tables if text]
    return b"\n\n".join(parts) + b"\n"


async def processes(scene: Scene, limit_s: float) -> bytes:
    """Each process with its threads: state, wait channel and kernel stack; then the Python stacks, where py-spy may look."""
    procs = scene.processes[:PROCESSES]
    if not procs:
        raise CommandError("no process of the unit was seen")
    shown: list[str] = []

    def look() -> None:
        for each in procs:
            shown.append(_process(each.pid, each.name))

    looking = Worker("process-states").call(look, limit_s * 0.8)
    stacks = _python_stacks([each.pid for each in procs if each.name.startswith(("sglang::", "python"))], limit_s * 0.8)
    results = await asyncio.gather(looking, stacks, return_exceptions=True)
    if isinstance(results[0], BaseException):
        shown = [*shown, f"[the rest left out: reading took longer than {limit_s * 0.8:.0f} s]"]
    python = results[1] if isinstance(results[1], str) else f"Python stacks: {results[1]}"
    return redact.block("\n".join([*shown, python])).encode()[: 4 * TEXT_CAP]


async def _python_stacks(pids: Sequence[int], limit_s: float) -> str:
    if await find("py-spy", limit_s) is None:
        return "Python stacks: py-spy is not installed"
    gate = asyncio.Semaphore(STACKS_AT_ONCE)

    async def one(pid: int) -> str:
        async with gate:
            try:
                text = await output(["py-spy", "dump", "--nonblocking", "--pid", str(pid)], STACKS_LIMIT_S, TEXT_CAP // 4)
            except CommandError as e:
                return f"== Python stacks of {pid}: {e}"
        return f"== Python stacks of {pid}\n" + _ANSI.sub("", text.decode("utf-8", "replace"))

    tasks = [asyncio.create_task(one(pid)) for pid in pids]
    if not tasks:
        return "Python stacks: no Python process of SGLang was seen"
    try:
        done, late = await asyncio.wait(tasks, timeout=limit_s)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    told = [task.result() for task in tasks if task in done]
    return "\n".join(
        told + ([f"Python stacks of {counted(len(late), 'process', 'processes')} left out, no time"] if late else [])
    )


def _process(pid: int, name: str) -> str:
    """Blocking: one process as /proc shows it."""
    root = Path(f"/proc/{pid}")
    status = _file(f"{root}/status").decode("utf-8", "replace")
    if not status:
        return f"== {pid} {name}: gone, or hidden from us"
    lines = [f"== {pid} {name}", status.strip()]
    try:
        threads = sorted((int(each) for each in os.listdir(root / "task")), key=lambda each: each != pid)  # noqa: PTH208
    except OSError:
        threads = []
    for thread in threads[:THREADS]:
        task = f"{root}/task/{thread}"
        stat = _file(f"{task}/stat").decode("utf-8", "replace")
        comm, state = stat[stat.find("(") + 1 : stat.rfind(")")], stat[stat.rfind(")") + 2 :][:1]
        wchan = _file(f"{task}/wchan").decode("utf-8", "replace")
        lines.append(f"  thread {thread} ({comm}) {state} wchan {wchan or '?'}")
        if thread == pid or state == "D":
            stack = _file(f"{task}/stack").decode("utf-8", "replace").splitlines()
            lines += [f"    {frame}" for frame in stack[:32]]
    if len(threads) > THREADS:
        lines.append(f"  … and {counted(len(threads) - THREADS, 'thread')} more")
    return "\n".join(lines)


def _file(path: str) -> bytes:
    """The beginning of a file below /proc; empty where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read(1 << 16) or b""
    except OSError:
        return b""


COLLECTORS: dict[str, Collector] = {
    "record.jsonl.gz": record,
    "journal.txt": journal,
    "processes.txt": processes,
    "stacks.txt": stacks,
    "metrics.txt": metrics,
    "gpu.txt": gpu,
    "unit.txt": unit,
    "memory.txt": memory,
}
