"""Our own log: what an entry looks like to journald, and that nobody writes into it but we."""

import ast
import asyncio
import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog import log

PROJECT = Path(__file__).resolve().parent.parent
LEVELS = ("debug", "info", "warning", "error", "critical")


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(2)
        yield listener


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    with listening(tmp_path / "socket") as listener:
        yield listener


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[log._Journal]:
    made = log._Journal(str(tmp_path / "socket"))
    yield made
    made._socket.close()


def entry(data: bytes) -> dict[str, str]:
    return dict(line.split("=", 1) for line in data.decode().splitlines())


def test_the_documentation_lists_exactly_what_there_is() -> None:
    text = (PROJECT / "docs/log-fields.md").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^\| `SGLANG_WATCHDOG_([A-Z]+)` \| ([^|`]+) \|$", text, re.MULTILINE))
    assert {name.lower(): meaning for name, meaning in fields.items()} == log.FIELDS
    assert dict(re.findall(r"^\| `([a-z-]+)` \| `([0-9a-f]{32})` \|", text, re.MULTILINE)) == log.MESSAGE_IDS


def test_message_ids_are_good_and_differ() -> None:
    assert len(set(log.MESSAGE_IDS.values())) == len(log.MESSAGE_IDS)
    assert all(UUID(value).int for value in log.MESSAGE_IDS.values())


def test_every_event_in_the_code_is_known() -> None:
    used = set()
    for path in (PROJECT / "watchdog").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and any(k.arg == "message" for k in node.keywords):
                    used.add(first.value)
    assert used
    assert used <= log.MESSAGE_IDS.keys()


def test_an_entry_has_its_fields(journald: socket.socket, sink: log._Journal) -> None:
    rendered, _ = log._render(
        None,
        "warning",
        {"event": "acted", "message": "done", "server": "kimi", "evidence": ("a", "b"), "unknown": 1, "advice": None},
    )
    sink.msg(*rendered)
    assert entry(journald.recv(65536)) == {
        "MESSAGE": "kimi: done",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "sglang-watchdog",
        "MESSAGE_ID": log.MESSAGE_IDS["acted"],
        "SGLANG_WATCHDOG_EVENT": "acted",
        "SGLANG_WATCHDOG_SERVER": "kimi",
        "SGLANG_WATCHDOG_EVIDENCE": "a; b",
    }


@given(st.text(max_size=5000))
def test_no_text_can_forge_a_field(text: str) -> None:
    (message, priority, fields), _ = log._render(
        None, "error", {"event": "intent", "message": text, "reason": text, "server": text}
    )
    lines = [message, *fields.values()]
    assert all(len(line) <= log.FIELD_LIMIT for line in lines)
    assert all(c.isprintable() or c.isspace() for line in lines for c in line)
    assert not any(c in line for line in lines for c in "\n\r\x00\x1b\u2028\x85" if c != "\u2028")
    assert priority == 3


def test_a_journald_that_does_not_listen_never_blocks_and_gets_the_last_entries_later(tmp_path: Path, sink: log._Journal) -> None:
    for n in range(3 * log.WAITING):
        sink.msg(str(n), 6, {})
    with listening(tmp_path / "socket") as journald:
        got: list[str] = []
        for _ in range(3 * log.WAITING):  # a full queue takes some entries at a time
            sink.msg("now", 6, {})
            got.append(entry(journald.recv(65536))["MESSAGE"])
    assert got[0] == str(2 * log.WAITING + 1)
    assert got[-1] == "now"


async def test_the_rest_of_a_burst_does_not_wait_for_the_next_entry(
    journald: socket.socket, sink: log._Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket holds some ten entries (net.unix.max_dgram_qlen), and the last of a burst may be the alert."""
    monkeypatch.setattr(log, "RETRY_S", 0.0)
    for n in range(2000):  # more than any limit that hosts have
        sink.msg(str(n), 6, {})
    journald.setblocking(False)
    got: list[str] = []
    while not got or got[-1] != "1999":
        with contextlib.suppress(BlockingIOError):
            while True:
                got.append(entry(journald.recv(65536))["MESSAGE"])
        await asyncio.sleep(0)
    assert got[-log.WAITING :] == [str(n) for n in range(2000 - log.WAITING, 2000)]


def test_an_entry_that_is_too_long_for_a_datagram_does_not_hold_up_the_next(journald: socket.socket, sink: log._Journal) -> None:
    sink.msg("x" * 4_000_000, 6, {})
    sink.msg("short", 6, {})
    assert entry(journald.recv(65536))["MESSAGE"] == "short"
