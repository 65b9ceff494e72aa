"""A status page with made-up servers behind it, served on loopback by the real server."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watchdog import config
from watchdog.clock import BootClock, Clock
from watchdog.judge.verdict import Intent
from watchdog.observation import Answer, Cgroup, Gpu, GpuDevice, Host, Log, Probe, Self, Unit
from watchdog.view import server_view
from watchdog.watch import Watch
from watchdog.web.page import Shown
from watchdog.web.server import Web

GIB = 2**30
LIFE = "0123456789abcdef0123456789abcdef"
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


def make_watch(folder: Path, name: str = "kimi", *, mode: str = "act", clock: Clock | None = None) -> Watch:
    """A watch without sources: a test hands it its observations."""

    def decided(watch: Watch, t: float, intent: Intent) -> None:
        watch.note(t, "intent" if watch.mode == "act" else "would", f"{intent.action}: {intent.message}", intent.reason)

    settings = config.Server(name=name, unit=f"sglang-{name}.service", mode=mode)
    return Watch(settings, config.Config(servers=[settings]), folder / name, clock or BootClock(), decided)


def start(watch: Watch) -> None:
    """The unit is active, and the host has been looked at."""
    t = watch.clock.now()
    watch.target.inv = LIFE
    watch.take(Unit(t=t, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=t - 90.0))
    watch.take(Host(t=t, mem_total=2160 * 10**9, mem_available=1460 * 10**9, mem_free=900 * 10**9))
    watch.take(Cgroup(t=t, inv=LIFE, memory_current=640 * 10**9, anon=630 * 10**9, shmem=0, file=4 * 10**9))
    watch.take(Self(t=t, journal_ok=True, bus_ok=True, nvml_ok=True, may_restart=True))


def log(watch: Watch, *lines: str) -> None:
    """Lines of the server's journal."""
    for line in lines:
        watch.take(Log(t=watch.clock.now(), inv=LIFE, message=line, pid=7))


def serve(watch: Watch) -> None:
    """The server is ready and answers."""
    start(watch)
    for rank in range(8):
        log(watch, f"[2026-01-14 01:59:58 TP{rank}] Allocating 44.77 GB host memory for hierarchical KV cache.")
    log(watch, READY)
    probe(watch, "chat", "ok", status=200, total_s=0.84, answer=Answer(text="Paris", finish_reason="stop", completion_tokens=2))
    probe(watch, "health", "ok", status=200, total_s=0.02)
    watch.tick()


def probe(watch: Watch, kind: str, outcome: str, **fields: Any) -> None:
    """A probe that ended."""
    watch.take(Probe(t=watch.clock.now(), inv=LIFE, probe=kind, outcome=outcome, **fields))


def gpus(count: int = 8, **odd: Any) -> Gpu:
    """GPUs, all alike but the fourth, which has the fields of `odd`."""
    usual = {
        "util": 0.93,
        "mem_used": 128 * GIB,
        "mem_total": 140 * GIB,
        "power_w": 612.0,
        "power_limit_w": 700.0,
        "temp_c": 58.0,
    }
    usual |= {"sm_mhz": 1830.0, "sm_max_mhz": 1980.0, "throttle": []}
    devices = [GpuDevice(index=i, **(usual | (odd if i == 3 else {}))) for i in range(count)]
    return Gpu(t=0.0, ok=True, gpus=devices, expected=count)


def source(watches: list[Watch], *, alive: Callable[[], bool] = lambda: True) -> Shown:
    """What the daemon tells the page, for these watches."""

    async def status() -> dict[str, Any]:
        daemon = {"version": "0.1.0", "pid": 1, "up_s": 60.0, "alive": alive(), "sources": []}
        return {"daemon": daemon, "status": "", "servers": [{**server_view(w), "bundle": None} for w in watches]}

    return Shown(status=status, watches=lambda: watches, alive=alive)


class Site:
    """The page in a thread of its own, to be used in a `with` statement.

    Attributes:
        url: its address.
    """

    def __init__(self, watches: list[Watch]) -> None:
        self._web = Web(config.Web(enabled=True, port=0), source(watches))
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = ""

    def __enter__(self) -> "Site":
        self._thread.start()
        assert self._ready.wait(10)
        self.url = f"http://127.0.0.1:{self._web.port}/"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        async def main() -> None:
            self._task = asyncio.ensure_future(self._web.run())
            while self._web.port is None:  # noqa: ASYNC110  # the server has no event for it
                await asyncio.sleep(0.01)
            self._ready.set()
            await asyncio.wait([self._task])

        self._loop.run_until_complete(main())

    def call(self, work: Callable[[], None]) -> None:
        """Do something in the page's thread, which owns the watches, and wait for its end."""
        done = threading.Event()

        def body() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(body)
        assert done.wait(10)

    def drop_readers(self) -> None:
        """Cut off all open pages."""
        self.call(lambda: [reader.cut_off() for reader in self._web.stream.readers] and None)
