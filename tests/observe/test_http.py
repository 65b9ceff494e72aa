import asyncio
import gzip
import socket
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.observe.talker import Script, Talker, reply, says, stream, talking
from watchdog import config
from watchdog.observation import OUTCOMES
from watchdog.observe.access import Access
from watchdog.observe.http import BODY_CAP, Exchange, Limits, Request, exchange

LIMITS = Limits(connect_s=10, total_s=10)
HASTY = Limits(connect_s=10, total_s=0.5)


async def ask(talker: Talker, limits: Limits = LIMITS, **more: object) -> Exchange:
    return await exchange(Access(talker.server(**more)), Request("GET", "/health", limits))


async def aborts(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def begins_and_aborts(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def is_endless(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


BOMB = gzip.compress(b"\0" * 10_000_000)

CASES: list[tuple[str, Script, str, int | None, str]] = [
    ("closed at once", says(), "reset", None, "closed before any answer"),
    ("reset at once", aborts, "reset", None, "closed before any answer"),
    ("reset in the body", begins_and_aborts, "reset", 200, "in the middle of the answer"),
    ("short body", says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), "reset", 200, "in the middle"),
    ("cut chunk", says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"), "reset", 200, "in the middle"),
    ("mute", says(hold=5), "timeout", None, "connected, but no answer (at most the beginning of its headers) within 0.5 s"),
    ("half a status line", says(b"HTTP/1.1 2", hold=5), "timeout", None, "no answer (at most the beginning of its headers)"),
    ("head without body", says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", hold=5), "timeout", 200, "did not end"),
    ("a byte at a time", says(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x"] * 50, pause=0.1), "timeout", 200, "did not end"),
    ("a header at a time", says(b"HTTP/1.1 200 OK\r\n", *[b"A: b\r\n"] * 50, pause=0.1), "timeout", None, "no answer (at most"),
    ("endless", is_endless, "malformed", 200, "longer than 256 KiB"),
    ("huge", says(reply(200, b"x" * (BODY_CAP + 1))), "malformed", 200, "longer than 256 KiB"),
    ("bomb", says(reply(200, BOMB, Content_Encoding="gzip")), "malformed", 200, "compressed although"),
    ("redirect", says(reply(302, Location="http://elsewhere/")), "status", 302, "Location http://elsewhere/, which is not"),
    ("redirect to nowhere", says(reply(307)), "status", 307, "Location (none)"),
    ("not HTTP", says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "malformed", None, "is not HTTP: Bad status line"),
    ("binary", says(bytes(range(256))), "malformed", None, "is not HTTP"),
    ("negative length", says(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), "malformed", None, "is not HTTP"),
    ("bad chunk size", says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "malformed", None, "is not HTTP"),
    ("huge header", says(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000 + b"\r\n\r\n"), "malformed", None, "is not HTTP"),
    ("many headers", says(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 10_000 + b"\r\n"), "malformed", None, "is not HTTP"),
    *((f"status {code}", says(reply(code, b'{"a": 1}')), "status", code, "") for code in (400, 401, 403, 404, 429, 500, 503)),
]  # fmt: skip


@pytest.mark.parametrize(("script", "outcome", "status", "said"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
async def test_each_misbehaviour_has_its_name(script: Script, outcome: str, status: int | None, said: str) -> None:
    began = time.monotonic()
    async with talking(script) as talker:
        got = await ask(talker, HASTY if outcome == "timeout" else LIMITS)
    assert (got.outcome, got.status) == (outcome, status), got
    assert said in (got.detail or "")
    assert got.connect_s is not None and got.total_s is not None and got.connect_s <= got.total_s
    assert time.monotonic() - began < 4, "what is said for 5 s is not waited for"


async def test_a_good_answer_and_what_was_asked() -> None:
    async with talking(says(reply(200, b"ok"))) as talker:
        got = await ask(talker)
    assert (got.outcome, got.status, got.body, got.detail) == ("ok", 200, b"ok", None)
    assert got.connect_s is not None and got.first_s is not None and got.total_s is not None
    assert 0 < got.connect_s <= got.first_s <= got.total_s < LIMITS.total_s
    head = talker.requests[0].decode().lower()
    assert "accept-encoding: identity" in head and "authorization" not in head


async def test_each_request_has_a_connection_of_its_own() -> None:
    connections = 0

    async def keeps_alive(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await says(reply(200), hold=0.2)(request, writer)

    async with talking(keeps_alive) as talker:
        access = Access(talker.server())
        for _ in range(3):
            assert (await exchange(access, Request("GET", "/health", LIMITS))).outcome == "ok"
    assert connections == 3


async def test_refused_and_not_reachable() -> None:
    async with talking(says()) as talker:
        pass
    got = await ask(talker)
    assert (got.outcome, got.status, got.first_s) == ("refused", None, None)
    assert got.detail == "no connection: Connection refused"


async def test_a_full_accept_queue_is_a_connect_timeout() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        blockers = [asyncio.create_task(asyncio.open_connection(*sock.getsockname())) for _ in range(8)]
        await asyncio.sleep(0.1)
        talker = Talker("127.0.0.1", sock.getsockname()[1])
        tries = [await ask(talker, Limits(connect_s=0.2, total_s=9)) for _ in range(3)]
        for task in blockers:
            task.cancel()
        for ended in await asyncio.gather(*blockers, return_exceptions=True):
            if isinstance(ended, tuple):
                ended[1].transport.abort()
    assert {got.outcome for got in tries} == {"connect_timeout"} and {got.connect_s for got in tries} == {None}
    assert (tries[0].detail or "").startswith("no connection within ")
    assert 0.15 < min(got.total_s or 0 for got in tries) < 1, "the limit is not rounded up to whole seconds"


@pytest.mark.parametrize("url", ["http://a..b:1", "http://127.0.0.1:99999999", "http://[::1", "http://"])
async def test_an_address_that_cannot_be_used_is_our_own_fault(url: str) -> None:
    got = await ask(Talker("127.0.0.1", 1), Limits(2, 4), base_url=url)
    assert (got.outcome, got.why) == ("skipped", "config")
    assert "check base_url" in (got.detail or "")


async def test_ipv6_and_a_proxy_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as e:
        pytest.skip(f"no IPv6 on this host: {e}")
    async with talking(says(reply(200)), host="::1") as talker:
        assert "[::1]" in talker.url
        assert (await ask(talker)).outcome == "ok"


async def test_a_stream_is_taken_in_pieces_and_left_at_its_end() -> None:
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return b"END" in piece

    async with talking(says(stream(b"one"), b"3\r\nEND\r\n", pause=0.05, hold=5)) as talker:
        head_only = Request("GET", "/", Limits(0.5, 1), take=take)
        got = await exchange(Access(talker.server()), head_only)
    assert got.outcome == "ok" and b"".join(taken) == b"one" and got.body == b""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]),
    st.binary(max_size=60),
)
async def test_any_bytes_are_an_outcome(head: bytes, rest: bytes) -> None:
    async with talking(says(head + rest)) as talker:
        got = await ask(talker)
    assert got.outcome in OUTCOMES
    assert (got.detail is None) == (got.outcome == "ok") or got.outcome == "status"


async def test_what_the_taker_raises_is_raised_whatever_it_is() -> None:
    """A ValueError of ours would else be called an answer that is not HTTP."""

    def take(_: bytes) -> bool:
        raise ValueError("of our own")

    async with talking(says(stream(b"data: x\n\n"))) as talker:
        with pytest.raises(ValueError, match="of our own"):
            await exchange(Access(talker.server()), Request("GET", "/health", LIMITS, take=take))


async def test_no_fault_of_ours_is_raised_or_laid_upon_the_server() -> None:
    access = Access(config.Server(name="k", unit="k.service"))

    async def opened(_: str) -> None:
        raise RuntimeError("no more of it")

    access.opened = opened  # type: ignore[method-assign,assignment]
    got = await exchange(access, Request("GET", "/health", LIMITS))
    assert (got.outcome, got.why) == ("skipped", "config")
    assert got.detail == "asking failed (RuntimeError: no more of it): a fault of sglang-watchdog, please report it"
