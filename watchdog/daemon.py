"""The daemon: wires sources, judges and actions together, keeps time, speaks with systemd. Everything runs in one event loop."""

import asyncio
import contextlib
import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from watchdog import __version__, config
from watchdog.act.notify import Notifier
from watchdog.act.rights import rights
from watchdog.clock import BootClock, Clock
from watchdog.control import Control
from watchdog.judge.verdict import Intent
from watchdog.log import get
from watchdog.observation import Gpu, GpuDevice, GpuProc, Observation, Probe, Unit
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.deps import DepsSource
from watchdog.observe.endpoint import EndpointSource
from watchdog.observe.engine_info import EngineInfoSource
from watchdog.observe.gpu import GpuSource
from watchdog.observe.journal import JournalSource, KernelSource
from watchdog.observe.memory import CgroupSource, HostSource
from watchdog.observe.myself import SelfSource, Senses
from watchdog.observe.port import PortSource
from watchdog.observe.processes import ProcessSource
from watchdog.observe.scrape import ScrapeSource
from watchdog.observe.source import Source
from watchdog.observe.unit import UnitSource
from watchdog.recorder import FLUSH_S
from watchdog.requests import Requests
from watchdog.respond import Responder
from watchdog.sources import Run, ended, running
from watchdog.systemd import Bus
from watchdog.watch import Watch
from watchdog.worker import BusyError, Worker

if TYPE_CHECKING:
    from watchdog.web.server import Web

STATUS_S = 2.0
SAVE_S = 30.0
RIGHTS_S = 600.0
STOP_LIMIT_S = 5.0
DISK_LIMIT_S = 30.0


def folders(whole: config.Config) -> tuple[Path, Path]:
    """(state, runtime) folders: systemd's StateDirectory= and RuntimeDirectory= come before the configuration."""
    state = os.environ.get("STATE_DIRECTORY", "").split(":")[0] or whole.daemon.state_dir
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or whole.daemon.runtime_dir
    return Path(state), Path(runtime)


class Server:
    """One watched server with all that belongs to it."""

    def __init__(self, watch: Watch, responder: Responder) -> None:
        self.watch = watch
        self.responder = responder
        self.endpoint: EndpointSource | None = None
        self.port: PortSource | None = None
        self.processes: ProcessSource | None = None
        self.journal: JournalSource | None = None
        self.runs: list[Run] = []
        self.task: asyncio.Task[None] | None = None
        self.may_restart: bool | None = None


