"""Our own log: structured entries in the journal, readable as plain text too (docs/log-fields.md).

Under systemd an entry goes to journald's native socket, with one field for each fact; elsewhere a line goes to standard error.
Field names begin with SGLANG_WATCHDOG_ and are listed in FIELDS, message ids in MESSAGE_IDS.
"""

import asyncio
import contextlib
import errno
import os
import socket
import sys
import unicodedata
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from watchdog.act import redact

FIELDS: dict[str, str] = {
    "server": "the name of the watched server",
    "unit": "its systemd unit",
    "event": "what happened, one of MESSAGE_IDS",
    "action": "what was decided: diagnose, restart, plan_restart, withhold, alert, clear",
    "reason": "why, as one CamelCase word",
    "severity": "info, warning or critical",
    "advice": "what a person should do",
    "evidence": "the facts, separated by semicolons",
    "condition": "the type of a condition that changed",
    "status": "True, False or Unknown",
    "result": "what came of an action",
    "bundle": "where the incident's bundle lies",
    "invocation": "the InvocationID of the server's life that is meant",
    "source": "the source that failed",
    "mode": "observe, alert or act",
}
MESSAGE_IDS: dict[str, str] = {
    "started": "091eca1ad5ce47169bd548a5d9d52613",
    "stopping": "d1ddb4866f2b42d1ba004cd0356d777d",
    "reloaded": "afcf624168f84e57af5662b3d5d9c20a",
    "reload-refused": "9ea985d002624c69b4d89443f724aa5c",
    "condition": "d07d9cf354c1433a9dedf42ee0f7aa06",
    "intent": "c107f07186404c7f80a2e4932f727d82",
    "acted": "e67fe380635644d79947ce627b5e9f1b",
    "would": "9f30928fdb1e44a18eb61be0e96b41dc",
    "evidence": "851fff077f3e49999feaddb3a1ba8cee",
    "verified": "dead0c7742864903bab422ccfc34e189",
    "over": "cfc6f60d38424c45b59be80d31acb5b4",
    "source-failed": "f498c241428c49a18b593a276cdf86ab",
    "state-lost": "06f5892b4bfb4bdcb86495bfc23050c3",
    "state-saved": "6c99c74eaacf4e00afd554d07757ab69",
    "baseline-lost": "7738462b9e3b46a58f66a458d7fd4f73",
    "page": "d215293db6174248899f6f2af02741b2",
    "page-open": "84f3f27f18e54ef3b559d95ad7f141b5",
    "page-refused": "bcea22dd339247c18d1e9566c4638109",
    "record-lost": "920f4e6a40984967ab65a5180dfb39e8",
    "control-lost": "53dc3d4bd91e4041a82eab543821a62f",
    "control-made": "40a9e049ed1b4beaaf12dce2039fc778",
    "lock-lost": "c670595c466d48649a112d82d1168d33",
    "start-refused": "e44252820488487188b7a94d155d6712",
    "internal-fault": "9077691c1711406f85676585f85dbe1f",
    "alert": "0d4da804b3aa42daae6ab460c38f0b74",
    "alert-channel": "9a06eba28f044dbdad960d005878ab21",
    "operator": "f5c9f5ccb422474ebf65bf5f7eb7bdc5",
}
PREFIX = "SGLANG_WATCHDOG_"
PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}

JOURNAL_SOCKET = "/run/systemd/journal/socket"
FIELD_LIMIT = 4096
"""Characters of one field; an entry must fit into one datagram."""
WAITING = 500
"""Entries that wait for journald: the first look at eight servers has some two hundred."""
RETRY_S = 0.5
"""A socket of this kind holds some ten datagrams (net.unix.max_dgram_qlen): a burst is more, and is sent in parts."""


def plain(text: str) -> str:
    """One line without control characters, so that nobody can forge an entry of ours through it; at most `FIELD_LIMIT` long."""
    text = redact.secrets(text)
    clean = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text[:FIELD_LIMIT])
    return clean if len(text) <= FIELD_LIMIT else clean[:-1] + "…"


class _Journal:
    """Sends entries to journald (its native protocol: systemd.io/JOURNAL_NATIVE_PROTOCOL).

    systemd-python's `send` would wait for a journald that does not take them; here entries wait for it, up to `WAITING` of them.
    """

    def __init__(self, address: str = JOURNAL_SOCKET) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._waiting: deque[bytes] = deque(maxlen=WAITING)
        self._retry: asyncio.TimerHandle | None = None

    def msg(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        entry = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "sglang-watchdog", **fields}
        # No value has a line break in it (`plain`), so that each field is a line.
        self._waiting.append("".join(f"{name}={value}\n" for name, value in entry.items()).encode("utf-8", "replace"))
        self._send()

    def _send(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        while self._waiting:
            try:
                self._socket.sendto(self._waiting[0], self._address)
            except OSError as e:
                if e.errno != errno.EMSGSIZE:
                    self._send_later()
                    return
            self._waiting.popleft()

    def _send_later(self) -> None:
        """What waits must not wait for the next entry, which may be hours away. Without a loop (a command, a thread) it does."""
        with contextlib.suppress(RuntimeError):
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._send)


class _Stderr:
    """Prints entries, for a terminal and for tests."""

    def msg(self, message: str, priority: int, fields: Mapping[str, str]) -> None:  # noqa: ARG002
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def _render(_: Any, level: str, event: MutableMapping[str, Any]) -> tuple[tuple[str, int, dict[str, str]], dict[str, Any]]:
    """From structlog's dictionary to a message, a priority and journal fields."""
    name = str(event.pop("event"))
    message = plain(str(event.pop("message", name)))
    fields = {f"{PREFIX}EVENT": name}
    if name in MESSAGE_IDS:
        fields["MESSAGE_ID"] = MESSAGE_IDS[name]
    for key, value in event.items():
        if value is not None and key in FIELDS:
            fields[PREFIX + key.upper()] = plain("; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    server = event.get("server")
    return (plain(f"{server}: {message}") if server else message, PRIORITY.get(level, 6), fields), {}


def under_journal() -> bool:
    """Whether systemd has connected our output to the journal (JOURNAL_STREAM, systemd.exec(5))."""
    return "JOURNAL_STREAM" in os.environ


def configure(*, to_journal: bool | None = None) -> None:
    """Set structlog up for the whole process; by itself it finds out whether the journal listens."""
    out: _Journal | _Stderr = _Journal() if (under_journal() if to_journal is None else to_journal) else _Stderr()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _render],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=lambda *_: _Sink(out),
        cache_logger_on_first_use=True,
    )


class _Sink:
    """What structlog calls at the end of the chain."""

    def __init__(self, out: _Journal | _Stderr) -> None:
        self._out = out

    def msg(self, message: str, priority: int, fields: dict[str, str]) -> None:
        self._out.msg(message, priority, fields)

    debug = info = warning = error = critical = msg


def get(**bound: Any) -> structlog.typing.FilteringBoundLogger:
    """A logger with some fields bound."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**bound)
    return logger
