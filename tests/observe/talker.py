"""Loopback servers that misbehave: raw sockets, so that every byte and every pause is the test's own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from watchdog import config

Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Gets one whole request and answers it, in whatever way; afterwards the connection is closed."""


class Talker:
    """A running server: its address, and the requests that it got."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.requests: list[bytes] = []
        self.open = 0
        self.most_open = 0

    def server(self, **more: object) -> config.Server:
        """A configuration that points here, with short limits."""
        limits = {"connect_limit_s": 10, "static_limit_s": 10, "health_limit_s": 10, "chat_limit_s": 10}
        probe = {**limits, **more.pop("probe", {})}  # type: ignore[dict-item]
        return config.Server(
            name="kimi",
            unit="sglang-kimi.service",
            base_url=str(more.pop("base_url", self.url)),
            probe=config.Probing(**probe),  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )


@asynccontextmanager
async def talking(script: Script, host: str = "127.0.0.1", **more: object) -> AsyncIterator[Talker]:
    """Serve until the block ends; then every connection is closed."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talker.open += 1
        talker.most_open = max(talker.most_open, talker.open)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            request = head + await reader.readexactly(length)
            talker.requests.append(request)
            await script(request, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            talker.open -= 1
            writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, host, 0, **more)  # type: ignore[arg-type]
    talker = Talker(host, server.sockets[0].getsockname()[1])
    try:
        yield talker
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def says(*pieces: bytes, pause: float = 0.0, hold: float = 0.0) -> Script:
    """Send the pieces with a pause between them, and keep the connection open for `hold` seconds."""

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        for i, piece in enumerate(pieces):
            if i and pause:
                await asyncio.sleep(pause)
            writer.write(piece)
            await writer.drain()
        await asyncio.sleep(hold)

    return script


def reply(status: int = 200, body: bytes = b"", kind: str = "application/json", **headers: str) -> bytes:
    """A whole HTTP answer; underscores in header names stand for dashes."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Server: uvicorn"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def stream(*chunks: bytes, end: bool = True) -> bytes:
    """An event stream in chunked encoding; `end` sends the last, empty chunk."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nServer: uvicorn\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(f"{len(c):x}\r\n".encode() + c + b"\r\n" for c in chunks if c)
    return head + body + (b"0\r\n\r\n" if end else b"")