class Daemon:
    """Runs until SIGTERM or SIGINT."""

    def __init__(self, whole: config.Config, path: Path | None, clock: Clock | None = None) -> None:
        """Prepare, without I/O.

        Args:
            whole: the checked configuration.
            path: its file, read again on SIGHUP; None: a reload is refused.
            clock: the program's clock.
        """
        self.whole = whole
        self.path = path
        self.clock = clock or BootClock()
        self.log = get()
        self.notifier = Notifier()
        self.bus = Bus()
        self.state_dir, self.runtime_dir = folders(whole)
        self.cgroups = Cgroups()
        self.servers: dict[str, Server] = {}
        self.shared: list[Run] = []
        self.requests = Requests(self)
        self._tasks: asyncio.TaskGroup | None = None
        self._shared_task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._self_source: SelfSource | None = None
        self._web: Web | None = None
        self._web_task: asyncio.Task[None] | None = None
        self._disk = Worker("recorder")
        self._said = ""
        self._ticked_at = self.clock.now()

    # ---- life

    async def run(self) -> None:
        """Run until told to stop."""
        faulthandler.enable()  # systemd's watchdog sends SIGABRT: the journal then gets our stacks
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        async with Control(self.runtime_dir, self.requests.answer), asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            background = [tasks.create_task(self.bus.run(), name="bus")]
            for settings in self.whole.servers:
                self._add(settings)
            self._share()
            self._serve_page()
            mode = ", ".join(f"{s.watch.server.name} ({s.watch.mode})" for s in self.servers.values())
            self.log.info("started", message=f"sglang-watchdog {__version__} watches {mode}")
            self.notifier.ready(self.status())
            background += [
                tasks.create_task(self._tick(), name="tick"),
                tasks.create_task(self._keep(), name="keep"),
                tasks.create_task(self._ask_rights(), name="rights"),
            ]
            for server in self.servers.values():
                background.append(tasks.create_task(server.responder.resume_job(), name="resume"))
            await self._until_stopped()
            self.notifier.stopping("stopping")
            self.log.info("stopping", message="stopping; the server is left as it is")
            for s in self.servers.values():
                if s.task is not None:
                    await ended(s.task, STOP_LIMIT_S)
                await s.responder.save()
            if self._shared_task is not None:
                await ended(self._shared_task, STOP_LIMIT_S)
            if self._web_task is not None:
                await ended(self._web_task, STOP_LIMIT_S)
            for task in background:
                task.cancel()
            with contextlib.suppress(TimeoutError, BusyError):
                await self._flush()
            for s in self.servers.values():
                s.responder.cancel()
        self.notifier.close()

    async def _until_stopped(self) -> None:
        while not self._stop.is_set():
            stop, reload = (asyncio.ensure_future(e.wait()) for e in (self._stop, self._reload))
            _, waiting = await asyncio.wait((stop, reload), return_when=asyncio.FIRST_COMPLETED)
            for w in waiting:
                w.cancel()
            if self._reload.is_set():
                self._reload.clear()
                await self.reload()

    # ---- wiring

    def _add(self, settings: config.Server) -> None:
        """Begin to watch a server."""
        assert self._tasks is not None
        watch = Watch(settings, self.whole, self.state_dir / settings.name, self.clock, self._decided)
        responder = Responder(watch, self.bus, self.whole, self._tasks)
        server = Server(watch, responder)
        self.servers[settings.name] = server
        self._start_sources(server)

    def _start_sources(self, server: Server) -> None:
        assert self._tasks is not None
        target, clock = server.watch.target, self.clock
        sources = self.whole.sources
        server.journal = JournalSource(target, clock)
        server.processes = ProcessSource(target, clock, sources, self.cgroups)
        server.port = PortSource(target, clock, self.cgroups)
        wanted: list[Source] = [
            UnitSource(target, clock, self.bus, sources.unit_interval_s),
            server.journal,
            server.processes,
            CgroupSource(target, clock, sources, self.cgroups),
            EngineInfoSource(target, clock, self.cgroups),
        ]
        if target.server.endpoint:
            server.endpoint = EndpointSource(target, clock)
            wanted += [server.endpoint, server.port]
            if target.server.metrics.enabled:
                wanted.append(ScrapeSource(target, clock))
        take = self._taker(server)
        server.runs = [Run(source, clock, take, target.server.name) for source in wanted]
        server.task = self._tasks.create_task(running(server.runs), name=f"sources of {target.server.name}")

    def _share(self) -> None:
        """Start the sources that look at the host, once for all servers."""
        assert self._tasks is not None
        sources = self.whole.sources
        self._self_source = SelfSource(self.clock, self._senses)
        wanted: list[Source] = [self._self_source, HostSource(self.clock, sources), KernelSource(self.clock)]
        if sources.deps:
            wanted.append(DepsSource(sources.deps, self.clock, self.bus))
        if sources.gpu != "off":
            wanted.append(GpuSource(self.clock, sources, lambda _pid: None))
        self.shared = [Run(source, self.clock, self._fan_out) for source in wanted]
        self._shared_task = self._tasks.create_task(running(self.shared), name="shared sources")

    def _serve_page(self) -> None:
        """Serve the status page, if it is wanted; else its code is not even loaded."""
        assert self._tasks is not None
        self._web = self._web_task = None
        if not self.whole.web.enabled:
            return
        from watchdog.web.page import Source as Shown  # noqa: PLC0415
        from watchdog.web.server import Web  # noqa: PLC0415

        shown = Shown(
            status=lambda: self.requests.answer({"command": "status"}),
            watches=lambda: [s.watch for s in self.servers.values()],
            alive=lambda: self.alive(self.clock.now()),
        )
        self._web = Web(self.whole.web, shown)
        self._web_task = self._tasks.create_task(self._web.run(), name="status page")

    def _taker(self, server: Server) -> Callable[[Observation], None]:
        def take(x: Observation) -> None:
            server.watch.take(x)
            if isinstance(x, Probe) and x.outcome == "refused" and server.port is not None:
                server.port.look_now()
            elif isinstance(x, Unit) and server.processes is not None:
                server.processes.look_now()

        return take

    def _fan_out(self, x: Observation) -> None:
        """Hand an observation of the host to each server."""
        for server in self.servers.values():
            server.watch.take(self._seen_by(server, x) if isinstance(x, Gpu) else x)

    def _seen_by(self, server: Server, x: Gpu) -> Gpu:
        """The same GPUs with their processes told apart: ours, another watched server's (unknown), or a stranger's."""
        others = [s.watch.target.cgroup for s in self.servers.values() if s is not server and s.watch.target.cgroup]
        own = server.watch.target.cgroup

        def whose(p: GpuProc) -> GpuProc:
            paths = _cgroups_of(p.pid)
            if paths is None:
                return p
            mine = bool(own) and any(_below(path, own) for path in paths)
            neighbour = any(_below(path, other) for path in paths for other in others)
            return msgspec.structs.replace(p, in_unit=True if mine else None if neighbour else False)

        def seen(g: GpuDevice) -> GpuDevice:
            return g if not g.procs else msgspec.structs.replace(g, procs=[whose(p) for p in g.procs])

        return msgspec.structs.replace(x, gpus=[seen(g) for g in x.gpus])

    def _decided(self, watch: Watch, t: float, intent: Intent) -> None:
        server = self.servers.get(watch.server.name)
        if server is not None:
            server.responder.handle(t, intent)

    def _senses(self) -> Senses:
        runs = {r.source.name: r for r in self.shared}
        gpu = runs.get("gpu")
        seen = [s.watch.latest.get(Gpu) for s in self.servers.values()]
        journals = [s.journal for s in self.servers.values() if s.journal is not None]
        rights_known = [s.may_restart for s in self.servers.values()]
        return Senses(
            journal_ok=all(j.healthy() for j in journals) if journals else None,
            bus_ok=self.bus.connected,
            nvml_ok=None if gpu is None else next((g.ok for g in seen if isinstance(g, Gpu)), None),
            dropped=sum(j.dropped for j in journals) + sum(s.watch.recorder.dropped for s in self.servers.values()),
            shutting_down=self.bus.shutting_down,
            may_restart=False if False in rights_known else None if None in rights_known else True,
        )

    # ---- time

    async def _tick(self) -> None:
        """Judge on a grid, tell systemd how we are, and that we are."""
        step = min(1.0, self.whole.daemon.tick_s)
        if self.notifier.interval_s is not None:
            step = min(step, self.notifier.interval_s / 2)
        judged = said = self.clock.now()
        while True:
            await asyncio.sleep(step)
            now = self.clock.now()
            if now - self._ticked_at > step + 5.0 and self._self_source is not None:
                # We did not run: the report on ourselves must come before anything is judged again.
                self._self_source.look_now()
                judged = now
            self._ticked_at = now
            if now - judged >= self.whole.daemon.tick_s:
                judged = now
                for server in self.servers.values():
                    server.watch.tick()
                if self._web is not None:
                    self._web.page.look()
                    server.responder.look_at_recovery()
            if now - said >= STATUS_S or self.status() != self._said:
                said, self._said = now, self.status()
                self.notifier.status(self._said)
            if self.alive(now):
                self.notifier.watchdog()

    def alive(self, now: float) -> bool:
        """Whether every mandatory source gives signs of life: WATCHDOG=1 hangs on it."""
        runs = [r for s in self.servers.values() for r in s.runs] + self.shared
        return all(r.alive(now) for r in runs if r.source.mandatory)

    def status(self) -> str:
        """One sentence on every server, the first that is ill in front."""
        parts = [(s.watch, s.watch.sentence()) for s in self.servers.values()]
        if len(parts) == 1:
            return parts[0][1]
        return " · ".join(f"{watch.server.name}: {text}" for watch, text in parts)

    async def _keep(self) -> None:
        """Write down what must survive: the record every few seconds, the state when it changed."""
        saved = self.clock.now()
        while True:
            await asyncio.sleep(FLUSH_S)
            with contextlib.suppress(TimeoutError, BusyError):
                await self._flush()
            now = self.clock.now()
            for server in self.servers.values():
                if server.watch.dirty or now - saved >= SAVE_S:
                    await server.responder.save()
            if now - saved >= SAVE_S:
                saved = now

    async def _flush(self) -> None:
        work = [w for s in self.servers.values() if (w := s.watch.recorder.pending()) is not None]
        if work:
            await self._disk.call(lambda: [w() for w in work], DISK_LIMIT_S)

    async def _ask_rights(self) -> None:
        """Learn by day whether we may restart by night."""
        while True:
            if await self.bus.until_connected(60.0):
                for server in self.servers.values():
                    server.may_restart = (await rights(self.bus, server.watch.server.unit)).restart
                if self._self_source is not None:
                    self._self_source.look_now()
            await asyncio.sleep(RIGHTS_S)

    # ---- reload

    async def reload(self) -> str | None:
        """Read the configuration again; a bad one is kept out. Returns why it was refused, None if it was taken."""
        self.notifier.reloading("reading the configuration")
        try:
            if self.path is None:
                raise config.ConfigError(
                    [config.Fault("--config", "", "no file was given at start", "restart the daemon with --config FILE")],
                    "reload",
                )
            whole = config.load(self.path)
        except config.ConfigError as e:
            self.log.error("reload-refused", message=f"the new configuration is kept out: {e}")
            self.notifier.ready(self.status())
            return str(e)
        page_before, self.whole = self.whole.web, whole
        wanted = {s.name: s for s in whole.servers}
        for name in [n for n, s in self.servers.items() if n not in wanted or wanted[n].unit != s.watch.server.unit]:
            server = self.servers.pop(name)
            if server.task is not None:
                await ended(server.task, STOP_LIMIT_S)
            await server.responder.save()
        for name, settings in wanted.items():
            known = self.servers.get(name)
            if known is None:
                self._add(settings)
                continue
            if known.task is not None:
                await ended(known.task, STOP_LIMIT_S)
            known.watch.reconfigure(settings, whole)
            known.responder.reconfigure(whole)
            self._start_sources(known)
        if self._shared_task is not None:
            await ended(self._shared_task, STOP_LIMIT_S)
        self._share()
        if whole.web != page_before:
            if self._web_task is not None:
                await ended(self._web_task, STOP_LIMIT_S)
            self._serve_page()
        self.log.info("reloaded", message=f"configuration read again from {self.path}")
        self.notifier.ready(self.status())
        return None

    def describe(self) -> dict[str, Any]:
        """What the daemon says of itself when asked."""
        now = self.clock.now()
        runs = [*self.shared, *(r for s in self.servers.values() for r in s.runs)]
        return {
            "version": __version__,
            "pid": os.getpid(),
            "up_s": round(now, 1),
            "alive": self.alive(now),
            "sources": [
                {"name": r.source.name, "beat_age_s": round(now - r.beat_at, 1), "falls": r.falls, "error": r.error} for r in runs
            ],
        }


def _below(path: str, cgroup: str) -> bool:
    return path == cgroup or path.startswith(f"{cgroup}/")


def _cgroups_of(pid: int) -> list[str] | None:
    """The cgroups of a process (cgroups(7)), one for each hierarchy; None if it is gone or hidden."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
