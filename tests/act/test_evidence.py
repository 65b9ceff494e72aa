import asyncio
import contextlib
import gzip
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from watchdog import config
from watchdog.act import bundles
from watchdog.act.bundle_names import folder_name, named
from watchdog.act.collectors import COLLECTORS, clean_observation, journal_lines, pack
from watchdog.act.command import CommandError, output
from watchdog.act.evidence import Bundle, collect
from watchdog.act.scene import Scene
from watchdog.act.stacks import stacks
from watchdog.clock import SURE_S, FakeClock
from watchdog.judge.verdict import Action, Condition, Intent, Severity, Status
from watchdog.observation import Cgroup, Gpu, Host, Log, Metrics, Observation, Probe, Proc, Procs, Server, Unit, decode, encode

SECRET = "s3cr3tXYZ0123456789"
NAMED = "import setproctitle, time; setproctitle.setproctitle('sglang::scheduler_TP0'); print('up', flush=True); time.sleep(60)"


def scene(pid: int = 0, **changes: object) -> Scene:
    latest: dict[type[Observation], Observation] = {
        Unit: Unit(t=0, active_state="active", sub_state="running", result="success", n_restarts=0),
        Server: Server(
            t=0, version="0.5.23", args={"tp_size": 8, "api_key": "…", "url": f"http://u:{SECRET}@h"}, env={"NCCL_DEBUG": "INFO"}
        ),
        Procs: Procs(t=0, procs=[Proc(pid=pid, name="sglang::scheduler_TP0", state="R")] if pid else []),
        Metrics: Metrics(t=0, ok=True, values={"num_running_reqs": 3.0}, by_rank={"0": {"token_usage": 0.25}}),
        Cgroup: Cgroup(t=0, memory_current=5 << 30),
        Host: Host(t=0, mem_total=100 << 30, mem_available=50 << 30),
    }
    record = [b'{"record":"flight","version":1}', encode(Log(t=1, message=f"Receive: obj=GenerateReqInput(text='{SECRET}')"))]
    parts: dict[str, object] = {
        "server": config.Server(name="kimi", unit="sglang-kimi.service"),
        "intent": Intent(
            action=Action.RESTART,
            reason="SchedulerHung",
            severity=Severity.CRITICAL,
            message="No batch for 93 s while 3 requests wait.",
            evidence=("canary timed out after 60 s", f"flags --api-key {SECRET}"),
        ),
        "clock": FakeClock(),
        "t": 93.0,
        "inv": "a1",
        "latest": latest,
        "conditions": [
            Condition(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message="No batch.", since=3.0)
        ],
        "record": record,
    }
    return Scene(**{**parts, **changes})  # type: ignore[arg-type]


@pytest.fixture
def scheduler() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process
        process.kill()


