"""The GPUs, through NVML in a helper process (nvml_helper.py) that may hang or die without harm to the daemon.

One helper, one question at a time. A question that is not answered within `gpu_limit_s` is the observation "driver_timeout",
again every interval until an answer comes. A helper that stays silent three times as long is killed; where the kernel keeps
it (state D), no second one is started beside it: it would wedge as well, and such processes pile up.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.clock import Clock
from watchdog.observation import Gpu, GpuDevice
from watchdog.observe.files import read
from watchdog.observe.source import Beat, Emit
from watchdog.worker import BusyError, Worker

HELPER = Path(__file__).with_name("nvml_helper.py")
MAX_ANSWER = 4 << 20
"""Bytes of one answer; eight GPUs with their processes take about 5 KiB."""

KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Nothing else of our environment goes to the helper: not NOTIFY_SOCKET, WATCHDOG_USEC, credentials, LISTEN_FDS."""

PATIENCE = 3
"""A silent helper is killed after so many `gpu_limit_s`: the first question initialises the driver, which is slow without
nvidia-persistenced."""

USERS_LIMIT_S = 1.0
"""So long the cgroups of the processes on the GPUs are waited for, in seconds."""

RETRY = 3
RARELY = 60
"""After an error we ask again after so many intervals; without a driver after so many (5 minutes at 5 s)."""


class _Answer(msgspec.Struct):
    error: str | None
    count: int | None
    gpus: list[GpuDevice]


class HelperError(Exception):
    """The helper ended, or said something that is no answer; the message is for people."""


