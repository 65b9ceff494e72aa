"""One HTTP exchange with a server that may be in any state: bounded in time and size, and named when it fails.

Every exchange has a connection of its own (no state is carried from one life of the server into the next), goes to the
configured address only (no proxy from the environment, no redirect followed) and refuses compression (no bombs).
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
from aiohttp.http_exceptions import HttpProcessingError

from watchdog.observe.access import Access, AccessError, Credentials

KIB = 1024
BODY_CAP = 256 * KIB
BODY_SHOWN = 512
DETAIL_SHOWN = 300
"""Longest body (read), body (kept) in characters, and sentence."""


class Limits(msgspec.Struct, frozen=True):
    """Deadlines in seconds from the beginning, and the longest body in bytes."""

    connect_s: float
    total_s: float
    cap: int = BODY_CAP


class Request(msgspec.Struct, frozen=True):
    """What is asked.

    Attributes:
        method: GET or POST.
        path: with its slash, without the base address.
        limits: deadlines and the cap.
        payload: sent as JSON.
        headers: sent along.
        take: gets each piece of the body, where that is an event stream with a 2xx status, instead of `Exchange.body`;
            returns True when it has seen the end.
    """

    method: str
    path: str
    limits: Limits
    payload: dict[str, Any] | None = None
    headers: dict[str, str] = {}
    take: Callable[[bytes], bool] | None = None


class Exchange(msgspec.Struct):
    """What came of a request. `outcome` is one of observation.OUTCOMES; `why` is set when it is "skipped".

    Attributes:
        connect_s: until TCP and TLS were up; for "refused" until the refusal.
        first_s: until the first byte of the answer.
        server: the answer's Server header; uvicorn for SGLang itself.
    """

    outcome: str = "ok"
    status: int | None = None
    connect_s: float | None = None
    first_s: float | None = None
    total_s: float | None = None
    body: bytes = b""
    event_stream: bool = False
    server: str | None = None
    detail: str | None = None
    why: str | None = None

    def failed(self, outcome: str, detail: str) -> None:
        """Name the failure."""
        self.outcome = outcome
        self.detail = detail


async def exchange(access: Access, request: Request) -> Exchange:
    """Ask once. Nothing is raised but what `request.take` raises."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    result = Exchange()
    limits = request.limits
    faults: list[Exception] = []
    take = None if request.take is None else _kept_apart(request.take, faults)
    try:
        credentials = await access.opened(request.path)
        begun = loop.time()  # what our own files take is not the server's time
        async with asyncio.timeout(limits.total_s):
            await _exchange(access.base, credentials, msgspec.structs.replace(request, take=take), result, begun)
    except AccessError as e:
        result.failed("skipped", str(e))
        result.why = "config"
    except TimeoutError:
        if result.connect_s is None:
            result.failed("connect_timeout", f"no connection within {min(limits.connect_s, limits.total_s):g} s")
        elif result.first_s is None:
            why = "no answer (at most the beginning of its headers)"
            result.failed("timeout", f"connected, but {why} within {limits.total_s:g} s")
        else:
            result.failed("timeout", f"the answer began after {result.first_s:.2f} s but did not end within {limits.total_s:g} s")
    except Exception as e:  # noqa: BLE001  # of whatever is left, the server is innocent
        result.failed("skipped", f"asking failed ({type(e).__name__}: {e}): a fault of sglang-watchdog, please report it")
        result.why = "config"
    if faults:
        raise faults[0]
    result.total_s = round(loop.time() - begun, 4)
    result.detail = shortened(access.redacted(result.detail)) if result.detail else None
    result.body = access.redacted(result.body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return result


def _kept_apart(take: Callable[[bytes], bool], faults: list[Exception]) -> Callable[[bytes], bool]:
    """`take`, with what it raises put into `faults`, so that it is not mistaken for a fault of the connection."""

    def kept(piece: bytes) -> bool:
        try:
            return take(piece)
        except Exception as e:  # noqa: BLE001  # it is raised once the connection is closed
            faults.append(e)
            return True

    return kept


def shortened(text: str) -> str:
    """One line, at most `DETAIL_SHOWN` characters."""
    text = " ".join(text.split())
    return text if len(text) <= DETAIL_SHOWN else text[: DETAIL_SHOWN - 1] + "…"


async def _exchange(base: str, credentials: Credentials, request: Request, result: Exchange, begun: float) -> None:
    loop = asyncio.get_running_loop()
    tls, auth = credentials
    limits = request.limits
    trace = aiohttp.TraceConfig()

    async def connected(*_: object) -> None:
        result.connect_s = round(loop.time() - begun, 4)

    trace.on_connection_create_end.append(connected)
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls or True, force_close=True, use_dns_cache=False),
                cookie_jar=aiohttp.DummyCookieJar(),
                # ceil_threshold: aiohttp rounds longer time-outs up to whole seconds otherwise.
                timeout=aiohttp.ClientTimeout(connect=limits.connect_s, ceil_threshold=limits.connect_s + 1),
                auto_decompress=False,
                trust_env=False,
                trace_configs=[trace],
                skip_auto_headers=("User-Agent",),
                headers={"User-Agent": "sglang-watchdog", "Accept-Encoding": "identity", **auth, **request.headers},
            ) as session,
            session.request(request.method, base + request.path, json=request.payload, allow_redirects=False) as response,
        ):
            result.first_s = round(loop.time() - begun, 4)
            result.status = response.status
            result.server = response.headers.get("Server")
            result.event_stream = response.content_type == "text/event-stream"
            if response.headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
                result.failed("malformed", "the answer is compressed although that was refused (Accept-Encoding: identity)")
                return
            live = request.take if response.ok and result.event_stream else None
            if await _read(response.content, live, limits, result) and response.status // 100 != 2:
                result.outcome = "status"
                result.detail = _redirect(response.headers.get("Location")) if response.status // 100 == 3 else None
    except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as e:
        if isinstance(e, TimeoutError) and not isinstance(e, aiohttp.ClientError):
            raise
        _name(e, result, round(loop.time() - begun, 4))


