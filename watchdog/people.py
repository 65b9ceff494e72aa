"""Tells people: hands what was decided and done to the alerter, and lets it follow the configuration."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from watchdog import config
from watchdog.act.alerts import Alerter, Result
from watchdog.background import Background
from watchdog.clock import Clock
from watchdog.judge.verdict import Intent
from watchdog.log import get
from watchdog.watch import Watch
from watchdog.wording import NOT_RESTARTED
from watchdog.worker import Worker

READ_LIMIT_S = 3.0
"""So long what is kept is waited for, in seconds."""


class People:
    """One alerter for all servers. All methods but `start`, `reload` and `test` only write to memory."""

    def __init__(self, whole: config.Config, state: Path, clock: Clock, tasks: Background) -> None:
        self._whole = whole
        self._state = state
        self._clock = clock
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._late: asyncio.Task[None] | None = None
        self._down: dict[str, str | None] = {}
        self._watches: dict[str, Watch] = {}
        self.alerter = self._made(read=False)

    async def start(self) -> None:
        """Begin to tell, with what is kept as far as its disk answers in time; else without, until it does."""
        reading = self._tasks.create_task(Worker("alerts kept").call(self._made, None), name="alerts kept")
        await asyncio.wait([reading], timeout=READ_LIMIT_S)
        if reading.done():
            self._go_on_with(reading.result())
            return
        where, cure = self._state / "alerts", "look at its disk, or at what mounts it"
        lost = "alerts are sent, but not kept, and what waited there is sent once it can be read"
        get().error("state-lost", message=f"{where} cannot be read yet: {lost}; {cure}")
        self._go_on_with(self._made(read=False))
        self._late = self._tasks.create_task(self._take_up(reading), name="alerts kept, late")

    def _made(self, *, read: bool = True) -> Alerter:
        whole = self._whole
        alert, servers, mode = whole.alert, whole.servers, whole.daemon.mode
        return Alerter(alert, servers, mode, state=self._state, clock=self._clock, log=get(), paused=self._paused, read=read)

    def _paused(self, server: str) -> str | None:
        watch = self._watches.get(server)
        if watch is None or not watch.engine.facts.paused(self._clock.now()):
            return None
        return f"{NOT_RESTARTED}{watch.stand_down()}"

    def _go_on_with(self, alerter: Alerter) -> None:
        """Nothing is lost that the one before was told last, or could not keep."""
        alerter.go_on(self.alerter)
        self.alerter = alerter
        self._task = self._tasks.create_task(self._run(alerter), name="alerts")

    async def _take_up(self, reading: "asyncio.Task[Alerter]") -> None:
        """Go on with what was kept, once it has been read."""
        alerter = await reading
        await self._stop()
        self._go_on_with(alerter)

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=5.0)

    async def _run(self, alerter: Alerter) -> None:
        """Alerts must never take the daemon along: what falls is told and started again."""
        while True:
            try:
                await alerter.run()
            except Exception as e:  # noqa: BLE001
                get().error("source-failed", message=f"the alerter fell: {type(e).__name__}: {e}", source="alerts")
            await asyncio.sleep(10.0)

    async def reload(self, whole: config.Config) -> None:
        """Go on with other channels; what waits to be sent is on disk and goes on too."""
        self._whole = whole
        if self._late is not None:
            self._late.cancel()
        await self._stop()
        await self.start()

    def meet(self, watch: Watch) -> None:
        """A server is watched from now on: alerts that the daemon before us could not hand over are raised again."""
        self._watches[watch.server.name] = watch
        for reason in self.alerter.reconcile(watch.server.name, watch.engine.ledger.alerts):
            watch.engine.ledger.alerts.pop(reason, None)

    def decided(self, watch: Watch, t: float, intent: Intent) -> None:
        """Something was decided."""
        self._watches[watch.server.name] = watch
        self.alerter.tell(watch.server.name, self._clock.wall(t), intent)

    def acted(self, watch: Watch, reason: str, result: str, detail: str) -> None:
        """Something was done, or came to nothing."""
        self.alerter.acted(watch.server.name, self._clock.wall(self._clock.now()), reason, result, detail)

    def recovered(self, watch: Watch, message: str) -> None:
        """A server has proved that it is well, or was taken down."""
        self.alerter.recovered(watch.server.name, self._clock.wall(self._clock.now()), message)

    def look(self, watch: Watch) -> None:
        """A server that a person has stopped is no news until it runs again."""
        self._watches[watch.server.name] = watch
        why = watch.stand_down() if watch.engine.facts.life.down else None
        if self._down.get(watch.server.name) != why:
            self._down[watch.server.name] = why
            self.alerter.stand_down(watch.server.name, why)

    async def test(self, channel: str = "") -> Sequence[Result]:
        """Prove each channel, or one.

        Raises:
            ValueError: there is no such channel.
        """
        return await self.alerter.test(channel)
