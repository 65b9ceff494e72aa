"""The parent process while it serves: HTTP, its watch over the children, its signals and its end."""

import asyncio
import os
import signal
import socket
import sys
import time

from aiohttp import web

from watchdog.standin import processes
from watchdog.standin.board import Board
from watchdog.standin.bodies import json_response
from watchdog.standin.completions import Completions
from watchdog.standin.endpoints import Endpoints, Handler
from watchdog.standin.engine import Engine
from watchdog.standin.faults import Faults
from watchdog.standin.launch import Tree
from watchdog.standin.log import Log
from watchdog.standin.metrics import Exposition, Totals
from watchdog.standin.options import Options
from watchdog.standin.orders import Orders
from watchdog.standin.status import Status
from watchdog.standin.warmup import warm_up

CHILD_POLL = 1.0
DRAIN_POLL = 5.0
SETTLE = 5.0
COREDUMP_WAIT = 60.0
RELEASE = 15.0
"""Seconds, all scaled: between two looks at the children; at the requests of a drain; before the diagnostics of a crash; for the
core dumps of schedulers that live; for the schedulers to go after a drain."""


class Parent:
    """The server's main process."""

    def __init__(self, options: Options, log: Log, faults: Faults, board: Board, tree: Tree) -> None:
        self._options = options
        self._log = log
        self._faults = faults
        self._tree = tree
        self._totals = Totals()
        self._status = Status()
        self._engine = Engine(options, tree, self._totals)
        self._orders = Orders(options=options, log=log, faults=faults, engine=self._engine, status=self._status, tree=tree)
        exposition = Exposition(options, board, self._totals)
        self._endpoints = Endpoints(
            options=options, log=log, faults=faults, board=board, engine=self._engine, status=self._status, exposition=exposition
        )
        self._completions = Completions(options, faults, self._engine)
        self._stop = asyncio.Event()
        self._ended: dict[int, int] = {}

    async def run(self) -> int:
        """Serve until a signal ends it; returns the exit status."""
        loop = asyncio.get_running_loop()
        pid = os.getpid()
        signal.signal(signal.SIGQUIT, lambda *_: self._crash())
        self._engine.attach()
        app = web.Application(client_max_size=64 * 2**20, middlewares=[self._guard])
        app.add_routes([*self._endpoints.routes(), *self._completions.routes()])
        app.on_response_prepare.append(self._prepared)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2 * self._options.scale)
        self._log.line(f"INFO:     Started server process [{pid}]")
        self._log.line("INFO:     Waiting for application startup.")
        await runner.setup()
        self._log.line("INFO:     Application startup complete.")
        host, port = self._options.server["host"], self._options.server["port"]
        if self._options.fail_at == "http" or not await _listens(runner, host, port):
            return await self._port_in_use(runner, host, port)
        self._log.line(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        tasks = [loop.create_task(task) for task in (self._watch_children(), self._orders.carry_out(), self._start())]
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        self._log.line("INFO:     Shutting down")
        await self._orders.end()
        await runner.cleanup()
        self._log.line("INFO:     Waiting for application shutdown.")
        self._log.line("INFO:     Application shutdown complete.")
        self._log.line(f"INFO:     Finished server process [{pid}]")
        self._kill_children()
        return 0

    async def _start(self) -> None:
        """The warm-up, and what comes after it; the drain handler is installed by the first request, as in SGLang."""
        if self._options.stuck_at == "warmup":
            return
        address = f"http://{_reachable(self._options.server['host'])}:{self._options.server['port']}"
        failed = None if self._options.fail_at != "warmup" else "ordered"
        failed = failed or await warm_up(self._options, self._log, address)
        if failed:
            self._log.line(f"Initialization failed. warmup error: {failed}")
            self._crash()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        self._status.starting = False
        self._log.line("The server is fired up and ready to roll!")

    async def _port_in_use(self, runner: web.AppRunner, host: str, port: int) -> int:
        """The port is taken; the warm-up then reaches whoever has it, and the line of success is printed all the same."""
        text = f"ERROR:    [Errno 98] error while attempting to bind on address ('{host}', {port}): address already in use"
        self._log.line(text)
        self._log.line("INFO:     Waiting for application shutdown.")
        if await _answers(host, port):
            self._log.line("The server is fired up and ready to roll!")
        await runner.cleanup()
        self._log.line("INFO:     Application shutdown complete.")
        self._kill_children()
        return 3

    # HTTP

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        key = (request.path, request.method)
        self._totals.requests[key] += 1
        self._totals.active[key] += 1
        try:
            if not self._allowed(request):
                return json_response({"error": "Unauthorized"}, status=401)
            return await handler(request)
        except web.HTTPException as fault:
            headers = {"allow": fault.headers["Allow"]} if "Allow" in fault.headers else None
            return json_response({"detail": fault.reason}, status=fault.status, headers=headers)
        finally:
            self._totals.active[key] -= 1

    def _allowed(self, request: web.Request) -> bool:
        key = self._options.server["api_key"]
        if key is None or request.path.startswith(("/health", "/metrics")):
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        right_scheme = scheme.lower() == "bearer" if self._options.since(0, 5, 8) else scheme == "Bearer"
        return right_scheme and given in (key, self._options.server["admin_api_key"])

    async def _prepared(self, request: web.Request, response: web.StreamResponse) -> None:
        """The answer begins: uvicorn's headers, its access line, its counters."""
        response.headers["server"] = "uvicorn"
        response.headers["vary"] = "Origin"
        self._totals.responses[request.path, request.method, response.status] += 1
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        client = f"{peer[0]}:{peer[1]}" if peer else "-"
        self._log.access(client, f"{request.method} {request.path_qs} HTTP/1.1", f"{response.status} {response.reason}")

    # children

    async def _watch_children(self) -> None:
        """SubprocessWatchdog, since 0.5.10: it does not notice an exit with 0. Before, no death is noticed: a zombie stays."""
        while self._options.since(0, 5, 10):
            await asyncio.sleep(CHILD_POLL * self._options.scale)
            for pid, name in self._dead():
                code = self._ended[pid]
                if code:
                    self._log.line(
                        f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
                    )
                    self._crash()

    def _dead(self) -> list[tuple[int, str]]:
        """The children that have ended since the last look."""
        found = []
        for pid, name in self._tree.children().items():
            if pid not in self._ended and (code := processes.exit_code(pid)) is not None:
                self._ended[pid] = code
                found.append((pid, name))
        return found

    def _live_schedulers(self) -> list[int]:
        self._dead()
        return [pid for pid in self._tree.schedulers if pid not in self._ended]

    def _kill_children(self) -> None:
        if self._options.since(0, 5, 13):
            pid = os.getpid()
            self._log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
        for pid in (*self._tree.children(), self._tree.tracker):
            if pid not in self._ended:
                os.kill(pid, signal.SIGKILL)

    # ends

    def _crash(self) -> None:
        """What a SIGQUIT does: mute for 5 to 66 s, on the loop's thread, then SIGKILL of itself (before 0.5.13: at once)."""
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        self._log.line("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self._diagnose()
        pid = os.getpid()
        if self._options.since(0, 5, 13):
            self._log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
        os.kill(pid, signal.SIGKILL)

    def _diagnose(self) -> None:
        if not self._options.since(0, 5, 13):
            return
        self._log.line("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        time.sleep(SETTLE * self._options.scale)
        live = self._live_schedulers()
        if not live:
            self._log.line("No live scheduler processes found; skipping py-spy and CUDA coredump.")
            return
        for pid in live:
            self._log.line(f"Pyspy dump for PID {pid} (py-spy dump --native --pid {pid}):")
        self._log.line("Waiting 60.0 seconds for CUDA coredumps before exiting.")
        time.sleep(COREDUMP_WAIT * self._options.scale)

    def _terminate(self) -> None:
        if self._faults.active("ignore-sigterm") is not None or self._status.draining:
            return
        self._status.draining = True
        self._log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Wait for the requests in flight, without a limit (tokenizer_manager.py: sigterm_watchdog)."""
        wait = DRAIN_POLL * self._options.scale
        # It looks every 5 s since the start, not since the signal.
        await asyncio.sleep(wait - time.monotonic() % wait)
        while True:
            if not self._status.healthy:
                self._log.line("Signal SIGTERM received while health check failed. Force exiting.")
                self._diagnose()
                break
            rids = list(self._engine.pending)
            self._log.line(
                f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests remaining_rids={rids}."
            )
            if not rids:
                break
            await asyncio.sleep(wait)
        if not self._options.since(0, 5, 19):
            os.kill(os.getpid(), signal.SIGKILL)
        await self._release()
        self._stop.set()

    async def _release(self) -> None:
        """Ask the schedulers to go, then kill those that stay."""
        self._engine.send({"op": "shutdown"})
        for _ in range(50):
            live = self._live_schedulers()
            if not live:
                return
            await asyncio.sleep(RELEASE * self._options.scale / 50)
        if live := self._live_schedulers():
            self._log.line(f"Schedulers still alive 15s after ShutdownReq, killing them before they released: {live}")


def serve(options: Options, log: Log, faults: Faults, board: Board, tree: Tree) -> int:
    """Run the parent; returns its exit status."""

    async def run() -> int:
        return await Parent(options, log, faults, board, tree).run()

    status = asyncio.run(run())
    sys.stdout.flush()
    return status


async def _listens(runner: web.AppRunner, host: str, port: int) -> bool:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        return False
    return True


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)


async def _answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(_reachable(host).strip("[]"), port)
    except (OSError, socket.gaierror):
        return False
    writer.close()
    return True