async def _read(content: aiohttp.StreamReader, take: Callable[[bytes], bool] | None, limits: Limits, result: Exchange) -> bool:
    """Read the body into `result`; False if it is longer than the cap."""
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in content.iter_any():
            size += len(piece)
            if size > limits.cap:
                result.failed("malformed", f"the answer is longer than {limits.cap // KIB} KiB")
                return False
            if take is None:
                pieces.append(piece)
            elif take(piece):
                break
    finally:
        result.body = b"".join(pieces)
    return True


def _redirect(location: str | None) -> str:
    return f"it redirects to Location {location or '(none)'}, which is not followed; set base_url to the server's own address"


def _name(error: Exception, result: Exchange, now: float) -> None:
    """Which outcome an exception of aiohttp is."""
    tls = error if isinstance(error, ssl.SSLError) else getattr(error, "certificate_error", None) or error.__cause__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        result.failed("connect_timeout", f"no connection within {now:.1f} s")
    elif isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or isinstance(tls, ssl.SSLError):
        # Certificates and protocol are a matter of settings on both sides: it tells nothing about the engine.
        result.failed("skipped", f"TLS failed: {tls}; check base_url and ca_file, and the server's certificate")
        result.why = "config"
    elif isinstance(error, aiohttp.ClientConnectorDNSError) or (isinstance(error, ValueError) and result.connect_s is None):
        result.failed("skipped", f"the address cannot be used: {error}; check base_url")
        result.why = "config"
    elif isinstance(error, aiohttp.ClientConnectorError):
        result.connect_s = now
        code = error.os_error.errno
        result.failed("refused", f"no connection: {os.strerror(code) if code else error}")
    elif isinstance(error, HttpProcessingError | aiohttp.ClientResponseError | ValueError):
        said = str(getattr(error, "message", error)).partition("\n")[0].rstrip(":")
        result.failed("malformed", f"the answer is not HTTP: {said}")
    else:
        begun = "before any answer" if result.first_s is None else "in the middle of the answer"
        result.failed("reset", f"the connection was closed {begun}")
