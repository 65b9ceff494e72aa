"""The faults and the traffic that the parent makes."""

import asyncio
import os
import random
import signal
import time
import uuid
from collections.abc import Coroutine

from watchdog.standin.engine import Engine, QueueFullError
from watchdog.standin.faults import Faults
from watchdog.standin.launch import Tree
from watchdog.standin.log import Log
from watchdog.standin.options import Options
from watchdog.standin.status import Status

LOOK = 0.05
BUSY_TOKENS = 96000
BUSY_AT_ONCE = 3
HARMLESS = "Endpoint '/get_model_info' is deprecated and will be removed in a future version. Please use '/model_info' instead."


class Orders:
    """Looks at the faults many times a second, and carries out those of the parent."""

    def __init__(self, *, options: Options, log: Log, faults: Faults, engine: Engine, status: Status, tree: Tree) -> None:
        self._options = options
        self._log = log
        self._faults = faults
        self._engine = engine
        self._status = status
        self._tree = tree
        self._random = random.Random(1)
        self._clients: set[asyncio.Task[None]] = set()
        self._long = 0
        self._next_request = time.monotonic()

    async def carry_out(self) -> None:
        """For ever."""
        flooded = time.monotonic()
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            while self._faults.active("freeze") is not None:
                time.sleep(LOOK)  # noqa: ASYNC251 (to block the loop is what was ordered)
            self._kill()
            if not self._status.starting:
                self._make_traffic(now)
            flood = self._faults.active("log-flood")
            if flood is not None:
                count = int(float(flood.get("lines", 500)) * min(now - flooded, 1.0))
                for _ in range(count):
                    self._log.line(HARMLESS)
            flooded = now

    async def end(self) -> None:
        """Stop the traffic."""
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _kill(self) -> None:
        settings = self._faults.take("kill-scheduler")
        if settings is not None:
            rank = int(settings.get("rank", 0))
            os.kill(self._tree.schedulers[rank % len(self._tree.schedulers)], signal.SIGKILL)
        if self._faults.take("kill-detokenizer") is not None:
            os.kill(self._tree.detokenizer, signal.SIGKILL)

    def _make_traffic(self, now: float) -> None:
        busy = self._faults.active("busy")
        if busy is not None:
            seconds = float(busy.get("step", 2.2 * self._options.health_limit))
            while self._long < BUSY_AT_ONCE:
                self._long += 1
                self._client(self._ask(self._long_prompt(), 8, seconds))
        if self._options.traffic and now >= self._next_request:
            self._next_request = max(self._next_request, now - 1) + self._random.expovariate(self._options.traffic)
            self._client(self._ask(f"[{uuid.uuid4().hex}] Tell me about the server.", self._random.randint(16, 200), 0.0))

    def _long_prompt(self) -> str:
        """A prompt that no cache knows, of 96,000 tokens or what the KV cache has room for."""
        tokens = min(BUSY_TOKENS, int(0.6 * self._options.kv_tokens))
        return f"[{uuid.uuid4().hex}] ".ljust(tokens * 4, ".")

    def _client(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _ask(self, prompt: str, wanted: int, busy: float) -> None:
        port = self._random.randint(32768, 60999)
        try:
            async for _ in self._engine.generate(uuid.uuid4().hex, prompt, wanted, streams=True, busy=busy, ignore_eos=True):
                pass
            status = "200 OK"
        except QueueFullError:
            status = "503 Service Unavailable"
        finally:
            self._long -= bool(busy)
        self._log.access(f"10.0.0.7:{port}", "POST /v1/chat/completions HTTP/1.1", status)
