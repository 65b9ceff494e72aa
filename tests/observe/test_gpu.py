"""The GPU source against the real binding over a libnvidia-ml.so.1 of our own (tests/nvml/fake.c)."""

import asyncio
import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.nvml.build import FakeNvml, build
from watchdog.clock import BootClock
from watchdog.config import Sources
from watchdog.observation import Gpu, decode, encode
from watchdog.observe import files
from watchdog.observe import gpu as gpu_module
from watchdog.observe.gpu import GpuSource, Helper
from watchdog.observe.source import Emit

LOST, NOT_SUPPORTED, MISMATCH, NOT_LOADED, RESET_REQUIRED = 15, 3, 18, 9, 16
INTERVAL, LIMIT = 0.1, 10.0
IMPATIENT = 1.0
"""The limit where a call is to run into it."""
RUNNING = "nvmlDeviceGetUtilizationRates"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(library.parent, tmp_path / "state")


class Watched:
    """A running source and what it emitted."""

    def __init__(self, source: GpuSource) -> None:
        self.source = source
        self.seen: list[Gpu] = []
        self.beats = 0
        self.task: asyncio.Task[None]

    def emit(self, observation: object) -> None:
        assert isinstance(observation, Gpu)
        self.seen.append(observation)

    def beat(self) -> None:
        self.beats += 1

    async def until(self, holds: Callable[[Gpu], bool], limit: float = 30) -> Gpu:
        """The next observation that satisfies `holds`; what came before the call does not count."""
        start = len(self.seen)
        async with asyncio.timeout(limit):
            while True:
                for observation in self.seen[start:]:
                    if holds(observation):
                        return observation
                await asyncio.sleep(0.01)


def sources(**changes: object) -> Sources:
    return Sources(**{"gpu_interval_s": INTERVAL, "gpu_limit_s": LIMIT} | changes)  # type: ignore[arg-type]


def make(nvml: FakeNvml, proc: Path = Path("/proc"), **changes: object) -> GpuSource:
    return GpuSource(BootClock(), sources(**changes), nvml.environment, proc)


@contextlib.asynccontextmanager
async def watching(source: GpuSource) -> AsyncIterator[Watched]:
    watched = Watched(source)
    emit: Emit = watched.emit
    watched.task = asyncio.create_task(source.run(emit, watched.beat))
    try:
        yield watched
    finally:
        watched.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watched.task


