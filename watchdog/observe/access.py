"""How one server's API is reached: its address, key and certificates."""

import asyncio
import json
import os
import ssl
from pathlib import Path

from watchdog import certificates, config, keyring, regular
from watchdog.observation import STRUCK
from watchdog.worker import BusyError, Worker

OPEN = ("/health", "/metrics")
"""Paths that begin so are answered without a key (SGLang 0.4.6 to 0.5.23, --api-key and --admin-api-key)."""

MAX_KEY = 4096
"""An API key is no longer than this, in bytes; it is one header line (RFC 9110 leaves the limit to the server)."""

FILES_LIMIT_S = 2.0
"""So long the files of the key and of the CA are waited for, in seconds."""

Credentials = tuple[ssl.SSLContext | None, dict[str, str]]
"""For one request: the certificates to trust (None for http), and the headers."""


class AccessError(Exception):
    """The server cannot be asked because of our own settings; the message is one sentence that names the cure."""


def key_path(name: str) -> Path:
    """Where the key file `name` lies: a bare name is a systemd credential (systemd.exec(5), LoadCredential=).

    Raises:
        AccessError: a bare name, but the service has no credentials.
    """
    if "/" in name:
        return Path(name)
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise AccessError(
            f"the API key {name!r} is looked up in systemd's credentials, and there are none: "
            f"add LoadCredential={name}:/path/to/key to the watchdog's unit, or set api_key_file to a full path"
        )
    return Path(folder) / name


def read_key(name: str) -> str:
    """The API key in the file or credential `name`, without surrounding white space.

    Raises:
        AccessError: it cannot be read, or cannot be a key.
    """
    path = key_path(name)
    try:
        raw = regular.read(path, MAX_KEY + 1)
    except OSError as e:
        raise AccessError(
            f"the API key cannot be read from {path}: {e.strerror}; make it readable for the watchdog's user (a command: run it "
            "as root), or hand it over with LoadCredential= and set api_key_file to the credential's name"
        ) from e
    key = raw.strip()
    if not key:
        raise AccessError(f"the API key file {path} is empty; put the server's --api-key into it")
    if len(raw) > MAX_KEY or not all(0x21 <= byte <= 0x7E for byte in key):
        raise AccessError(f"the API key file {path} is not one line of printable ASCII; put nothing but the key into it")
    keyring.remember(key.decode("ascii"))
    return key.decode("ascii")


def tls(server: config.Server) -> ssl.SSLContext | None:
    """The certificates to trust; None for http.

    Raises:
        AccessError: the CA file cannot be read or holds no certificate.
    """
    if not server.base_url.startswith("https://"):
        return None
    try:
        return certificates.trusting(server.ca_file)
    except OSError as e:
        why = e.strerror or str(e)
        raise AccessError(f"the CA file {server.ca_file} cannot be used: {why}; it must be PEM and readable") from e


class Access:
    """Reaches one server. The key is read for each request, so that a new one is used without a restart of ours."""

    def __init__(self, server: config.Server) -> None:
        self.base = server.base_url.rstrip("/")
        self.server = server
        self._tls: ssl.SSLContext | None = None
        self._key = ""
        self._disk = Worker("access")
        self._turn = asyncio.Lock()

    async def opened(self, path: str) -> Credentials:
        """As `open`, beside the event loop.

        Raises:
            AccessError: as `open`, or the files' disk does not answer.
        """
        try:
            async with self._turn:
                return await self._disk.call(lambda: self.open(path), FILES_LIMIT_S)
        except (TimeoutError, BusyError) as e:
            files = " or ".join(name for name in (self.server.api_key_file, self.server.ca_file) if name)
            raise AccessError(f"{files} cannot be read, since the disk does not answer: look at it, or at what mounts it") from e

    def open(self, path: str) -> Credentials:
        """Certificates and headers for one request. Reads files: not for the event loop's thread.

        Raises:
            AccessError: see `read_key` and `tls`. A key that cannot be read keeps us from no path that needs none.
        """
        if self._tls is None:
            self._tls = tls(self.server)
        if not self.server.api_key_file:
            return self._tls, {}
        try:
            self._key = read_key(self.server.api_key_file)
        except AccessError:
            if path.startswith(OPEN):
                return self._tls, {}
            raise
        return self._tls, {"Authorization": f"Bearer {self._key}"}

    def redacted(self, text: str) -> str:
        """`text` without the key, for a server that echoes it. Redact before you cut."""
        if not keyring.telling(self._key):
            return text
        return text.replace(self._key, STRUCK).replace(json.dumps(self._key)[1:-1], STRUCK)
