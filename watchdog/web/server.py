"""The HTTP server of the status page: GET and HEAD only, nothing can be changed through it. Loaded only if web.enabled is set.

* `/`: the page, with its files beside it
* `/api/status`: everything as JSON
* `/api/events`: the same live, as server-sent events
* `/incidents/SERVER/NAME/summary.md`: one bundle's summary
* `/incidents/SERVER/NAME.tar.gz`: one bundle whole
* `/metrics`: for Prometheus
* `/healthz`: 200 if the daemon is well, else 503
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from watchdog import config
from watchdog.log import get
from watchdog.web import archive
from watchdog.web.door import CONNECTIONS, Door
from watchdog.web.guard import dress, guard
from watchdog.web.metrics import CONTENT_TYPE
from watchdog.web.page import Page, Shown
from watchdog.web.stream import Stream
from watchdog.worker import BusyError, Worker

DOWNLOADS = 2
AGAIN_S = 30.0
DISK_LIMIT_S = 8.0
STOP_LIMIT_S = 1.0
FRESH_S = 0.5
"""An answer of many KB is made at most so often; who asks meanwhile gets the same."""
LOOPBACK = ("127.", "::1", "localhost")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Web:
    """One for the daemon."""

    def __init__(self, settings: config.Web, shown: Shown, metrics: Callable[[], bytes] | None = None) -> None:
        """Prepare, without opening the port.

        Args:
            settings: the section [web].
            shown: what is to be shown.
            metrics: renders what GET /metrics answers (Prometheus' text format); None: 404.
        """
        self.settings = settings
        self.page = Page(shown)
        self.stream = Stream(self.page, entered=self._keep)
        self.port: int | None = None
        """The port that is listened on; None while it cannot be had."""
        self._shown = shown
        self._metrics = metrics
        self._log = get()
        self._files = _static()
        self._door: Door | None = None
        self._made: dict[str, tuple[float, bytes]] = {}
        self._packers = [Worker("bundle to send") for _ in range(DOWNLOADS)]
        self._summaries = Worker("summary")

    # ---- life

    async def run(self) -> None:
        """Serve until cancelled. A port that cannot be had is told, and tried again; no failure here ends the daemon."""
        await asyncio.gather(self._alone(self._serve()), self._alone(self.page.keep()))

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as e:  # noqa: BLE001  # the page is the least of the daemon's duties
            self._log.error("page-refused", message=f"a part of the status page is gone until the next reload: {e!r}")

    async def _serve(self) -> None:
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=STOP_LIMIT_S,
            max_line_size=4096,
            max_field_size=4096,
        )
        await runner.setup()
        assert runner.server is not None
        self._door = Door(runner.server)
        try:
            listening = await self._listen(self._door)
            try:
                await asyncio.Event().wait()
            finally:
                listening.close()
                self._door.close()
        finally:
            self.port = None
            await self.stream.close()
            await runner.cleanup()

    async def _listen(self, door: Door) -> asyncio.Server:
        host, port = self.settings.host, self.settings.port
        while True:
            try:
                server = await asyncio.get_running_loop().create_server(door, host, port, backlog=CONNECTIONS)
            except (OSError, OverflowError) as e:
                said = f"the status page cannot listen on {host}, port {port} ({e}); tried again: change web.port"
                self._log.error("page-refused", message=said)
                await asyncio.sleep(AGAIN_S)
                continue
            self.port = server.sockets[0].getsockname()[1]
            self._log.info("page", message=f"the status page is on http://{f'[{host}]' if ':' in host else host}:{self.port}/")
            if not host.startswith(LOOPBACK):
                said = f"whoever reaches {host} can read the status page and fetch incident bundles: it asks for no password"
                self._log.warning("page-open", message=said)
            return server

    def application(self) -> web.Application:
        """The routes behind the guard."""
        app = web.Application(middlewares=[guard((self.settings.host, *self.settings.names))], client_max_size=1024)
        app.on_response_prepare.append(dress)
        app.router.add_get("/", self._file)
        app.router.add_get("/{file:[a-z]+\\.(?:css|js|svg)}", self._file)
        app.router.add_get("/api/status", self._status)
        app.router.add_get("/api/events", self.stream.serve)
        app.router.add_get("/incidents/{server}/{name}.tar.gz", self._bundle)
        app.router.add_get("/incidents/{server}/{name}/summary.md", self._summary)
        app.router.add_get("/healthz", self._health)
        if self._metrics is not None:
            app.router.add_get("/metrics", self._exposition)
        return app

    def _keep(self, request: web.Request) -> None:
        """This answer is a long one."""
        if self._door is not None:
            self._door.keep(request.transport)

    # ---- answers

    async def _file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info.get("file", "page.html"))
        if found is None:
            raise web.HTTPNotFound
        kind, content = found
        return web.Response(body=content, content_type=kind, charset="utf-8")

    async def _status(self, request: web.Request) -> web.Response:
        body = self._fresh(request) or self._keep_fresh(request, msgspec.json.encode(await self.page.status()))
        return web.Response(body=body, content_type="application/json")

    async def _health(self, _request: web.Request) -> web.Response:
        well = self._shown.alive()
        text = "ok\n" if well else "a part of the watchdog gives no sign of life; see /api/status\n"
        return web.Response(status=200 if well else 503, text=text)

    async def _exposition(self, request: web.Request) -> web.Response:
        assert self._metrics is not None
        body = self._fresh(request) or self._keep_fresh(request, self._metrics())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _fresh(self, request: web.Request) -> bytes | None:
        made_at, body = self._made.get(request.path, (-FRESH_S, b""))
        return body if asyncio.get_running_loop().time() - made_at < FRESH_S else None

    def _keep_fresh(self, request: web.Request, body: bytes) -> bytes:
        self._made[request.path] = asyncio.get_running_loop().time(), body
        return body

    def _home(self, request: web.Request) -> tuple[Path, str]:
        watch = self.page.watch(request.match_info["server"])
        if watch is None:
            raise web.HTTPNotFound(text="no server of this name is watched\n")
        return watch.home / "incidents", request.match_info["name"]

    async def _summary(self, request: web.Request) -> web.Response:
        home, name = self._home(request)
        try:
            text = await self._summaries.call(lambda: archive.summary(home, name), DISK_LIMIT_S)
        except (OSError, ValueError, BusyError) as e:
            raise _missing(e) from e
        return web.Response(body=text, content_type="text/plain", charset="utf-8")

    async def _bundle(self, request: web.Request) -> web.StreamResponse:
        home, name = self._home(request)
        worker = next((w for w in self._packers if not w.busy), None)
        if worker is None:
            raise web.HTTPServiceUnavailable(text="other bundles are being fetched\n", headers={"Retry-After": "10"})
        self._packers.remove(worker)
        try:
            return await self._packed(request, worker, home, name)
        finally:
            self._packers.append(worker)

    async def _packed(self, request: web.Request, worker: Worker, home: Path, name: str) -> web.StreamResponse:
        try:
            pieces = await worker.call(lambda: archive.pack(home, name), DISK_LIMIT_S)
        except (OSError, ValueError) as e:
            raise _missing(e) from e
        headers = {
            "Content-Type": "application/gzip",
            "Content-Disposition": f'attachment; filename="{request.match_info["server"]}-{name}.tar.gz"',
        }
        response = web.StreamResponse(headers=headers)
        response.force_close()
        if request.method == "HEAD":
            await response.prepare(request)
            return response
        self._keep(request)
        try:
            await self._send(request, response, worker, pieces)
        except (OSError, BusyError) as e:  # the reader has gone, or the disk: the headers are sent, so the rest is cut off
            self._log.info("page", message=f"the bundle {name} was not sent to its end ({e!r})")
            if request.transport is not None:
                request.transport.abort()
        return response

    @staticmethod
    async def _send(request: web.Request, response: web.StreamResponse, worker: Worker, pieces: Iterator[bytes]) -> None:
        await response.prepare(request)
        while (piece := await worker.call(lambda: next(pieces, None), DISK_LIMIT_S)) is not None:
            if piece:
                async with asyncio.timeout(DISK_LIMIT_S):
                    await response.write(piece)
        await response.write_eof()


def _missing(e: Exception) -> web.HTTPException:
    if isinstance(e, TimeoutError | BusyError):
        return web.HTTPServiceUnavailable(text="the disk does not answer\n")
    return web.HTTPNotFound(text="there is no such incident bundle\n")


def _static() -> dict[str, tuple[str, bytes]]:
    """The page's files, name → (type, content); a few dozen KB, read once."""
    folder = resources.files("watchdog.web") / "static"
    return {f.name: (TYPES[Path(f.name).suffix], f.read_bytes()) for f in folder.iterdir() if Path(f.name).suffix in TYPES}
