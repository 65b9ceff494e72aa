"""sd_notify(3) without libsystemd: one datagram a message, never blocking, nothing where systemd does not listen."""

import os
import socket
import time
import unicodedata
from collections.abc import MutableMapping

STATUS_LIMIT = 400
"""Characters of STATUS=; a whole message must fit in systemd's buffer of 4096 bytes (NOTIFY_BUFFER_MAX)."""


class Notifier:
    """Tells systemd how this daemon is.

    The variables of the protocol are taken out of the environment, so that child processes cannot speak in our name.

    Attributes:
        interval_s: ping at least this often, in seconds (half of WatchdogSec=, as sd_watchdog_enabled(3) advises);
            None where systemd's watchdog is off or meant for another process.
        enabled: whether anybody listens.
    """

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Take the protocol's variables out of `environ` (os.environ by default)."""
        environ = os.environ if environ is None else environ
        self._address = _address(environ.pop("NOTIFY_SOCKET", ""))
        self.interval_s = _interval(environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", ""))
        self._socket = None if self._address is None else socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        if self._socket is not None:
            self._socket.setblocking(False)

    @property
    def enabled(self) -> bool:
        return self._socket is not None

    def ready(self, status: str) -> bool:
        """READY=1 with a status: start-up, or a reload, is over. Whether it was sent, here and below."""
        return self._send("READY=1", _status(status))

    def waiting(self, status: str) -> bool:
        """STATUS= before the start-up is over."""
        return self._send(_status(status))

    def tell(self, status: str, *, alive: bool) -> bool:
        """STATUS=, one line for people, and if `alive` WATCHDOG=1 where systemd asks for it."""
        return self._send(_status(status), *(("WATCHDOG=1",) if alive and self.interval_s is not None else ()))

    def reloading(self, status: str) -> bool:
        """RELOADING=1 with the time that Type=notify-reload asks for; `ready` must follow."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}", _status(status))

    def stopping(self, status: str) -> bool:
        """STOPPING=1: no pings are asked for from here on, and TimeoutStopSec= runs."""
        return self._send("STOPPING=1", _status(status))

    def close(self) -> None:
        """Give the socket back; nothing is sent after that."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> bool:
        """Whether the message was queued; a full queue or a systemd that is away loses it."""
        if self._socket is None or self._address is None:
            return False
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return False
        return True


def _address(path: str) -> str | None:
    """The address for sendto; None for none, or for a kind that is not spoken here (vsock, for virtual machines)."""
    if path.startswith("@"):
        return "\0" + path[1:]
    return path if path.startswith("/") else None


def _interval(usec: str, pid: str) -> float | None:
    if not (usec.isascii() and usec.isdigit()) or int(usec) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(usec) / 2e6


def _status(text: str) -> str:
    """`text` as a STATUS= line: no line breaks, no control, format or half characters, capped."""
    if not text.isprintable():
        kinds = [(c, unicodedata.category(c)) for c in text]
        text = "".join(" " if kind in ("Cc", "Zl", "Zp") else c for c, kind in kinds if kind not in ("Cf", "Cs"))
    line = " ".join(text.split())
    return "STATUS=" + (line if len(line) <= STATUS_LIMIT else line[: STATUS_LIMIT - 1] + "…")
