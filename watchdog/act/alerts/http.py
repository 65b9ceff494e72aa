"""One POST of JSON to somebody else's server: bounded in time and size, no redirect, and no secret in what went wrong."""

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp

from watchdog import __version__, certificates, regular
from watchdog.act import redact
from watchdog.worker import BusyError, Worker

T = TypeVar("T")

BODY_CAP = 4096
SHOWN = 160
FILE_CAP = 65536
FILE_LIMIT_S = 2.0
"""So long a file is waited for, in seconds."""

REFUSED = (400, 405, 406, 409, 411, 413, 414, 415, 422, 431)
"""The message itself is called bad (RFC 9110, section 15.5): sending it again brings the same."""


class SendError(Exception):
    """A message has not arrived; the text is one sentence for people and holds no secret.

    Attributes:
        refused: whether the other side calls the message bad.
        after_s: how long the other side asks us to wait (Retry-After), in seconds.
    """

    def __init__(self, text: str, *, refused: bool = False, after_s: float | None = None) -> None:
        super().__init__(text)
        self.refused = refused
        self.after_s = after_s


class Files:
    """Reads the files of one channel beside the event loop: a disk that does not answer keeps one thread, whatever is tried."""

    def __init__(self, channel: str) -> None:
        self._disk = Worker(f"files of {channel}")
        self._turn = asyncio.Lock()
        self._name = ""

    async def read(self, name: str, work: Callable[[], T]) -> T:
        """What `work` makes of the file `name`.

        Raises:
            SendError: this file, or one that was read before and still is, does not come.
        """
        async with self._turn:
            if not self._disk.busy:
                self._name = name
            try:
                return await self._disk.call(work, FILE_LIMIT_S)
            except (TimeoutError, BusyError):
                why = "cannot be read, since its disk does not answer: look at it, or at what mounts it"
                raise SendError(f"{self._name} {why}") from None


async def post(
    url: str,
    content: bytes,
    *,
    files: Files,
    limit_s: float,
    headers_file: str = "",
    ca_file: str = "",
    proxy_url: str = "",
    more: dict[str, str],
) -> None:
    """Send once; returns when it was answered with 2xx.

    Args:
        url: where to.
        content: the JSON.
        files: reads the two files, before the deadline counts: whoever is sent to has no part in that.
        limit_s: the deadline, in seconds.
        headers_file: of more headers, with secrets in them.
        ca_file: of certificates to trust.
        proxy_url: "" for none.
        more: headers without secrets.

    Raises:
        SendError: it was not.
    """
    secret = await files.read(headers_file, lambda: read_headers(headers_file)) if headers_file else {}
    tls = await files.read(ca_file, lambda: _tls(url, ca_file)) if ca_file else None
    try:
        async with asyncio.timeout(limit_s):
            headers = {
                "User-Agent": f"sglang-watchdog/{__version__}",
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
                **more,
                **secret,
            }
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=tls or True, force_close=True, use_dns_cache=False),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None),  # the deadline around it counts
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                session.post(url, data=content, headers=headers, allow_redirects=False, proxy=proxy_url or None) as response,
            ):
                if response.status // 100 != 2:
                    raise _status(response, await response.content.read(BODY_CAP))
    except TimeoutError:
        raise SendError(f"{host_of(url)} gave no answer within {limit_s:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as e:
        raise SendError(f"{host_of(url)}: {_cause(e)}") from None


def read_file(name: str) -> str:
    """A file of ours with secrets in it; a bare name is a systemd credential (systemd.exec(5), LoadCredential=). Blocking.

    Raises:
        SendError: it cannot be read; the text names the cure.
    """
    path = Path(name)
    if "/" not in name:
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            raise SendError(f"there is no systemd credential {name}: add LoadCredential={name}:/path, or give a full path")
        path = Path(folder) / name
    try:
        return regular.read(path, FILE_CAP).decode("utf-8")
    except OSError as e:
        raise SendError(f"{path} cannot be read: {e.strerror}; make it readable for the watchdog's user") from None
    except UnicodeDecodeError:
        raise SendError(f"{path} is not UTF-8 text; save it as UTF-8") from None


def read_headers(name: str) -> dict[str, str]:
    """The headers in a file of `Name: value` lines; empty lines and lines that begin with # do not count. Blocking.

    Raises:
        SendError: it cannot be read, or has a line of another form; the line itself is not shown.
    """
    if not name:
        return {}
    headers: dict[str, str] = {}
    for number, line in enumerate(read_file(name).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        if not colon or not key.strip() or not (key.strip() + value.strip()).isprintable() or " " in key.strip():
            raise SendError(f"{name}, line {number}, is not of the form Name: value; mend it")
        headers[key.strip()] = value.strip()
    return headers


def host_of(url: str) -> str:
    """Host and port of an address; its path may be a secret."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the address"
    return f"{parts.hostname}:{port}" if port else parts.hostname or "the address"


def _tls(url: str, ca_file: str) -> ssl.SSLContext | None:
    if not url.startswith("https://") or not ca_file:
        return None
    try:
        return certificates.trusting(ca_file)
    except OSError as e:
        raise SendError(f"the CA file {ca_file} cannot be used: {e.strerror or e}; it must be PEM and readable") from None


def _status(response: aiohttp.ClientResponse, said: bytes) -> SendError:
    text = " ".join(redact.secrets(said.decode("utf-8", "replace")).split())[:SHOWN]
    after = response.headers.get("Retry-After", "")
    return SendError(
        f"{host_of(str(response.url))} answered {response.status}" + (f": {text}" if text.isprintable() and text else ""),
        refused=response.status in REFUSED,
        after_s=float(after) if after.isascii() and after.isdigit() and len(after) < 9 else None,
    )


def _cause(error: Exception) -> str:
    """What an exception of aiohttp means, without the address (it may hold a secret)."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, ssl.SSLError | aiohttp.ClientSSLError):
        return "TLS failed; check its certificate and ca_file"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else "no connection"
    if isinstance(error, aiohttp.InvalidURL):
        return "the address cannot be used"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | aiohttp.ClientOSError):
        return "the connection was closed before an answer"
    return f"the answer is not HTTP ({type(error).__name__})"
