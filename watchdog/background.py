"""Tasks that run beside each other until the daemon ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Like asyncio.TaskGroup, but a task that does not end when it is cancelled cannot hold up the end of all.

    Attributes:
        fallen: done as soon as a task has raised, with what it raised.
    """

    def __init__(self) -> None:
        self.fallen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()

    def create_task(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin `work`."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.fallen.done():
            self.fallen.set_exception(error)

    async def end(self, limit_s: float) -> list[str]:
        """Cancel all tasks and wait for their end, for at most `limit_s` seconds; the names of those that did not end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        self.fallen.cancel()
        return [task.get_name() for task in tasks if not task.done()]
