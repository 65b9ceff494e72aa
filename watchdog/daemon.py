"""The daemon: wires sources, judges and actions together, keeps time, speaks with systemd. Everything runs in one event loop."""

import asyncio
import contextlib
import faulthandler
import functools
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from watchdog import __version__, config
from watchdog.act.notify import Notifier
from watchdog.act.rights import rights
from watchdog.background import Background
from watchdog.clock import BootClock, Clock
from watchdog.config.changes import changed, told
from watchdog.control import Control
from watchdog.judge.verdict import Intent
from watchdog.keeper import Keeper
from watchdog.known_keys import learn
from watchdog.log import get
from watchdog.observation import Gpu, Observation, Self
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.deps import DepsSource
from watchdog.observe.gpu import GpuSource
from watchdog.observe.journal import KernelSource
from watchdog.observe.memory import HostSource
from watchdog.observe.myself import LONG_GAP_S, SelfSource, Senses
from watchdog.observe.source import Source
from watchdog.people import People
from watchdog.recall import LIMIT_S as RECALL_LIMIT_S
from watchdog.recall import Recall, recalled, unread
from watchdog.requests import Requests
from watchdog.respond import Responder
from watchdog.roster import Roster
from watchdog.server import Server, owned
from watchdog.single import TAKEN_S, TakenError, alone
from watchdog.sources import Run, ended, running
from watchdog.state import folders
from watchdog.systemd import Bus
from watchdog.watch import Watch
from watchdog.worker import BusyError, Worker

if TYPE_CHECKING:
    from watchdog.web.server import Web