def alive(pid: int | None) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def proc(pid: int | None, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def ended(pid: int | None, limit: float = 30) -> None:
    for _ in range(round(limit / 0.02)):
        if not alive(pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"process {pid} is still alive")


async def test_a_healthy_round_has_every_field(nvml: FakeNvml) -> None:
    nvml.set(
        gpu1__reasons=0x68, gpu1__violation_thermal_ns=90_000_000_000, gpu1__procs=2, gpu1__proc1__pid=77, gpu1__links_down=2
    )
    async with watching(make(nvml)) as w:
        got = await w.until(lambda g: g.ok)

    assert got.error is None and got.expected == 8 and len(got.gpus) == 8
    first, second = got.gpus[:2]
    assert first.index == 0 and first.uuid == "GPU-00000000-0000-0000-0000-000000000000" and first.pci == "0000:16:00.0"
    assert first.util == 0.37 and first.power_w == 410.5 and first.power_limit_w == 700 and first.temp_c == 55
    assert (first.mem_used, first.mem_total) == (94_209_310_720, 150_754_820_096)
    assert (first.sm_mhz, first.sm_max_mhz) == (1755, 1980)
    assert first.throttle == ["sw_power_cap"] and first.throttle_s == {"power": 12.5, "thermal": 0.0}
    assert first.ecc_uncorrected == 0 and first.retired_pending is False
    assert first.fabric == "completed" and first.nvlinks_down == 0 and first.mig is False
    assert first.procs and [(p.pid, p.mem, p.in_unit) for p in first.procs] == [(4994, 93_651_468_288, None)]
    assert second.throttle == ["hw_slowdown", "sw_thermal", "hw_thermal"] and second.throttle_s == {
        "power": 12.5,
        "thermal": 90.0,
    }
    assert second.nvlinks_down == 2
    assert second.procs and [(p.pid, p.mem) for p in second.procs] == [(4994, 93_651_468_288), (77, None)]
    assert decode(encode(got)) == got


async def test_whose_the_processes_are_is_read_once_beside_the_event_loop(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.set(gpu1__procs=2, gpu1__proc1__pid=77)
    ours, theirs = tmp_path / "4994/cgroup", tmp_path / "77/cgroup"
    ours.parent.mkdir()
    theirs.parent.mkdir()
    ours.write_bytes(b"0::/system.slice/kimi.service\n")
    asked: list[str] = []

    def read(path: Path) -> bytes | None:
        asked.append(f"{path.parent.name} {threading.current_thread() is threading.main_thread()}")
        return files.read(path)

    monkeypatch.setattr(gpu_module, "read", read)
    async with watching(make(nvml, proc=tmp_path)) as w:
        await w.until(lambda g: g.ok)
        assert w.source.cgroups == {4994: b"0::/system.slice/kimi.service\n"}
        assert sorted(asked[:2]) == ["4994 False", "77 False"], "once, though eight GPUs have it"

        monkeypatch.setattr(gpu_module, "USERS_LIMIT_S", 0.1)
        os.mkfifo(theirs)  # a file that does not answer
        await w.until(lambda g: g.ok and not w.source.cgroups)
        with theirs.open("wb"):
            pass  # it does again
        theirs.unlink()
        await w.until(lambda g: g.ok and 4994 in w.source.cgroups)


async def test_what_a_card_does_not_support_is_null(nvml: FakeNvml) -> None:
    gone = (
        "util",
        "power_mw",
        "reasons",
        "violation_power_ns",
        "violation_thermal_ns",
        "ecc",
        "rows_pending",
        "mig",
        "fabric",
        "links",
    )
    nvml.set(count=1, **dict.fromkeys(gone))
    async with watching(make(nvml)) as w:
        (card,) = (await w.until(lambda g: g.ok)).gpus

    assert card.util is card.power_w is card.throttle is card.throttle_s is card.ecc_uncorrected is card.retired_pending is None
    assert card.mig is card.fabric is card.nvlinks_down is None
    assert card.temp_c == 55


async def test_unused_links_of_a_card_without_bridge_are_not_down(nvml: FakeNvml) -> None:
    nvml.set(count=1, links=12, links_down=12)
    async with watching(make(nvml)) as w:
        assert (await w.until(lambda g: g.ok)).gpus[0].nvlinks_down is None


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [(0, 0, None), (1, 0, "not_started"), (2, 0, "in_progress"), (3, 0, "completed"), (3, 999, "failed")],
)
async def test_fabric_state(nvml: FakeNvml, state: int, status: int, word: str | None) -> None:
    nvml.set(count=1, fabric=state, fabric_status=status)
    async with watching(make(nvml)) as w:
        assert (await w.until(lambda g: g.ok)).gpus[0].fabric == word


async def test_a_reload_forgets_no_gpu_that_was_there(nvml: FakeNvml) -> None:
    nvml.set(count=2)
    before = make(nvml)
    async with watching(before) as w:
        assert (await w.until(lambda g: g.ok)).expected == 2
    nvml.set(count=1)
    async with watching(GpuSource(BootClock(), sources(), nvml.environment, before=before)) as w:
        got = await w.until(lambda g: g.ok)
    assert (len(got.gpus), got.expected) == (1, 2)


async def test_mig_is_told(nvml: FakeNvml) -> None:
    nvml.set(count=2, gpu1__mig=1, **{f"gpu1__{RUNNING}__error": NOT_SUPPORTED})
    async with watching(make(nvml)) as w:
        got = await w.until(lambda g: g.ok)
    assert [(g.mig, g.util) for g in got.gpus] == [(False, 0.37), (True, None)]


async def test_a_call_that_never_returns_is_a_timeout_and_the_loop_goes_on(nvml: FakeNvml) -> None:
    async with watching(make(nvml, gpu_limit_s=IMPATIENT)) as w:
        await w.until(lambda g: g.ok)
        pid = w.source.helper_pid
        nvml.set(**{f"gpu3__{RUNNING}__block": 1})
        began, ticks = time.monotonic(), 0
        waiting = asyncio.create_task(w.until(lambda g: g.error == "driver_timeout"))
        while not waiting.done():
            await asyncio.sleep(0.02)
            ticks += 1
        took = time.monotonic() - began
        assert IMPATIENT <= took < IMPATIENT + 3
        assert ticks >= 0.3 * took / 0.02, "the loop was blocked"
        assert not (await waiting).ok and (await waiting).expected == 8

        beats = w.beats
        await w.until(lambda g: g.error == "driver_timeout")
        assert w.beats > beats and w.source.helper_pid == pid

        nvml.set()
        assert len((await w.until(lambda g: g.ok)).gpus) == 8
        assert w.source.helper_pid == pid, "a helper that answers again needs no successor"


async def test_a_helper_that_stays_silent_is_killed_and_replaced(nvml: FakeNvml) -> None:
    nvml.set(**{f"gpu0__{RUNNING}__block": 1})
    async with watching(make(nvml, gpu_limit_s=IMPATIENT)) as w:
        await w.until(lambda g: g.error == "driver_timeout")
        pid = w.source.helper_pid
        await ended(pid)
        nvml.set()
        await w.until(lambda g: g.ok)
        assert w.source.helper_pid not in (pid, None)


async def test_no_second_helper_beside_one_that_cannot_be_killed(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """State D is imitated by a kill that does nothing."""
    started: list[int] = []
    start = Helper.start.__func__  # type: ignore[attr-defined]

    async def counted(environment: dict[str, str]) -> Helper:
        helper: Helper = await start(Helper, environment)
        started.append(helper.pid)
        return helper

    monkeypatch.setattr(Helper, "start", counted)
    monkeypatch.setattr(gpu_module.subprocess.Popen, "kill", lambda self: None)
    monkeypatch.setattr(gpu_module, "PATIENCE", 1)
    nvml.set(**{f"gpu0__{RUNNING}__block": 1})
    source = make(nvml, gpu_limit_s=IMPATIENT)
    try:
        async with watching(source) as w:
            for _ in range(6):
                assert (await w.until(lambda g: True)).error == "driver_timeout"
            assert len(started) == 1 and alive(started[0])
            began = time.monotonic()
        assert time.monotonic() - began < 5, "the source must end although its helper does not"
        async with watching(source) as w:  # the daemon starts a source that failed again: still no second helper
            await w.until(lambda g: g.error == "driver_timeout")
            assert len(started) == 1
            os.kill(started[0], signal.SIGKILL)  # the kernel lets go of it at last
            nvml.set()
            assert len((await w.until(lambda g: g.ok)).gpus) == 8
            assert len(started) == 2
    finally:
        for pid in started:
            end(pid)


async def test_a_helper_that_dies_is_told_and_replaced(nvml: FakeNvml) -> None:
    async with watching(make(nvml)) as w:
        await w.until(lambda g: g.ok)
        pid = w.source.helper_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert "SIGKILL" in ((await w.until(lambda g: not g.ok)).error or "")
        await w.until(lambda g: g.ok)
        assert w.source.helper_pid != pid


async def test_a_lost_gpu_fails_the_reading_and_the_others_are_still_told(nvml: FakeNvml) -> None:
    async with watching(make(nvml)) as w:
        await w.until(lambda g: g.ok)
        nvml.set(**{f"gpu5__{RUNNING}__error": LOST})
        got = await w.until(lambda g: not g.ok)
        assert got.error == "lost" and got.expected == 8 and [g.index for g in got.gpus] == [0, 1, 2, 3, 4, 6, 7]
        nvml.set(**{f"gpu5__{RUNNING}__error": RESET_REQUIRED})
        assert (await w.until(lambda g: g.error != "lost")).error == "reset_required"
        nvml.set()
        assert len((await w.until(lambda g: g.ok)).gpus) == 8


async def test_a_gpu_without_handle_is_lost(nvml: FakeNvml) -> None:
    nvml.set(gpu7__nvmlDeviceGetHandleByIndex_v2__error=LOST)
    async with watching(make(nvml)) as w:
        got = await w.until(lambda g: not g.ok)
    assert got.error == "lost" and len(got.gpus) == 7


async def test_fewer_gpus_than_seen_or_configured(nvml: FakeNvml) -> None:
    async with watching(make(nvml)) as w:
        await w.until(lambda g: g.ok)
        nvml.set(count=7)
        pid = w.source.helper_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)  # NVML counts anew only when it is initialised
        got = await w.until(lambda g: g.ok and len(g.gpus) == 7)
        assert got.expected == 8
    async with watching(make(nvml, gpus_expected=4)) as w:
        assert (await w.until(lambda g: g.ok)).expected == 4


@pytest.mark.parametrize(
    ("code", "word"), [(MISMATCH, "version_mismatch"), (NOT_LOADED, "no_driver"), (LOST, "lost"), (999, "NVML: Unknown Error")]
)
async def test_errors_of_the_initialisation(nvml: FakeNvml, code: int, word: str) -> None:
    nvml.set(nvmlInitWithFlags__error=code)
    async with watching(make(nvml)) as w:
        got = await w.until(lambda g: True)
        assert not got.ok and got.error == word and got.gpus == [] and got.expected is None
        if word != "no_driver":
            nvml.set()
            await w.until(lambda g: g.ok)


async def test_without_a_library_it_asks_rarely_and_goes_on_beating(tmp_path: Path) -> None:
    source = GpuSource(BootClock(), sources(gpu_interval_s=0.1), {"LD_LIBRARY_PATH": str(tmp_path)})
    async with watching(source) as w:
        assert (await w.until(lambda g: True)).error == "no_driver"
        assert source.helper_pid is None, "nothing is kept running on a host without GPUs"
        async with asyncio.timeout(30):
            while w.beats < 6:  # noqa: ASYNC110  # what is waited for has no event
                await asyncio.sleep(INTERVAL)
        assert len(w.seen) == 1


async def test_a_driver_that_comes_later_is_found(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "RARELY", 3)
    nvml.set(nvmlInitWithFlags__error=NOT_LOADED)
    async with watching(make(nvml)) as w:
        assert (await w.until(lambda g: True)).error == "no_driver"
        nvml.set()
        await w.until(lambda g: g.ok)


@pytest.mark.parametrize("said", ["not json", '{"error": null}', "x" * 200_000])
async def test_nonsense_from_the_helper_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    script = tmp_path / "helper.py"
    script.write_text(f"import sys\nfor _ in sys.stdin:\n    print({said!r}, flush=True)\n")
    monkeypatch.setattr(gpu_module, "HELPER", script)
    monkeypatch.setattr(gpu_module, "MAX_ANSWER", 1000)
    async with watching(GpuSource(BootClock(), sources())) as w:
        assert "nonsense" in ((await w.until(lambda g: True)).error or "")


async def test_the_helper_gets_a_clean_environment_and_ends_with_the_source(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x")
    async with watching(make(nvml)) as w:
        await w.until(lambda g: g.ok)
        pid = w.source.helper_pid
        environment = proc(pid, "environ")
    assert "NOTIFY_SOCKET" not in environment and "CREDENTIALS" not in environment
    assert not alive(pid)


async def test_the_helper_dies_with_the_daemon(nvml: FakeNvml, tmp_path: Path) -> None:
    """Also one that is wedged, and although nobody closes its socket in order: the daemon is killed."""
    nvml.set(**{f"gpu0__{RUNNING}__block": 1})
    script = f"""
import asyncio
from watchdog.clock import BootClock
from watchdog.config import Sources
from watchdog.observe.gpu import GpuSource
source = GpuSource(BootClock(), Sources(gpu_interval_s=0.1, gpu_limit_s=0.4), {nvml.environment!r})
asyncio.run(source.run(lambda o: print(source.helper_pid, flush=True), lambda: None))
"""
    root = Path(__file__).parents[2]
    daemon = await asyncio.create_subprocess_exec(
        gpu_module.sys.executable, "-c", script, cwd=root, stdout=asyncio.subprocess.PIPE
    )
    assert daemon.stdout is not None
    pid = int(await asyncio.wait_for(daemon.stdout.readline(), 30))
    assert alive(pid)
    daemon.kill()
    await daemon.wait()
    await ended(pid)


async def test_the_price(nvml: FakeNvml) -> None:
    """Figures of the requirement: at most 5 ms of the daemon's CPU for a round over eight GPUs, 30 MiB for the helper."""
    async with watching(make(nvml, gpu_interval_s=0.1)) as w:
        await w.until(lambda g: g.ok)
        before, rounds = resource.getrusage(resource.RUSAGE_SELF), len(w.seen)
        async with asyncio.timeout(30):
            while len(w.seen) < rounds + 10:  # noqa: ASYNC110
                await asyncio.sleep(INTERVAL)
        after, rounds = resource.getrusage(resource.RUSAGE_SELF), len(w.seen) - rounds
        cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / rounds
        status = proc(w.source.helper_pid, "status")
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
    assert cpu < 0.005
    assert peak < 30
