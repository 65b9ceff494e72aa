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


class People:
    """One alerter for all servers. All methods but `reload` only write to memory."""

    def __init__(self, whole: config.Config, state: Path, clock: Clock, tasks: Background) -> None:
        self._state = state
        self._clock = clock
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._down: dict[str, str | None] = {}
        self.alerter = self._start(whole)

    def _start(self, whole: config.Config) -> Alerter:
        alerter = Alerter(whole.alert, whole.servers, whole.daemon.mode, state=self._state, clock=self._clock, log=get())
        self._task = self._tasks.create_task(self._run(alerter), name="alerts")
        return alerter

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
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=5.0)
        self.alerter = self._start(whole)

    def meet(self, watch: Watch) -> None:
        """A server is watched from now on: alerts that the daemon before us could not hand over are raised again."""
        for reason in self.alerter.reconcile(watch.server.name, watch.engine.ledger.alerts):
            watch.engine.ledger.alerts.pop(reason, None)

    def decided(self, watch: Watch, t: float, intent: Intent) -> None:
        """Something was decided."""
        self.alerter.tell(watch.server.name, self._clock.wall(t), intent)

    def acted(self, watch: Watch, reason: str, result: str, detail: str) -> None:
        """Something was done, or came to nothing."""
        self.alerter.acted(watch.server.name, self._clock.wall(self._clock.now()), reason, result, detail)

    def recovered(self, watch: Watch, message: str) -> None:
        """A server has proved that it is well."""
        self.alerter.recovered(watch.server.name, self._clock.wall(self._clock.now()), message)

    def look(self, watch: Watch) -> None:
        """A server that a person has stopped is no news until it runs again."""
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
