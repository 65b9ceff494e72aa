"""A deep check of a stand-in server, without systemd: its log file is the journal."""

import random
from typing import Any

from tests.standin.server import StandIn
from watchdog import config
from watchdog.clock import BootClock
from watchdog.judge.facts.baseline import Baseline
from watchdog.observation import Log, Probe, Server
from watchdog.observe.scrape import ScrapeSource
from watchdog.observe.source import Target
from watchdog.verify.deep import findings
from watchdog.verify.deep.done import Done
from watchdog.verify.deep.plan import Limits, Plan, plan
from watchdog.verify.deep.run import Deep
from watchdog.verify.findings import Item
from watchdog.verify.life import Life
from watchdog.verify.seen import Seen

PLENTY = Limits(tokens=500_000, seconds=60.0)


class Checked:
    """One stand-in, deeply checked as often as a test wants."""

    def __init__(self, server: StandIn, seed: int = 1) -> None:
        self.server = server
        self.settings = config.Server(name="s", unit="s.service", base_url=f"http://127.0.0.1:{server.port}")
        self._source = random.Random(seed)
        self.done = Done()
        self._told = 0

    async def lines(self, since: float = 0.0) -> Life:
        """All lines; with a moment, those since the deep check began (the file has no finer times)."""
        life = Life()
        for line in self.server.output.read_text(errors="replace").splitlines()[self._told if since else 0 :]:
            life.see(Log(t=0.0, inv="1", message=line))
        return life

    async def seen(self) -> Seen:
        info = self.server.get("/server_info").json
        clock = BootClock()
        return Seen(
            server=self.settings,
            engine=Server(t=0.0, version=info["version"], args=info),
            life=await self.lines(),
            metrics=await ScrapeSource(Target(self.settings), clock).scrape(),
            probes={"chat": Probe(t=0.0, probe="chat", outcome="ok")},
        )

    async def run(self, limits: Limits = PLENTY, *, force: bool = False) -> tuple[Plan, Done]:
        seen = await self.seen()
        planned = plan(seen, limits)
        self._told = len(self.server.output.read_text(errors="replace").splitlines())
        self.done = await Deep(seen, planned, BootClock(), self._source, self.lines, force=force).run()
        return planned, self.done

    async def items(self, limits: Limits = PLENTY, baseline: Baseline | None = None, **more: Any) -> dict[str, Item]:
        """The findings by name."""
        planned, done = await self.run(limits, **more)
        assert done.requests <= planned.requests and done.tokens <= planned.tokens and done.took_s <= planned.seconds + 0.5
        return {item.item: item for item in findings.check(await self.seen(), planned, done, baseline)}
