"""Our own look at servers where no daemon runs, in a thread with an event loop."""

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import Any

from watchdog import config
from watchdog.cli.exits import CommandError
from watchdog.verify.onlooker import Onlooker

TURN_S = 0.25
END_LIMIT_S = 5.0


class Alone:
    """Looks until it is closed."""

    def __init__(self, whole: config.Config, names: list[str]) -> None:
        """Begin to look.

        Args:
            whole: the configuration.
            names: of the servers.
        """
        self._seen: list[dict[str, Any]] = []
        self._error: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(whole, names), daemon=True)
        self._thread.start()

    def views(self) -> list[dict[str, Any]]:
        """What is known by now (watchdog/view.py); empty at first. What ended the look is raised here."""
        if self._error is not None:
            raise self._error
        return self._seen

    def close(self) -> None:
        """Stop looking."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_LIMIT_S)

    def _run(self, whole: config.Config, names: list[str]) -> None:
        try:
            self._loop.run_until_complete(self._look(whole, names))
        except Exception as e:  # noqa: BLE001  # told by whoever asks next
            self._error = e
        finally:
            self._loop.close()

    async def _look(self, whole: config.Config, names: list[str]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sglang-watchdog-")))
            except OSError as e:
                raise CommandError(f"no temporary folder can be made ({e.strerror}): name another place in TMPDIR") from e
            lookers = [Onlooker(s, whole, folder / s.name) for s in whole.servers if s.name in names]
            for looker in lookers:
                await stack.enter_async_context(looker.watching())
            while not self._stop.is_set():
                self._seen = [looker.view() for looker in lookers]
                await asyncio.sleep(TURN_S)
