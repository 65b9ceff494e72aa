"""Server-sent events (WHATWG HTML): the whole status first, then what changes, to a bounded number of readers.

While nobody reads, nothing is made. A reader that does not keep up is cut off; a browser then comes back by itself.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from watchdog.log import get
from watchdog.web.page import Page

READERS = 16
PERIOD_S = 1.0
BACKLOG = 8
"""So many events may wait for one reader."""
RETRY_MS = 2000
NOTHING = b":\n\n"
"""A comment: whoever has gone is noticed by writing to him."""

_encode = msgspec.json.Encoder().encode


def event(kind: str, data: dict[str, Any]) -> bytes:
    """One event. The JSON has no line break, so it is one `data:` line."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode(data))


def without_ages(status: dict[str, Any]) -> dict[str, Any]:
    """The status without the ages of conditions: they grow by themselves, and readers have the moments."""
    for server in status["servers"]:
        for condition in server["conditions"]:
            condition.pop("since_age_s", None)
            condition.pop("reason_age_s", None)
    return status


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """What is to be laid over `old` to make `new`: keys of servers, by name; None if servers came or went."""
    before = {s["name"]: s for s in old["servers"]}
    after = {s["name"]: s for s in new["servers"]}
    if list(before) != list(after):
        return None
    servers = {name: {k: v for k, v in s.items() if before[name].get(k) != v} for name, s in after.items()}
    rest = {k: v for k, v in new.items() if k != "servers" and old.get(k) != v}
    return {**rest, "servers": {name: changed for name, changed in servers.items() if changed}}


class Reader:
    """One open page."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self.waiting: asyncio.Queue[bytes] = asyncio.Queue(BACKLOG)
        self.task = asyncio.current_task()
        self._transport = transport

    def cut_off(self) -> None:
        """End its connection at once, with all that is still to be sent."""
        if self._transport is not None:
            self._transport.abort()


class Stream:
    """Hands the status to all readers; works only while there are some.

    Attributes:
        readers: who reads now.
        dropped: how many were cut off since they did not keep up.
    """

    def __init__(
        self,
        page: Page,
        period_s: float = PERIOD_S,
        readers: int = READERS,
        entered: Callable[[web.Request], None] = lambda _request: None,
    ) -> None:
        """`entered` is called with each request that becomes a stream."""
        self.readers: set[Reader] = set()
        self.dropped = 0
        self._page = page
        self._period_s = period_s
        self._most = readers
        self._entered = entered
        self._coming = 0
        self._last: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._entrance = asyncio.Lock()

    @property
    def running(self) -> bool:
        """Whether the status is being made again and again."""
        return self._task is not None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one reader until it leaves, is too slow, or the daemon ends."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"})
        response.force_close()
        if request.method == "HEAD":
            await response.prepare(request)
            return response
        reader = await self._enter(request)
        self._entered(request)
        try:
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % RETRY_MS)
            while True:
                await response.write(await reader.waiting.get())
        except ConnectionResetError:
            return response
        finally:
            self.readers.discard(reader)
            if not self.readers:
                self._rest()

    async def _enter(self, request: web.Request) -> Reader:
        if len(self.readers) + self._coming >= self._most:
            raise web.HTTPServiceUnavailable(text="too many pages are open: ask /api/status\n", headers={"Retry-After": "10"})
        self._coming += 1
        try:
            async with self._entrance:  # two that come at once must begin with the same status
                if self._task is None:
                    self._last = without_ages(await self._page.status())
                    self._task = asyncio.create_task(self._run(), name="status stream")
                reader = Reader(request.transport)
                reader.waiting.put_nowait(event("status", self._last))
                self.readers.add(reader)
                return reader
        finally:
            self._coming -= 1

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                new = without_ages(await self._page.status())
            except Exception as e:  # noqa: BLE001  # a page must never end the daemon
                get().error("page", message=f"the status for the page could not be made: {e!r}")
                self._hand_out(NOTHING)
                continue
            patch = difference(self._last, new)
            self._last = new
            self._hand_out(event("status", new) if patch is None else event("patch", patch))

    def _hand_out(self, message: bytes) -> None:
        for reader in list(self.readers):
            try:
                reader.waiting.put_nowait(message)
            except asyncio.QueueFull:
                self.dropped += 1
                self.readers.discard(reader)
                reader.cut_off()

    def _rest(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = None

    async def close(self) -> None:
        """Send all readers away."""
        tasks = [r.task for r in self.readers if r.task is not None]
        for task in tasks:
            task.cancel()
        self._rest()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*tasks, return_exceptions=True)
