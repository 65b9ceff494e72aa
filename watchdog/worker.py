"""Blocking work beside the event loop, in a thread that may never come back.

Files below /proc of a process whose memory map is locked, a full or dead disk, a wedged driver: a read of them can block for
ever, and a blocked thread cannot be ended. asyncio.to_thread would keep the interpreter from exiting then; these threads
are daemon threads, and a `Worker` never has more than one of them.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
RETRY_S = 0.2
"""Where no thread is to be had (TasksMax=, a limit of the host), it is tried again so often."""
NO_THREAD_CURE = "raise it, or end what takes the threads"


class BusyError(Exception):
    """The work before is still blocked."""


class NoThreadError(TimeoutError):
    """No thread was to be had within the limit: the work was never begun."""

    def __str__(self) -> str:
        return "no thread is to be had (TasksMax= of the watchdog's unit, or a limit of the host)"


def unanswered(e: Exception) -> str:
    """Why a disk's answer did not come, and what to do: for a TimeoutError or a BusyError of a `Worker`, as a phrase."""
    if isinstance(e, NoThreadError):
        return f"{e}: {NO_THREAD_CURE}"
    return "the disk does not answer: look at it, or at what mounts it"


class Worker:
    """Runs one piece of blocking work at a time.

    Attributes:
        busy: whether a piece of work runs, perhaps one that was given up.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy = False

    async def call(self, work: Callable[[], T], limit_s: float | None) -> T:
        """The result of `work()`, from a thread of its own.

        Args:
            work: what to do; what it raises is raised here.
            limit_s: after so many seconds it is given up; its thread runs on until the work returns, and the result is dropped.
                None: it is waited for as long as it takes.

        Raises:
            TimeoutError: it took longer than the limit; NoThreadError: all that time, no thread was to be had for it.
            BusyError: the work before has not returned yet.
        """
        if self.busy:
            raise BusyError(self.name)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def finish(value: T | None, error: BaseException | None) -> None:
            self.busy = False
            if result.done():
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)  # type: ignore[arg-type]  # None only where T allows it

        def body() -> None:
            value: T | None = None
            error: BaseException | None = None
            try:
                value = work()
            except BaseException as e:  # noqa: BLE001 (it belongs to the caller)
                error = e
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(finish, value, error)

        self.busy = True
        begun = False
        try:
            async with asyncio.timeout(limit_s):
                while not (begun := self._begun(body)):  # noqa: ASYNC110
                    await asyncio.sleep(RETRY_S)
                return await result
        except TimeoutError as e:
            if begun:
                raise
            raise NoThreadError from e
        finally:
            if not begun:
                self.busy = False

    def _begun(self, body: Callable[[], None]) -> bool:
        """Whether a thread was to be had for it."""
        try:
            threading.Thread(target=body, name=self.name, daemon=True).start()
        except RuntimeError:
            return False
        return True
