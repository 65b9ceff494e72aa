"""Our own log: structured entries in the journal, readable as plain text too (docs/log-fields.md).

Under systemd an entry goes to journald's native socket, with one field for each fact; elsewhere a line goes to standard error.
Field names begin with SGLANG_WATCHDOG_ and are listed in FIELDS, message ids in MESSAGE_IDS.
"""

import os
import sys
import unicodedata
from collections.abc import MutableMapping
from typing import Any

import structlog
from systemd import journal

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
    "source-failed": "f498c241428c49a18b593a276cdf86ab",
    "state-lost": "06f5892b4bfb4bdcb86495bfc23050c3",
    "alert": "0d4da804b3aa42daae6ab460c38f0b74",
    "alert-channel": "9a06eba28f044dbdad960d005878ab21",
    "operator": "f5c9f5ccb422474ebf65bf5f7eb7bdc5",
}
PREFIX = "SGLANG_WATCHDOG_"
PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


def plain(text: str) -> str:
    """One line without control characters, so that nobody can forge an entry of ours through it."""
    return "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)


class _Journal:
    """Sends entries to journald."""

    def msg(self, message: str, priority: int, fields: dict[str, str]) -> None:
        journal.send(message, PRIORITY=str(priority), SYSLOG_IDENTIFIER="sglang-watchdog", **fields)


class _Stderr:
    """Prints entries, for a terminal and for tests."""

    def msg(self, message: str, priority: int, fields: dict[str, str]) -> None:  # noqa: ARG002
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
    return (f"{server}: {message}" if server else message, PRIORITY.get(level, 6), fields), {}


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