@pytest.fixture
async def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """A stacks helper that answers with these pieces, and then goes on or ends."""
    pieces = [f"ok\nStacks of sglang-kimi.service: 1 processes\nthread x --api-key {SECRET}\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"sglang-kimi.service\n"
        for piece in pieces:
            if piece == "hang":
                await reader.read()  # until the other end has gone
            writer.write(piece.encode())
        writer.close()

    place = tmp_path / "stacks.sock"
    monkeypatch.setattr("watchdog.act.stacks.SOCKET", place)
    server = await asyncio.start_unix_server(answer, place)
    yield pieces
    server.close()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of made-up commands that come first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    entry = '{"__REALTIME_TIMESTAMP":"1768356000000000","MESSAGE":"Decode batch.","_PID":"7","SYSLOG_IDENTIFIER":"python3"}'
    tool(folder, "journalctl", f"echo '{entry}'")
    tool(folder, "systemctl", f"echo 'Id=sglang-kimi.service'; echo 'Environment=HF_TOKEN={SECRET}'")
    tool(folder, "nvidia-smi", "echo 'Driver Version : 580'")
    tool(folder, "py-spy", 'echo "Thread $2 $1"')
    return folder


def tool(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def everything(bundle: Bundle) -> str:
    assert bundle.path is not None
    texts = []
    for path in bundle.path.iterdir():
        raw = path.read_bytes()
        texts.append((gzip.decompress(raw) if path.suffix == ".gz" else raw).decode())
    return "\n".join(texts)


async def test_a_whole_bundle(tmp_path: Path, tools: Path, helper: list[str], scheduler: subprocess.Popen[str]) -> None:
    home = tmp_path / "state/kimi/incidents"
    bundle = await collect(scene(scheduler.pid), home, limit_s=10)

    assert bundle.failed == {} and bundle.warning is None
    assert bundle.path == home / "2026-01-14T02-01-33Z-SchedulerHung"
    assert {path.name for path in bundle.path.iterdir()} == {*COLLECTORS, "summary.md", "intent.json", "conditions.json"}
    assert bundle.size == bundles.size(bundle.path)
    text = everything(bundle)
    assert SECRET not in text
    summary = (bundle.path / "summary.md").read_text()
    for expected in (
        "# SchedulerHung on kimi",
        "No batch for 93 s",
        "canary timed out",
        "2026-01-14 02:01:33 UTC",
        "SchedulerProgressing does not hold for 1 min 30 s (Hung, since 2026-01-14 02:00:03 UTC): No batch.",
        "SGLang 0.5.23",
        "tp_size: 8",
        "NCCL_DEBUG=INFO",
        "unit's memory 5.0 GiB",
    ):
        assert expected in summary
    processes = (bundle.path / "processes.txt").read_text()
    assert f"Python stacks of {scheduler.pid}\nThread --nonblocking dump" in processes
    assert "sglang::scheduler_TP0" in processes and "wchan" in processes and "State:" in processes
    stacks = (bundle.path / "stacks.txt").read_text()
    assert stacks.startswith(f"Known as: {scheduler.pid} sglang::scheduler_TP0\nStacks of sglang-kimi.service")
    assert "num_running_reqs 3" in (bundle.path / "metrics.txt").read_text()
    assert "MemAvailable" in (bundle.path / "memory.txt").read_text()
    assert "Decode batch." in (bundle.path / "journal.txt").read_text()
    assert json.loads((bundle.path / "intent.json").read_text())["reason"] == "SchedulerHung"
    lines = gzip.decompress((bundle.path / "record.jsonl.gz").read_bytes()).splitlines()
    assert isinstance(decode(lines[1]), Log)
    assert stat.S_IMODE(bundle.path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in bundle.path.iterdir()} == {0o600}
    assert scheduler.poll() is None


async def test_tools_that_hang_or_fail_are_named_and_cost_no_more_than_the_limit(tmp_path: Path, tools: Path) -> None:
    tool(tools, "journalctl", "sleep 60")
    tool(tools, "nvidia-smi", "trap '' TERM; while :; do sleep 1; done")
    tool(tools, "systemctl", "echo 'Failed to connect to bus'; exit 1")
    begun = time.monotonic()

    bundle = await collect(scene(), tmp_path / "incidents", limit_s=4.0)

    assert time.monotonic() - begun < 12
    assert set(bundle.failed) == {"journal.txt", "gpu.txt", "unit.txt", "processes.txt", "stacks.txt"}
    assert bundle.failed["stacks.txt"] == "the stacks helper is not installed (`sglang-watchdog setup --stacks`)"
    assert "Failed to connect to bus" in bundle.failed["unit.txt"]
    assert "no answer within" in bundle.failed["journal.txt"]
    assert bundle.path is not None
    assert "gpu.txt is missing: nvidia-smi gave no answer" in (bundle.path / "summary.md").read_text()


async def test_a_stacks_helper_that_hangs_leaves_what_it_told(helper: list[str]) -> None:
    helper.append("hang")
    told = (await stacks(scene(), 0.3)).decode()
    assert told.startswith("Stacks of sglang-kimi.service") and told.endswith("[cut: it took longer than 0.3 s]")


@pytest.mark.parametrize(
    ("answer", "why"),
    [(["refused: no server"], "the stacks helper: refused: no server"), ([], "it said nothing"), (["hang"], "it said nothing")],
)
async def test_a_stacks_helper_without_an_answer_is_named(helper: list[str], answer: list[str], why: str) -> None:
    helper[:] = answer
    with pytest.raises(CommandError, match=why):
        await stacks(scene(), 0.3)


async def test_a_collector_that_breaks_or_never_ends_is_named(tmp_path: Path) -> None:
    async def broken(scene: Scene, limit_s: float) -> bytes:
        raise RuntimeError(f"--api-key {SECRET}")

    async def endless(scene: Scene, limit_s: float) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def fine(scene: Scene, limit_s: float) -> bytes:
        return b"fine"

    bundle = await collect(scene(), tmp_path, limit_s=1.0, collectors={"a": broken, "b": endless, "c": fine})

    assert set(bundle.failed) == {"a", "b"} and SECRET not in str(bundle.failed)
    assert bundle.path is not None and (bundle.path / "c").read_bytes() == b"fine"


async def test_a_wedged_driver_gets_no_nvidia_smi(tmp_path: Path, tools: Path) -> None:
    tool(tools, "nvidia-smi", f"touch {tmp_path}/was-run")
    latest = {Gpu: Gpu(t=0, ok=False, error="driver_timeout")}
    bundle = await collect(scene(latest=latest), tmp_path / "incidents", limit_s=5)
    assert bundle.path is not None
    assert "the driver does not answer" in (bundle.path / "gpu.txt").read_text()
    assert not (tmp_path / "was-run").exists()


async def test_whatever_is_slow_the_whole_keeps_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart waits for it: neither a part that does not end when it is told to, nor a host or a disk that stands still."""
    over, ended = threading.Event(), asyncio.Event()

    async def stubborn(scene: Scene, limit_s: float) -> bytes:
        while not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()
        return b""

    def stuck(*_: object) -> str:
        over.wait(10.0)
        return ""

    monkeypatch.setattr("watchdog.act.evidence.summary", stuck)
    monkeypatch.setattr("watchdog.act.evidence.bundles.write", stuck)
    begun = time.monotonic()
    bundle = await collect(scene(), tmp_path, limit_s=0.5, collectors={"a": stubborn})
    took_s = time.monotonic() - begun
    over.set()
    ended.set()
    assert took_s < 1.0
    assert set(bundle.failed) == {"a", "summary.md"}
    assert bundle.path is None and bundle.warning is not None and "(the disk does not answer) and is lost" in bundle.warning


async def test_what_cannot_be_written_is_said_to_be_lost(tmp_path: Path, tools: Path) -> None:
    (tmp_path / "file").write_text("")
    bundle = await collect(scene(), tmp_path / "file/incidents", limit_s=5)
    assert bundle.path is None and bundle.warning is not None
    assert "(Not a directory) and is lost: " in bundle.warning


async def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:  # noqa: ASYNC221
        pytest.skip("needs the right to mount")

    async def large(scene: Scene, limit_s: float) -> bytes:
        return b"x" * 200_000

    try:
        bundle = await collect(scene(), tmp_path / "incidents", limit_s=5, collectors={"large": large})
        assert bundle.path is None and bundle.warning is not None and "No space left" in bundle.warning
        assert list((tmp_path / "incidents").iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)  # noqa: ASYNC221


async def test_two_incidents_in_one_second(tmp_path: Path) -> None:
    names = [(await collect(scene(), tmp_path, limit_s=5, collectors={})).name for _ in range(2)]
    assert names == ["2026-01-14T02-01-33Z-SchedulerHung", "2026-01-14T02-01-33Z-SchedulerHung-2"]


def test_old_and_large_bundles_go_first(tmp_path: Path) -> None:
    now = datetime(2026, 1, 14, tzinfo=UTC)
    for day in (1, 10, 11, 12, 13):
        bundles.write(tmp_path, f"2026-01-{day:02}T00-00-00Z-Hung", {"file": b"x" * 100})
    (tmp_path / "2026-01-12T00-00-00Z-Half.partial").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "2026-01-01T00-00-00Z-Link").symlink_to(tmp_path / "mine")

    removed = bundles.prune(tmp_path, now, max_bytes=250, max_days=10)

    assert removed == ["2026-01-11T00-00-00Z-Hung", "2026-01-10T00-00-00Z-Hung", "2026-01-01T00-00-00Z-Hung"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"2026-01-12T00-00-00Z-Hung", "2026-01-13T00-00-00Z-Hung", "mine", "2026-01-01T00-00-00Z-Link"}
    assert bundles.prune(tmp_path / "none", now, 1, 1) == []


async def test_a_wall_clock_that_is_ahead_for_a_moment_deletes_no_bundle(tmp_path: Path) -> None:
    here = scene()
    clock = here.clock
    assert isinstance(clock, FakeClock)

    async def kept() -> int:
        await collect(here, tmp_path, limit_s=5, collectors={})
        return sum(1 for _ in os.scandir(tmp_path))

    bundles.write(tmp_path, "2025-12-01T00-00-00Z-Hung", {"file": b"x"})
    clock.advance(SURE_S)
    assert await kept() == 2
    clock.origin += timedelta(days=100)
    assert await kept() == 3, "ahead"
    clock.origin -= timedelta(days=100)
    assert await kept() == 4, "and back: not sure for a day"
    clock.advance(SURE_S)
    clock.origin += timedelta(days=100)
    clock.sure()
    clock.advance(SURE_S)
    assert await kept() == 2, "it stays there: it is so; only what was made ahead of its time is younger"


def test_names_are_safe() -> None:
    at = datetime(2026, 1, 14, 2, tzinfo=UTC)
    assert folder_name(at, "../../etc/x y") == "2026-01-14T02-00-00Z-etcxy"
    assert folder_name(at, "") == "2026-01-14T02-00-00Z-Incident"


@pytest.mark.parametrize("more", ["", "-2", "-17"])
def test_a_name_says_when_and_why(more: str) -> None:
    name = folder_name(datetime(2026, 1, 14, 2, tzinfo=UTC), "SchedulerHung")
    assert named(f"{name}{more}") == ("2026-01-14T02:00:00Z", "SchedulerHung")


@pytest.mark.parametrize(
    "name", ["", "mine", "2026-01-14T02-00-00Z-", "2026-01-14T02-00-00Z-../x", "2026-01-14T02-00-00Z-x.partial"]
)
def test_what_is_no_name_of_a_bundle(name: str) -> None:
    assert named(name) is None


def test_journal_entries_as_lines() -> None:
    def entry(message: object, **fields: str) -> bytes:
        return json.dumps(
            {"__REALTIME_TIMESTAMP": "1768356000000000", "MESSAGE": message, "_PID": "7", "SYSLOG_IDENTIFIER": "py", **fields}
        ).encode()

    lines = journal_lines(
        b"\n".join(
            (
                entry("plain"),
                entry(list(b"\x1b[31mred\x1b[0m \xff")),
                entry(None, _STREAM_ID="s", _LINE_BREAK="line-max"),
                entry("other stream", _STREAM_ID="t"),
                entry(f"the user's {SECRET}", _STREAM_ID="s"),
                entry("next", _STREAM_ID="s"),
                b"no json",
                entry("x" * 5000),
            )
        )
    )
    assert [line.partition(": ")[2] for line in lines[:6]] == [
        "plain",
        "red �",
        "[a line of more than 4096 bytes left out]",
        "other stream",
        "[the rest of a long line left out]",
        "next",
    ]
    assert lines[0].startswith("2026-01-14T02:00:00.000+00:00 py[7]")
    assert len(lines) == 7 and len(lines[6]) < 1100


def test_observations_without_secrets_stay_observations() -> None:
    probe = Probe(t=2, probe="chat", outcome="status", body='{"text": "hello", "api_key": "x1"}')
    cleaned = decode(clean_observation(encode(probe)))
    assert isinstance(cleaned, Probe) and cleaned.body is not None and "hello" in cleaned.body and "x1" not in cleaned.body
    metrics = encode(Metrics(t=1, ok=True, values={"a": 1.0}))
    assert clean_observation(metrics) is metrics
    assert clean_observation(b'{"kind":"log", cut') == b"{}"
    assert gzip.decompress(pack(iter([metrics, metrics + b"\n"]))) == (metrics + b"\n") * 2


async def test_commands_are_bounded(tools: Path) -> None:
    tool(tools, "flood", "yes flood")
    tool(tools, "env-of", "env")
    assert len(await output(["flood"], 5, 10_000)) == 10_000
    with pytest.raises(CommandError, match="is not installed"):
        await output(["no-such-command"], 5, 10)
    os.environ["NOTIFY_SOCKET"] = "/run/x"
    try:
        assert b"NOTIFY_SOCKET" not in await output(["env-of"], 5, 10_000)
    finally:
        del os.environ["NOTIFY_SOCKET"]


async def test_bundles_are_kept_within_the_configured_size(tmp_path: Path) -> None:
    async def large(scene: Scene, limit_s: float) -> bytes:
        return b"x" * 600_000

    limits = config.Recording(incidents_mib=1)
    for t in (1.0, 2.0, 3.0):
        await collect(scene(t=t), tmp_path, limit_s=5, limits=limits, collectors={"large": large})
    assert os.listdir(tmp_path) == ["2026-01-14T02-00-03Z-SchedulerHung"]  # noqa: PTH208
