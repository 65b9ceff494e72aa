"""One watched server inside the daemon: its sources, its watch, and who acts for it."""

import asyncio
from collections.abc import Iterable, Mapping

from watchdog import config
from watchdog.learning import Learner
from watchdog.observation import Gpu, Observation, Probe, Unit
from watchdog.observe.cgroup import Cgroups, contains
from watchdog.observe.endpoint import EndpointSource
from watchdog.observe.engine_info import EngineInfoSource
from watchdog.observe.gpu import told_apart
from watchdog.observe.journal import JournalSource
from watchdog.observe.memory import CgroupSource
from watchdog.observe.myself import Senses
from watchdog.observe.port import PortSource
from watchdog.observe.processes import ProcessSource
from watchdog.observe.scrape import ScrapeSource
from watchdog.observe.source import Source
from watchdog.observe.unit import UnitSource
from watchdog.recall import Recall
from watchdog.respond import Responder
from watchdog.sources import Run
from watchdog.systemd import Bus
from watchdog.watch import Watch


class Server:
    """One watched server with all that belongs to it.

    Attributes:
        runs: its sources at work.
        task: what runs them.
        may_restart: whether polkit lets us restart its unit; None: not known.
    """

    def __init__(self, watch: Watch, responder: Responder, known: Recall | None = None) -> None:
        self.watch = watch
        self.responder = responder
        self.learner = Learner(watch, known=known)
        self.endpoint: EndpointSource | None = None
        self.journal: JournalSource | None = None
        self.runs: list[Run] = []
        self.task: asyncio.Task[None] | None = None
        self.may_restart: bool | None = None
        self._port: PortSource | None = None
        self._processes: ProcessSource | None = None

    def sources(self, settings: config.Sources, bus: Bus, cgroups: Cgroups) -> list[Source]:
        """Fresh sources for this server, as its configuration wants them."""
        target, clock = self.watch.target, self.watch.clock
        self.journal = JournalSource(target, clock, before=self.journal)
        self._processes = ProcessSource(target, clock, settings, cgroups)
        wanted: list[Source] = [
            UnitSource(target, clock, bus, settings.unit_interval_s),
            self.journal,
            self._processes,
            CgroupSource(target, clock, settings, cgroups),
            EngineInfoSource(target, clock, cgroups),
        ]
        asked, self.endpoint, self._port = self.endpoint, None, None
        if target.server.endpoint:
            self.endpoint = EndpointSource(target, clock, before=asked)
            self._port = PortSource(target, clock, cgroups)
            wanted += [self.endpoint, self._port]
            if target.server.metrics.enabled:
                wanted.append(ScrapeSource(target, clock))
        return wanted

    async def remember(self, known: Recall) -> None:
        """Take in what its files remember, which could not be read when we began."""
        await self.responder.idle()
        self.watch.remember(known)
        self.learner.remember(known)
        self.responder.take_over()
        self.responder.resume()

    def take(self, x: Observation) -> None:
        """Take in an observation of this server."""
        self.watch.take(x)
        if isinstance(x, Probe) and x.outcome == "refused" and self._port is not None:
            self._port.look_now()
        elif isinstance(x, Unit) and self._processes is not None:
            self._processes.look_now()

    def senses(self, bus: Bus, bus_ok: bool | None) -> Senses:
        """What we know of our senses, as far as they concern this server."""
        gpu = self.watch.latest.get(Gpu)
        return Senses(
            journal_ok=None if self.journal is None else self.journal.healthy(),
            bus_ok=bus_ok,
            nvml_ok=gpu.ok if isinstance(gpu, Gpu) else None,
            dropped=0 if self.journal is None else self.journal.dropped,
            shutting_down=bus.shutting_down,
            may_restart=self.may_restart,
            fallen=[f"{r.source.name} ({r.why})" for r in self.runs if r.falls_often(self.watch.clock.now())],
        )


def owned(x: Gpu, own: str, others: Iterable[str], cgroups: Mapping[int, bytes]) -> Gpu:
    """The same GPUs, their processes told apart: of the cgroup `own`, of another watched server (unknown), or a stranger's.

    Args:
        x: the GPUs.
        own: the server's cgroup; "" while it has none.
        others: those of the other servers.
        cgroups: /proc/PID/cgroup of the processes, by pid.
    """
    others = list(others)

    def whose(pid: int) -> bool | None:
        text = cgroups.get(pid)
        if text is None:
            return None
        if contains(own, text):
            return True
        return None if any(contains(other, text) for other in others) else False

    return told_apart(x, whose)
