"""The control socket: how the commands ask the running daemon. One JSON object a line, one request a connection.

The socket lies in the runtime directory with mode 0600: root and the daemon's own user may speak to it, nobody else.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from watchdog.asking import NAME, REQUEST_LIMIT_S
from watchdog.log import get
from watchdog.single import TakenError, listener

LINE_LIMIT = 64 * 1024
CALLERS = 16
"""So many are answered at once; whoever comes on top of them is turned away."""
WAITING = 100
"""So many may wait to be answered."""

Answerer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Control:
    """The daemon's end."""

    def __init__(self, folder: Path, answer: Answerer) -> None:
        self._path = folder / NAME
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._own: tuple[int, int] | None = None
        """Device and inode of our socket while it should be there."""
        self._told = ""
        self._callers = 0

    def check(self) -> None:
        """See that no other daemon listens here.

        Raises:
            TakenError: one does.
        """
        with contextlib.suppress(OSError):  # `_listen` tells of it
            taken, pid = listener(self._path)
            if taken:
                raise TakenError(pid, self._path)

    async def __aenter__(self) -> "Control":
        """Begin to listen. Without a socket the daemon still watches, and says so."""
        await self.look()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def look(self) -> None:
        """Listen anew where the socket was taken away. To be called now and then: it costs a look at one file."""
        if self._own is not None and self._found() == self._own:
            return
        lost = self._own is not None
        self._close()
        try:
            await self._listen()
        except TakenError as e:
            self._tell(str(e))
        except OSError as e:
            self._tell(
                f"{self._path} cannot be listened on ({e.strerror or e}): `status` and `pause` will not work; "
                "mend the folder's owner and mode (RuntimeDirectory=), or start the daemon anew if the folder was removed"
            )
        else:
            if lost or self._told:
                get().warning("control-made", message=f"{self._path} was lost, and is listened on again")
            self._told = ""

    def _tell(self, why: str) -> None:
        if why != self._told:
            self._told = why
            get().error("control-lost", message=why)

    async def _listen(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        taken, pid = listener(self._path)
        if taken:
            raise TakenError(pid, self._path)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        # Not by asyncio, which would remove whatever socket is there by then.
        with contextlib.ExitStack() as undo:
            s = undo.enter_context(socket.socket(socket.AF_UNIX))
            s.bind(str(self._path))
            self._path.chmod(0o600)  # in time, for nobody can connect before it listens; a umask would be that of all threads
            s.listen(WAITING)
            self._server = await asyncio.start_unix_server(self._serve, sock=s, backlog=WAITING, limit=LINE_LIMIT)
            self._own = self._found()
            undo.pop_all()

    def _found(self) -> tuple[int, int] | None:
        """Device and inode of what lies at our path; None for nothing."""
        try:
            there = os.lstat(self._path)
        except OSError:
            return None
        return there.st_dev, there.st_ino

    def _close(self) -> None:
        """Listen no more, and remove the socket if it is ours: another daemon's stays."""
        if self._server is not None:
            self._server.close()
            self._server = None
            if self._found() == self._own:
                with contextlib.suppress(OSError):
                    self._path.unlink()
        self._own = None

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
