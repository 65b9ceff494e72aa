"""Looks at everything once, for `verify`: the sources of the daemon, each run until it has said its word, within a deadline.

It needs no daemon. Where one watches the same server, it is the daemon that asks /health: two of them at once would make a
stuck server look well (SGLang 0.5.x answers 200 past a stuck detokenizer when health checks overlap).
"""

import asyncio
import functools
import math
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from watchdog import asking, config
from watchdog.clean import without_secrets
from watchdog.clock import BootClock, Clock
from watchdog.observation import Cgroup, Deps, Gpu, Host, Log, Observation, Probe
from watchdog.observation import Server as Engine
from watchdog.observe.canary import Canary
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.deps import DepsSource
from watchdog.observe.engine_info import EngineInfoSource
from watchdog.observe.gpu import USERS_LIMIT_S, GpuSource, told_apart
from watchdog.observe.journal import JournalSource
from watchdog.observe.journal_reader import JournalError, JournalReader
from watchdog.observe.memory import CgroupSource, HostSource
from watchdog.observe.port import PortSource
from watchdog.observe.processes import ProcessSource
from watchdog.observe.scrape import ScrapeSource
from watchdog.observe.source import Source, Target
from watchdog.sources import ended
from watchdog.systemd import BOOTED, INFINITY_USEC, Bus, SystemdError, UnitState, parse, running
from watchdog.verify import journald
from watchdog.verify.life import Life
from watchdog.verify.seen import Seen, Settings
from watchdog.worker import BusyError, Worker

BUS_LIMIT_S = 5.0
NO_BUS_LIMIT_S = 0.5
"""Where systemd is not the init, a bus in another place may still answer; it is not waited for."""
LOOK_LIMIT_S = 8.0
END_LIMIT_S = 2.0
JOURNAL_LIMIT_S = 15.0
POLL_S = 0.05
QUIET_POLLS = 8
"""The journal is read to its end when so many looks in a row brought no line."""

ENGINE_LIMIT_S = 6.0
STARTED = "39f53479d3a045ac8e11786248231fbf"
"""MESSAGE_ID of PID 1's "Started …" (SD_MESSAGE_UNIT_STARTED, sd-messages.h)."""

DAY_S = 86400.0
MAY_NOT_ASK = "the daemon watches it, and may not be asked: run this as root"
TURNS = 2
"""The daemon may have a probe of its own on its way before it comes to ours."""
K = TypeVar("K", bound=Observation)


