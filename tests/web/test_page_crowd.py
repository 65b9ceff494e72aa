"""Clients that mean no good, or do not know what they do: the page's server as a process, on a real socket."""

import asyncio
import contextlib
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from watchdog.web import door
from watchdog.web.stream import READERS

ROOT = Path(__file__).parents[2]
HEAD = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
SOON_S = 4.0
"""Less than the page grants those who keep it waiting, and enough for a busy machine."""
GROWTH = 24 << 20
"""Bytes that the process may grow by under attack: 32 answers of half a MB that nobody reads, and the streams."""


class Apart(NamedTuple):
    pid: int
    port: int


@pytest.fixture
async def apart() -> AsyncIterator[Apart]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.web.apart", cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield Apart(process.pid, int(await asyncio.wait_for(process.stdout.readline(), 30)))
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    sockets: list[socket.socket] = []
    yield sockets
    for s in sockets:
        s.close()


def enter(apart: Apart, crowd: list[socket.socket], count: int, said: bytes, *, window: int = 0) -> None:
    """Connect so many times, say something, and read nothing; a small window soon fills."""
    for _ in range(count):
        s = socket.socket()
        if window:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        s.settimeout(5)
        s.connect(("127.0.0.1", apart.port))
        s.setblocking(False)
        with contextlib.suppress(OSError):  # sent away already
            s.send(said)
        crowd.append(s)


@asynccontextmanager
async def dialled(apart: Apart, said: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", apart.port, limit=1 << 22)
    try:
        writer.write(said)
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(apart: Apart, path: str, limit_s: float = SOON_S) -> tuple[int, bytes, bytes]:
    """Status, head and body of a whole answer within the limit."""
    async with asyncio.timeout(limit_s), dialled(apart, HEAD % path.encode()) as (reader, _):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


async def must_have_room(apart: Apart) -> None:
    assert (await ask(apart, "/healthz"))[::2] == (200, b"ok\n")
    status, _, body = await ask(apart, "/metrics")
    assert (status, body.count(b"sglang_watchdog_up")) == (200, 52), "with its HELP and TYPE"
    status, head, _ = await ask(apart, "/")
    assert (status, b"Connection: close" in head) == (200, True)
    status, _, body = await ask(apart, "/api/status")
    assert json.loads(body)["servers"][0]["name"] == "kimi"


def resident(apart: Apart) -> int:
    """The process' resident memory in bytes (proc_pid_status(5))."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{apart.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def open_at(apart: Apart) -> int:
    """How many sockets the process has open."""
    links = [link for link in Path(f"/proc/{apart.pid}/fd").iterdir() if link.is_symlink()]
    return sum(str(link.readlink()).startswith("socket:") for link in links)


async def until(holds: Callable[[], bool], limit_s: float = 15.0) -> None:
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.05)


HALF = b"GET /healthz HTTP/1.1\r\nHost: localh"
ATTACKS = {
    "half-open": (300, b"", 0),
    "half a request": (300, HALF, 0),
    "streams": (300, HEAD % b"/api/events", 0),
    "streams that are not read": (300, HEAD % b"/api/events", 2048),
    "statuses that are not read": (300, HEAD % b"/api/status", 2048),
    "metrics that are not read": (300, HEAD % b"/metrics", 2048),
    "a body that does not come": (300, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx", 0),
    "many requests at once": (300, HEAD % b"/api/status" * 400, 2048),
    "heads without an end": (300, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 40_000, 2048),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nobody_keeps_others_out(apart: Apart, crowd: list[socket.socket], attack: str) -> None:
    await must_have_room(apart)
    before = resident(apart)
    count, said, window = ATTACKS[attack]
    enter(apart, crowd, count, said, window=window)
    for _ in range(5):
        await must_have_room(apart)
        await asyncio.sleep(0.1)
    assert open_at(apart) < door.CONNECTIONS + 20
    assert resident(apart) - before < GROWTH


async def test_all_of_them_together(apart: Apart, crowd: list[socket.socket]) -> None:
    await must_have_room(apart)
    before = resident(apart)
    for _ in range(3):
        for count, said, window in ATTACKS.values():
            enter(apart, crowd, count // 3, said, window=window)
            await must_have_room(apart)
    assert resident(apart) - before < GROWTH
    await until(lambda: open_at(apart) < READERS + 12, door.ANSWER_S + 5)
    await must_have_room(apart)


async def test_a_head_that_comes_a_byte_at_a_time_is_not_waited_for(apart: Apart) -> None:
    async with asyncio.timeout(door.HEAD_S + 5), dialled(apart) as (reader, writer):
        ended = asyncio.ensure_future(reader.read())
        for byte in HALF * 100:
            writer.write(bytes([byte]))
            await asyncio.wait([ended], timeout=0.2)
            if ended.done():
                break
        with contextlib.suppress(ConnectionError):
            assert await ended == b""


async def test_surplus_readers_are_told_when_to_come_again_and_are_let_in_then(apart: Apart, crowd: list[socket.socket]) -> None:
    enter(apart, crowd, READERS, HEAD % b"/api/events")
    await asyncio.sleep(0.2)
    status, head, _ = await ask(apart, "/api/events")
    assert (status, b"Retry-After: 10" in head) == (503, True)
    crowd.pop().close()
    line = b""
    async with asyncio.timeout(10):
        while b" 200 " not in line:
            async with dialled(apart, HEAD % b"/api/events") as (reader, _):
                line = await reader.readline()
            await asyncio.sleep(0.2)


async def test_a_stream_that_is_read_outlives_the_crowd(apart: Apart, crowd: list[socket.socket]) -> None:
    async with asyncio.timeout(20), dialled(apart, HEAD % b"/api/events") as (reader, _):
        assert b" 200 " in await reader.readline()
        for _ in range(3):
            enter(apart, crowd, 200, b"")
            enter(apart, crowd, 100, HEAD % b"/api/status", window=2048)
        seen = 0
        while seen < 3:
            seen += (await reader.readline()).startswith(b"event: patch")


async def test_a_head_that_is_too_large_is_told_so(apart: Apart) -> None:
    async with (
        asyncio.timeout(5),
        dialled(apart, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 1900) as (reader, writer),
    ):
        await writer.drain()
        writer.write(b"X: y\r\n" * 500)
        assert (await reader.read(100)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_in_pieces_is_one_head(apart: Apart) -> None:
    async with asyncio.timeout(5), dialled(apart) as (reader, writer):
        for piece in (b"GET /healthz HT", b"TP/1.1\r\nHost: localhost\r", b"\n\r", b"\nGET /api/status HTTP/1.1\r\n\r\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1, "one request a connection"