def _spawn(channel: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # From the main thread, though it blocks for a few milliseconds: the helper asks to die with the thread that started it.
    # What it prints to standard error (a traceback) goes to our journal.
    command = [sys.executable, "-P", str(HELPER), str(os.getpid())]
    return subprocess.Popen(command, stdin=channel, stdout=channel, env=environment, cwd="/")


class Helper:
    """The helper process. Made by `start`.

    Attributes:
        asked: the loop's time at which the unanswered question was put; None if there is none.
    """

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._answer: asyncio.Task[bytes] | None = None
        self._decode = msgspec.json.Decoder(_Answer).decode
        self.asked: float | None = None

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> "Helper":
        """Start the process.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _spawn(theirs.fileno(), environment)
            except OSError:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_ANSWER)
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        """Whether the process is gone (and reaped)."""
        return self._process.poll() is not None

    async def ask(self, limit: float) -> _Answer | None:
        """Put the question, unless it stands already, and wait `limit` seconds for the answer; None if none came.

        Raises:
            HelperError: the helper ended or answered nonsense.
        """
        loop = asyncio.get_running_loop()
        if self._answer is None:
            self.asked = loop.time()
            self._writer.write(b"\n")
            self._answer = loop.create_task(self._reader.readuntil())
        await asyncio.wait({self._answer}, timeout=limit)
        if not self._answer.done():
            return None
        answer, self._answer, self.asked = self._answer, None, None
        try:
            return self._decode(answer.result())
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise HelperError("the NVML helper ended without an answer") from e
        except (asyncio.LimitOverrunError, msgspec.DecodeError) as e:
            raise HelperError(f"the NVML helper answered nonsense: {e}") from e

    async def close(self, limit: float = 0.5) -> bool:
        """Let go of it and kill it; True if it is gone within `limit` seconds."""
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.wait({self._answer})
            self._answer = self.asked = None
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        self._process.kill()
        for _ in range(round(limit / 0.005)):
            if self.ended():
                break
            await asyncio.sleep(0.005)
        return self.ended()

    def status(self) -> str:
        """How it ended, for people."""
        code = self._process.returncode
        if code is None:
            return "still there"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


class GpuSource:
    """Reads NVML every `sources.gpu_interval_s` seconds (observe/source.Source). Not to be used where `sources.gpu` is "off".

    A lost GPU gives ok=False, error="lost", with the others in `gpus` where NVML still shows them; "reset_required" likewise.

    Args:
        clock: the program's clock.
        sources: intervals and limits.
        environment: variables for the helper beside PATH, LD_LIBRARY_PATH and PYTHONPATH.
        proc: the root of procfs.
        before: the source that this one follows, at a reload: so many GPUs as it has seen are expected still.

    Attributes:
        cgroups: /proc/PID/cgroup of the processes in the last observation, by pid, as far as it could be read.
    """

    name = "gpu"
    mandatory = False

    def __init__(
        self,
        clock: Clock,
        sources: config.Sources,
        environment: Mapping[str, str] | None = None,
        proc: Path = Path("/proc"),
        before: "GpuSource | None" = None,
    ) -> None:
        self._clock = clock
        self._sources = sources
        self.cgroups: Mapping[int, bytes] = {}
        self._proc = proc
        self._worker = Worker("gpu users")
        self._environment = {k: os.environ[k] for k in KEPT if k in os.environ} | {"LC_ALL": "C.UTF-8"} | dict(environment or {})
        self._helper: Helper | None = None
        self._doomed: Helper | None = None
        self.period_s = sources.gpu_interval_s + sources.gpu_limit_s + USERS_LIMIT_S
        self._most: int = 0 if before is None else before._most
        """The largest number of GPUs seen: so many are expected where `gpus_expected` is 0."""

    @property
    def helper_pid(self) -> int | None:
        """The living helper, for tests."""
        helper = self._helper or self._doomed
        return None if helper is None else helper.pid

    async def run(self, emit: Emit, beat: Beat) -> None:
        loop = asyncio.get_running_loop()
        interval = self._sources.gpu_interval_s
        due = loop.time()
        try:
            while True:
                if loop.time() >= due:
                    began = loop.time()
                    observation = await self._look()
                    emit(observation)
                    due = began + interval * _pause(observation.error)
                beat()
                # at most one interval at a time, so that we beat although the next question may be minutes away
                await asyncio.sleep(max(0.0, min(due - loop.time(), interval)))
        finally:
            await self._drop()

    async def _look(self) -> Gpu:
        """One observation; takes at most `gpu_limit_s` and `USERS_LIMIT_S`, and a little where a helper has to be ended."""
        if self._doomed is not None:
            if not self._doomed.ended():
                return self._failed("driver_timeout")
            self._doomed = None
        limit = self._sources.gpu_limit_s
        try:
            if self._helper is None:
                self._helper = await Helper.start(self._environment)
            asked = self._helper.asked
            # one that is late already has had its limit: look in, no more
            answer = await self._helper.ask(limit if asked is None else min(limit, self._sources.gpu_interval_s))
        except OSError as e:
            return self._failed(f"the NVML helper does not start: {e.strerror}")
        except HelperError as e:
            helper = self._helper
            await self._drop()
            return self._failed(f"{e} ({helper.status()})" if helper is not None else str(e))
        if answer is None:
            now = asyncio.get_running_loop().time()
            if asked is not None and now - asked >= PATIENCE * limit:
                await self._drop()
            return self._failed("driver_timeout")
        if answer.error is not None:
            await self._drop()
        self._most = max(self._most, answer.count or 0, len(answer.gpus))
        self.cgroups = await self._users(answer.gpus)
        return Gpu(
            t=self._clock.now(),
            ok=answer.error is None,
            error=answer.error,
            gpus=answer.gpus,
            expected=self._expected(),
        )

    async def _drop(self) -> None:
        """End the helper; one that cannot be ended is kept in mind, so that no second one is started."""
        helper, self._helper = self._helper, None
        if helper is not None and not await helper.close():
            self._doomed = helper

    async def _users(self, gpus: list[GpuDevice]) -> Mapping[int, bytes]:
        """To which cgroups the processes on the GPUs belong. They may be anybody's, and their files are read once for all."""
        pids = {p.pid for g in gpus for p in g.procs or ()}
        if not pids:
            return {}
        try:
            found = await self._worker.call(lambda: {pid: read(self._proc / str(pid) / "cgroup") for pid in pids}, USERS_LIMIT_S)
        except (TimeoutError, BusyError):
            return {}
        return {pid: text for pid, text in found.items() if text}

    def _failed(self, error: str) -> Gpu:
        return Gpu(t=self._clock.now(), ok=False, error=error, expected=self._expected())

    def _expected(self) -> int | None:
        return self._sources.gpus_expected or self._most or None


def told_apart(x: Gpu, whose: Callable[[int], bool | None]) -> Gpu:
    """The same GPUs; of each process it is said whether it belongs to the watched server (by its pid; None: unknown)."""

    def seen(g: GpuDevice) -> GpuDevice:
        procs = [msgspec.structs.replace(p, in_unit=whose(p.pid)) for p in g.procs or ()]
        return msgspec.structs.replace(g, procs=procs) if procs else g

    return msgspec.structs.replace(x, gpus=[seen(g) for g in x.gpus])


def _pause(error: str | None) -> int:
    """After how many intervals to look again."""
    if error is None or error == "driver_timeout":
        return 1
    return RARELY if error == "no_driver" else RETRY