class Gatherer:
    """Looks at some servers of one configuration.

    Args:
        whole: the configuration.
        folder: where the daemon's control socket lies.
        limit_s: a canary is given up after so many seconds; the whole takes some seconds more at most.
    """

    def __init__(self, whole: config.Config, folder: Path, limit_s: float) -> None:
        self._whole = whole
        self._folder = folder
        self._limit_s = limit_s
        self._clock: Clock = BootClock()
        self._cgroups = Cgroups()
        self._bus = Bus(call_limit_s=BUS_LIMIT_S)
        self._begun = self._clock.now()

    async def looks(self, servers: list[config.Server]) -> list[Seen]:
        """What there is to see of each server."""
        self._begun = self._clock.now()
        async with running(self._bus):
            await self._bus.until_connected(BUS_LIMIT_S if BOOTED.is_dir() else NO_BUS_LIMIT_S)
            return list(await asyncio.gather(*(self.look(server) for server in servers)))

    async def look(self, server: config.Server) -> Seen:
        """Everything about one server, side by side."""
        probing = msgspec.structs.replace(
            server.probe,
            chat_limit_s=min(server.probe.chat_limit_s, self._limit_s),
            health_limit_s=min(server.probe.health_limit_s, self._limit_s),
        )
        server = msgspec.structs.replace(server, probe=probing)
        seen = Seen(server=server, gpus_expected=self._whole.sources.gpus_expected)
        target = Target(server)
        await self._unit(target, seen)
        target.hold = "starting"  # until the canary was answered, nothing else asks the scheduler
        jobs = [
            self._host(seen),
            self._journal(target, seen),
            self._processes(target, seen),
            self._memory(target, seen),
            self._engine(target, seen),
        ]
        if server.endpoint:
            jobs += [self._ask(target, seen), self._port(target, seen), self._cheap(target, seen)]
        tasks = [asyncio.create_task(job) for job in jobs]
        _, late = await asyncio.wait(tasks, timeout=self._limit_s + ENGINE_LIMIT_S + 2.0)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        seen.took_s = self._clock.now() - self._begun
        return seen

    async def lines(self, seen: Seen, since: float) -> Life | None:
        """What the life that was seen has written since a moment; None where it cannot be read."""
        target = Target(seen.server)
        if seen.unit is None or seen.life is None:
            return None
        self._aim(target, seen.unit)
        try:
            return await self._life(target, since)
        except (JournalError, OSError):
            return None

    # ---- systemd

    async def _unit(self, target: Target, seen: Seen) -> None:
        server = seen.server
        interval, burst = await asyncio.to_thread(journald.read, server.journal_namespace)
        try:
            raw = await self._bus.properties(await self._bus.load(server.unit))
        except SystemdError as e:
            seen.no_systemd = str(e)
            return
        state = parse(raw)
        seen.unit = state
        seen.settings = settings(raw, interval, burst)
        self._aim(target, state)
        if target.since is not None:
            seen.age_s = self._clock.now() - target.since

    def _aim(self, target: Target, state: UnitState) -> None:
        target.inv, target.main_pid, target.active = state.invocation, state.main_pid, state.up
        target.cgroup = target.server.cgroup or state.control_group or ""
        target.since = None if state.inactive_exit_at is None else self._clock.at_monotonic(state.inactive_exit_at)

    # ---- the machine

    async def _host(self, seen: Seen) -> None:
        sources = self._whole.sources
        # What other units hold of the GPUs is told from the cgroup of each process, where it can be read.
        cgroup = seen.server.cgroup or (seen.unit.control_group if seen.unit is not None else None)
        pids = set(self._cgroups.processes(cgroup or "") or [])
        looks: list[Coroutine[Any, Any, Observation | None]] = [
            first(HostSource(self._clock, sources), Host, LOOK_LIMIT_S),
            first(DepsSource(sources.deps, self._clock, self._bus), Deps, LOOK_LIMIT_S)
            if sources.deps and seen.no_systemd is None
            else nothing(),
            first(GpuSource(self._clock, sources), Gpu, sources.gpu_limit_s + USERS_LIMIT_S + 1.0)
            if sources.gpu != "off"
            else nothing(),
        ]
        for found in await asyncio.gather(*looks):
            if isinstance(found, Host):
                seen.host = found
            elif isinstance(found, Deps):
                seen.deps = found
            elif isinstance(found, Gpu):
                seen.gpu = told_apart(found, lambda pid: pid in pids if pids else None)

    async def _processes(self, target: Target, seen: Seen) -> None:
        if target.cgroup:
            seen.procs = await ProcessSource(target, self._clock, self._whole.sources, self._cgroups).look()

    async def _memory(self, target: Target, seen: Seen) -> None:
        if target.cgroup:
            source = CgroupSource(target, self._clock, self._whole.sources, self._cgroups)
            seen.cgroup = await first(source, Cgroup, LOOK_LIMIT_S)

    async def _port(self, target: Target, seen: Seen) -> None:
        seen.port = await PortSource(target, self._clock, self._cgroups).look()

    # ---- journal

    async def _journal(self, target: Target, seen: Seen) -> None:
        if seen.unit is None:
            seen.no_journal = "which life is the present one is not known without systemd"
        elif target.inv is None or not target.active:
            seen.no_journal = "the unit has no life at present"
        else:
            try:
                seen.life = await self._life(target)
                seen.starts = self._starts(seen.server.unit)
            except (JournalError, OSError) as e:
                seen.no_journal = str(e)

    async def _life(self, target: Target, since: float = -math.inf) -> Life:
        """The beginning and the end of this life, as the daemon's own source reads them; what was written since a moment."""
        life = Life()
        caught_up, heard = False, 0

        def emit(x: Observation) -> None:
            nonlocal caught_up, heard
            if isinstance(x, Log) and x.inv in (target.inv, None):
                heard += 1
                if x.written >= since:
                    life.see(x)
                caught_up = caught_up or x.at is None

        task = asyncio.create_task(JournalSource(target, self._clock).run(emit, lambda: None))
        end, quiet, before = self._clock.now() + JOURNAL_LIMIT_S, 0, -1
        try:
            while not task.done() and quiet < QUIET_POLLS and not caught_up and self._clock.now() < end:
                await asyncio.sleep(POLL_S)
                quiet, before = (quiet + 1 if heard == before else 0), heard
            if task.done():
                task.result()
        finally:
            await ended(task, END_LIMIT_S)
        return life

    def _starts(self, name: str) -> int:
        """How often PID 1 said within a day that it started the unit; 100 at most."""
        reader = JournalReader(self._clock, (("_PID=1", f"UNIT={name}", f"MESSAGE_ID={STARTED}"),))
        with reader.opened():
            oldest, _ = reader.first_of_last(100, 1 << 20, 0)
            if oldest is None:
                return 0
            reader.go(oldest)
            return sum(reader.written() > self._clock.now() - DAY_S for _ in reader.entries())

    # ---- API

    async def _ask(self, target: Target, seen: Seen) -> None:
        """The canary and /health beside each other; what else asks the scheduler waits for the canary's answer."""
        canary = Canary(seen.server, random.Random(), self._clock.now, lambda: seen.args)
        health = asyncio.create_task(self._health(canary, target, seen))
        try:
            if seen.server.probe.chat:
                seen.probes["chat"] = chat = await _asked(canary, "chat", target)
                if chat.outcome == "ok":
                    target.hold = None
            await health
        finally:
            health.cancel()

    async def _health(self, canary: Canary, target: Target, seen: Seen) -> None:
        request = {"command": "probe", "kind": "health", "server": seen.server.name}
        limit = min(TURNS * seen.server.probe.health_limit_s + 5.0, self._limit_s + ENGINE_LIMIT_S)
        try:
            answer = await Worker("daemon").call(functools.partial(asking.ask, self._folder, request, limit), limit + 1.0)
            told = answer.get("probes", {}).get(seen.server.name)
            seen.probes["health"] = msgspec.convert(told, Probe)
        except (asking.NoDaemonError, asking.RefusedError):
            seen.probes["health"] = await _asked(canary, "health", target)
        except asking.ForbiddenError:
            seen.no_health = MAY_NOT_ASK
        except asking.SlowError:
            seen.no_health = f"the daemon watches it, and did not tell of it within {limit:g} s: it or the server is slow"
        except asking.ControlError as e:
            seen.no_health = f"the daemon watches it, and could not be asked: {e}"
        except (TimeoutError, BusyError, msgspec.ValidationError, AttributeError):
            seen.no_health = "the daemon was asked for it, and did not tell"

    async def _cheap(self, target: Target, seen: Seen) -> None:
        """What the HTTP server answers by itself."""
        seen.probes["models"] = await _asked(Canary(seen.server, random.Random(), self._clock.now), "models", target)
        if seen.server.metrics.enabled:
            seen.metrics = await ScrapeSource(target, self._clock).scrape()

    async def _engine(self, target: Target, seen: Seen) -> None:
        """The command line; and /server_info once the canary was answered, since it asks the scheduler."""
        if not target.active:
            return

        def emit(x: Observation) -> None:
            if isinstance(x, Engine):
                seen.engine = x

        task = asyncio.create_task(EngineInfoSource(target, self._clock, self._cgroups, turn_s=0.1).run(emit, lambda: None))
        until = self._clock.now() + self._limit_s
        try:
            while self._clock.now() < until and not task.done():
                await asyncio.sleep(POLL_S)
                if target.hold is None:
                    until = min(until, self._clock.now() + ENGINE_LIMIT_S)
                    if seen.engine is not None and seen.engine.version is not None:
                        break
                elif "chat" in seen.probes or not seen.server.endpoint or not seen.server.probe.chat:
                    until = min(until, self._clock.now() + 1.0)  # it was not answered: the command line is all there is
        finally:
            await ended(task, END_LIMIT_S)