TELL_S = 5.0
"""systemd hears from us this often, and at once where there is news. Each word costs as much as three looks at the journal."""
RIGHTS_S = 600.0
RIGHTS_AGAIN_S = 10.0
"""Between two looks while the right to restart is missing: somebody may be about to grant it."""
STEP_S = 1.0
BUS_PATIENCE_S = 15.0
RELOAD_LIMIT_S = 5.0
READ_LIMIT_S = 5.0
STOP_LIMIT_S = 2.0
LAST_FLUSH_S = 1.0
KEYS_LIMIT_S = 3.0


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
        self.roster = Roster(self.clock)
        self.servers = self.roster.servers
        self.requests = Requests(self.roster, self.reload)
        self._tasks: Background | None = None
        self._shared_task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._disk, self._keys = Worker("configuration"), Worker("keys")
        self._ask_rights_now = asyncio.Event()
        self._self_source: SelfSource | None = None
        self._kernel: KernelSource | None = None
        self._gpu: GpuSource | None = None
        self.people: People | None = None
        self._web: Web | None = None
        self._web_task: asyncio.Task[None] | None = None
        self._keeper = Keeper(self.clock, lambda: list(self.servers.values()))
        self._control = Control(self.runtime_dir, self.requests.answer)
        self._host_seen = (False, False)
        self._ticked_at = self._bus_seen_at = self.clock.now()

    # ---- life

    async def run(self) -> None:
        """Run until told to stop.

        Raises:
            TakenError: another daemon is at work here.
            Exception: a fault of the daemon's own loops, which systemd's Restart= has to mend.
        """
        faulthandler.enable()  # systemd's watchdog sends SIGABRT: the journal then gets our stacks
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        patience_s = TAKEN_S if self.notifier.enabled else 0.0
        try:
            lock = await alone(self.state_dir, self._control.check, patience_s, self._stop, self.notifier.waiting)
        except TakenError:
            if self._stop.is_set():
                return
            raise
        self._tasks = tasks = Background()
        async with self._control:
            self._ticked_at = self._bus_seen_at = self.clock.now()
            tasks.create_task(self.bus.run(), name="bus")
            await self._learn_keys()
            self.people = People(self.whole, self.state_dir, self.clock, tasks)
            await self.people.start()
            self._share()
            await self._add(self.whole.servers)
            self._serve_page()
            mode = ", ".join(f"{s.watch.server.name} ({s.watch.mode})" for s in self.servers.values())
            self.log.info("started", message=f"sglang-watchdog {__version__} watches {mode}")
            self.notifier.ready(self.roster.sentence())
            tasks.create_task(self._tick(), name="tick")
            tasks.create_task(self._keeper.run(), name="keep")
            tasks.create_task(self._ask_rights(), name="rights")
            try:
                await self._until_stopped(tasks)
            finally:
                self.notifier.stopping("stopping")
                await self._end(tasks)
        self.notifier.close()
        if lock is not None:
            os.close(lock)

    async def _end(self, tasks: Background) -> None:
        """Write down what must survive, and end; whatever hangs is left behind."""
        self.log.info("stopping", message="stopping; the servers are left as they are")
        stuck = await tasks.end(STOP_LIMIT_S)
        if stuck:
            self.log.warning("stopping", message=f"these did not end and are left behind: {', '.join(stuck)}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_S):
                await asyncio.gather(self._keeper.flush(), *(s.responder.save() for s in self.servers.values()))

    async def _until_stopped(self, tasks: Background) -> None:
        stop = asyncio.ensure_future(self._stop.wait())
        while not stop.done():
            begun = asyncio.ensure_future(self._reload.wait())
            waited: list[asyncio.Future[Any]] = [stop, tasks.fallen, begun]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
            if self._reload.is_set() and not stop.done():
                self._reload.clear()
                waited[-1] = self._reload_begun()  # which the end of all tasks breaks off
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if tasks.fallen.done():
                tasks.fallen.result()

    async def _learn_keys(self) -> None:
        """Before anything is observed. A file system that does not answer holds us up for a moment only."""
        whole = self.whole
        with contextlib.suppress(TimeoutError, BusyError):
            await self._keys.call(lambda: learn(whole), KEYS_LIMIT_S)

    # ---- wiring

    async def _add(self, wanted: list[config.Server]) -> None:
        """Begin to watch servers, with what is remembered of them as far as their disk answers in time."""
        assert self._tasks is not None
        known = [recalled(self.state_dir / s.name, self.clock, s.unit) for s in wanted]
        readings = [self._tasks.create_task(each, name=f"memory of {s.name}") for each, s in zip(known, wanted, strict=True)]
        if readings:
            await asyncio.wait(readings, timeout=RECALL_LIMIT_S)
        for settings, reading in zip(wanted, readings, strict=True):
            self._begin(settings, reading)

    def _begin(self, settings: config.Server, reading: asyncio.Task[Recall]) -> None:
        assert self._tasks is not None
        known = reading.result() if reading.done() else unread()
        watch = Watch(settings, self.whole, self.state_dir / settings.name, self.clock, self._decided, known=known)
        denied = functools.partial(self._denied, settings.name)
        responder = Responder(watch, self.bus, self.whole, self._tasks, self.people, denied=denied)
        server = Server(watch, responder, known)
        self.servers[settings.name] = server
        responder.resume()
        if known.read:
            self._meet(server)
        else:
            self._tasks.create_task(self._remember(server, reading), name=f"late memory of {settings.name}")
        self._start_sources(server)
        self._ask_rights_now.set()

    def _meet(self, server: Server) -> None:
        """What is remembered of a server is known: so are the alerts that stand."""
        if self.people is not None:
            self.people.meet(server.watch)

    async def _remember(self, server: Server, reading: asyncio.Task[Recall]) -> None:
        """Take up what could not be read in time, unless the server is no longer watched."""
        known = await reading
        if self.servers.get(server.watch.server.name) is server:
            await server.remember(known)
            self._meet(server)
            await server.responder.save()

    def _start_sources(self, server: Server) -> None:
        assert self._tasks is not None
        sources = server.sources(self.whole.sources, self.bus, self.cgroups)
        name = server.watch.server.name
        server.runs = [Run(source, self.clock, self._taker(server), name) for source in sources]
        server.task = self._tasks.create_task(running(server.runs), name=f"sources of {name}")

    def _share(self) -> None:
        """Start the sources that look at the host, once for all servers."""
        assert self._tasks is not None
        sources = self.whole.sources
        self._self_source = SelfSource(self.clock, Senses)
        self._kernel = KernelSource(self.clock, before=self._kernel)
        wanted: list[Source] = [self._self_source, HostSource(self.clock, sources), self._kernel]
        if sources.deps:
            wanted.append(DepsSource(sources.deps, self.clock, self.bus))
        if sources.gpu != "off":
            self._gpu = GpuSource(self.clock, sources, before=self._gpu)
            wanted.append(self._gpu)
        self.roster.shared = [Run(source, self.clock, self._fan_out) for source in wanted]
        self._shared_task = self._tasks.create_task(running(self.roster.shared), name="shared sources")

    def _serve_page(self) -> None:
        """Serve the status page, if it is wanted; else its code is not even loaded."""
        assert self._tasks is not None
        self._web = self._web_task = None
        if not self.whole.web.enabled:
            return
        from watchdog.web.page import Shown  # noqa: PLC0415
        from watchdog.web.server import Web  # noqa: PLC0415

        shown = Shown(
            status=lambda: self.requests.answer({"command": "status"}),
            watches=self.roster.watches,
            alive=self.roster.alive,
        )
        self._web = Web(self.whole.web, shown, self._metrics)
        self._web_task = self._tasks.create_task(self._web.run(), name="status page")

    def _metrics(self) -> bytes:
        """What GET /metrics answers."""
        from watchdog.figures import figures  # noqa: PLC0415
        from watchdog.web.metrics import render  # noqa: PLC0415

        counts = self.people.alerter.counts() if self.people is not None else None
        lag_s = max(0.0, self.clock.now() - self._ticked_at - STEP_S)
        watches, runs, well = self.roster.watches(), self.roster.runs(), self.roster.reload_refused is None
        return render(figures(self.clock, watches, runs, counts, lag_s, reload_ok=well))

    def _taker(self, server: Server) -> Callable[[Observation], None]:
        def take(x: Observation) -> None:
            self._notice_gap(x.t)
            server.take(x)

        return take

    def _fan_out(self, x: Observation) -> None:
        """Hand an observation of the host, or of ourselves, to each server."""
        self._notice_gap(x.t)
        for server in self.servers.values():
            if isinstance(x, Gpu) and self._gpu is not None:
                others = [s.watch.target.cgroup for s in self.servers.values() if s is not server]
                server.watch.take(owned(x, server.watch.target.cgroup, others, self._gpu.cgroups))
            elif isinstance(x, Self):
                server.watch.take(msgspec.structs.replace(x, **msgspec.structs.asdict(server.senses(self.bus, self._bus_ok()))))
            else:
                server.watch.take(x)

    def _bus_ok(self) -> bool | None:
        """Whether systemd can be asked. A bus that is being connected to, at the start or anew, is no news yet."""
        if self.bus.connected:
            return True
        return False if self.clock.now() - self._bus_seen_at >= BUS_PATIENCE_S else None

    def _notice_gap(self, t: float) -> None:
        """Say that we did not run for a while, before anything that fell due meanwhile is judged."""
        gap_s = t - self._ticked_at - STEP_S
        if gap_s > LONG_GAP_S:
            self._ticked_at = t
            self._fan_out(Self(t=t, paused_s=round(gap_s, 3)))

    def _decided(self, watch: Watch, t: float, intent: Intent) -> None:
        server = self.servers.get(watch.server.name)
        if server is not None:
            server.responder.handle(t, intent)
            if self.people is not None:
                self.people.decided(watch, t, intent)

    # ---- time

    async def _tick(self) -> None:
        """Judge on a grid, tell systemd how we are, and that we are."""
        interval_s = self.notifier.interval_s or math.inf
        step, tell_s = min(STEP_S, interval_s / 2), min(TELL_S, interval_s / 2)
        judged = said_at = self.clock.now()
        said = ""
        while True:
            await asyncio.sleep(min(step, self.whole.daemon.tick_s))
            now = self.clock.now()
            self._notice_gap(now)
            self._ticked_at = now
            self._look_at_host(now)
            await self._control.look()
            if now - judged >= self.whole.daemon.tick_s:
                judged = now
                for server in self.servers.values():
                    server.watch.tick()
                    server.responder.look_at_recovery()
                    if self.people is not None:
                        self.people.look(server.watch)
                if self._web is not None:
                    self._web.page.look()
            status = self.roster.sentence()
            if (status != said or now - said_at >= tell_s) and self.notifier.tell(status, alive=self.roster.alive()):
                said, said_at = status, now

    def _look_at_host(self, now: float) -> None:
        """Say at once that the bus has been gone for too long or is back, and that the host goes down."""
        if self.bus.connected:
            self._bus_seen_at = now
        seen = (self._bus_ok() is False, self.bus.shutting_down is True)
        if seen != self._host_seen and self._self_source is not None:
            self._self_source.look_now()
        self._host_seen = seen

    async def _ask_rights(self) -> None:
        """Learn by day whether we may restart by night."""
        while True:
            self._ask_rights_now.clear()
            if await self.bus.until_connected(RIGHTS_AGAIN_S):
                for server in list(self.servers.values()):
                    told = (await rights(self.bus, server.watch.server.unit)).restart
                    if told is not None:  # else systemd could not be asked, or not of this unit: what was known stands
                        server.may_restart = told
                if self._self_source is not None:
                    self._self_source.look_now()
            known = all(s.may_restart for s in self.servers.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RIGHTS_S if known else RIGHTS_AGAIN_S):
                    await self._ask_rights_now.wait()

    def _denied(self, name: str) -> None:
        """The right to restart is gone, as polkit has shown: that is known before the refusal is judged; ask for it anew."""
        server = self.servers.get(name)
        if server is not None:
            server.may_restart = False
            senses = msgspec.structs.asdict(server.senses(self.bus, self._bus_ok()))
            server.watch.take(Self(t=self.clock.now(), **senses))
        self._ask_rights_now.set()

    # ---- reload

    async def reload(self) -> str | None:
        """Read the configuration again; a bad one is kept out. Returns why it was refused, None if it was taken.

        It is broken off when the daemon is told to stop: its parts may each wait for a disk.
        """
        return await self._reload_begun()

    def _reload_begun(self) -> "asyncio.Task[str | None]":
        assert self._tasks is not None
        return self._tasks.create_task(self._read_again(), name="reload")

    async def _read_again(self) -> str | None:
        async with self._reloading:
            self.notifier.reloading("reading the configuration")
            try:
                whole = await self._read()
            except Exception as e:  # noqa: BLE001  # whatever a file can do to its reader, it must not end the daemon
                refused = str(e) if isinstance(e, config.ConfigError) else f"it cannot be read ({type(e).__name__}: {e})"
                self.log.error("reload-refused", message=f"the new configuration is kept out: {refused}")  # noqa: TRY400
                self.roster.reload_refused = refused
                return refused
            else:
                self.roster.reload_refused = None
                news = told(changed(self.whole, whole))
                await self._take_up(whole)
                self.log.info("reloaded", message=f"configuration read again from {self.path}; {news}")
                return None
            finally:
                if not self._stop.is_set():
                    self.notifier.ready(self.roster.sentence())

    async def _read(self) -> config.Config:
        path = self.path
        if path is None:
            fault = config.Fault("--config", "", "no file was given at start", "restart the daemon with --config FILE")
            raise config.ConfigError([fault], "reload")
        try:
            return await self._disk.call(lambda: config.load(path), READ_LIMIT_S)
        except (TimeoutError, BusyError) as e:
            cure = "look at it, or at what mounts it"
            fault = config.Fault("", "", "cannot be read, since its disk does not answer", cure)
            raise config.ConfigError([fault], str(path)) from e

    async def _take_up(self, whole: config.Config) -> None:
        """Go on with another configuration; what is known of a server that stays, stays."""
        page_before, self.whole = self.whole.web, whole
        await self._learn_keys()
        wanted = {s.name: s for s in whole.servers}
        gone = [n for n, s in self.servers.items() if n not in wanted or wanted[n].unit != s.watch.server.unit]
        kept = [s for n, s in self.servers.items() if n not in gone]
        await self._stop_sources([self.servers[n] for n in gone] + kept)
        left = [self.servers.pop(name) for name in gone]
        for server in left:
            server.responder.cancel()
        for server in kept:
            server.watch.reconfigure(wanted[server.watch.server.name], whole)
            server.responder.reconfigure(whole)
            self._start_sources(server)
        self._share()
        await asyncio.gather(*(server.responder.save() for server in left))
        await self._add([settings for name, settings in wanted.items() if name not in self.servers])
        if self.people is not None:
            await self.people.reload(whole)
        if whole.web != page_before:
            if self._web_task is not None:
                await ended(self._web_task, RELOAD_LIMIT_S)
            self._serve_page()

    async def _stop_sources(self, servers: list[Server]) -> None:
        """End the sources of these servers and of the host. One that does not end goes on unheard."""
        runs = [r for s in servers for r in s.runs] + self.roster.shared
        tasks = [t for t in (*(s.task for s in servers), self._shared_task) if t is not None]
        for r in runs:
            r.silence()
        await asyncio.gather(*(ended(t, RELOAD_LIMIT_S) for t in tasks))
