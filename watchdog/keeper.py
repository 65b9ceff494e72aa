"""Writes down what must survive the daemon: flight records every few seconds, state and baseline when they changed."""

import asyncio
from collections.abc import Callable, Collection

from watchdog.clock import Clock
from watchdog.recorder import FLUSH_S
from watchdog.server import Server
from watchdog.worker import NO_THREAD_CURE, NoThreadError, Worker

SAVE_S = 30.0
DISK_LIMIT_S = 30.0


class Keeper:
    """One for all servers. A disk that does not answer holds up nothing but itself."""

    def __init__(self, clock: Clock, servers: Callable[[], Collection[Server]]) -> None:
        self._clock = clock
        self._servers = servers
        self._disk = Worker("recorder")

    async def run(self) -> None:
        """Write for ever."""
        saved = self._clock.now()
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()
            now = self._clock.now()
            for server in self._servers():
                await server.learner.keep()
                if server.watch.dirty or now - saved >= SAVE_S:
                    await server.responder.save()
            if now - saved >= SAVE_S:
                saved = now

    async def flush(self) -> None:
        """Write the flight records on; while a write before is stuck they wait in memory, within their bounds."""
        watches = [s.watch for s in self._servers()]
        troubles = [watch.recorder.trouble for watch in watches]
        work = [] if self._disk.busy else [w for watch in watches if (w := watch.recorder.pending()) is not None]
        cure = "free space, or mend its owner and mode"
        if work:
            try:
                await self._disk.call(lambda: [w() for w in work], DISK_LIMIT_S)
            except NoThreadError as e:
                cure = NO_THREAD_CURE
                for watch in watches:
                    watch.recorder.put_off(str(e))
            except TimeoutError:
                pass
        for watch, before in zip(watches, troubles, strict=True):
            now = watch.recorder.trouble
            if now is not None and now != before:
                said = f"the flight record cannot be written ({now}): {cure}; it goes on in memory"
                watch.log.error("record-lost", message=said)