async def _asked(canary: Canary, kind: str, target: Target) -> Probe:
    """One probe, as the daemon would keep it: a server's words may hold keys and prompts."""
    return without_secrets(await canary.ask(kind, target.inv))


async def first(source: Source, kind: type[K], limit_s: float) -> K | None:
    """Run a source until it says something of a kind; None if it does not within the limit, or falls."""
    found: asyncio.Future[K] = asyncio.get_running_loop().create_future()

    def emit(x: Observation) -> None:
        if isinstance(x, kind) and not found.done():
            found.set_result(x)

    task = asyncio.create_task(source.run(emit, lambda: None))
    try:
        waited: set[asyncio.Future[Any]] = {found, task}
        await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended(task, END_LIMIT_S)
    return found.result() if found.done() else None


async def nothing() -> None:
    """What is not looked at."""


def settings(raw: dict[str, Any], interval_s: float | None, burst: int | None) -> Settings:
    """The settings that matter, from the unit's properties and journald's own."""

    def number(name: str) -> int | None:
        value = raw.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def finite(name: str, unit: float) -> float | None:
        value = number(name)
        return None if value is None else float("inf") if value >= INFINITY_USEC else value / unit

    def text(name: str) -> str | None:
        value = raw.get(name)
        return value if isinstance(value, str) else None

    return Settings(
        kill_mode=text("KillMode"),
        memlock=finite("LimitMEMLOCK", 1),
        rate_interval_s=finite("LogRateLimitIntervalUSec", 1e6),
        rate_burst=number("LogRateLimitBurst"),
        journald_interval_s=interval_s,
        journald_burst=burst,
        timeout_stop_s=finite("TimeoutStopUSec", 1e6),
        restart=text("Restart"),
    )
