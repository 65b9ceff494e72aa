"""The control socket: how the commands ask the running daemon. One JSON object a line, one request a connection.

The socket lies in the runtime directory with mode 0600: root and the daemon's own user may speak to it, nobody else.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from watchdog.asking import NAME, REQUEST_LIMIT_S
from watchdog.log import get

LINE_LIMIT = 64 * 1024
CALLERS = 16
"""So many are answered at once; whoever comes on top of them is turned away."""

Answerer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Control:
    """The daemon's end."""

    def __init__(self, folder: Path, answer: Answerer) -> None:
        self._path = folder / NAME
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._callers = 0

    async def __aenter__(self) -> "Control":
        """Begin to listen. Without a socket the daemon still watches, and says so."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            before = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LINE_LIMIT)
            finally:
                os.umask(before)
        except OSError as e:
            get().error(
                "control-lost",
                message=f"{self._path} cannot be listened on ({e.strerror or e}): `status` and `pause` will not work; "
                "mend the folder's owner and mode (RuntimeDirectory=)",
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers += 1
        try:
            if self._callers > CALLERS:
                return
            async with asyncio.timeout(REQUEST_LIMIT_S):
                line = await reader.readline()
            writer.write(json.dumps(await self._reply(line)).encode() + b"\n")
            async with asyncio.timeout(REQUEST_LIMIT_S):
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # who asks and does not listen gets nothing
        finally:
            self._callers -= 1
            writer.close()

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "the request is no JSON: send one JSON object on a line"}
        if not isinstance(request, dict):
            return {"error": 'the request must be a JSON object, such as {"command": "status"}'}
        try:
            return await self._answer(request)
        except Exception as e:  # noqa: BLE001  # a request must never end the daemon
            return {"error": f"this request met a fault of sglang-watchdog ({type(e).__name__}: {e}), please report it"}
