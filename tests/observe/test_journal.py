import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from watchdog import config
from watchdog.clock import FakeClock
from watchdog.observation import Log, Observation
from watchdog.observe import journal_reader
from watchdog.observe.journal import JournalSource, life_matches, unit_matches
from watchdog.observe.journal_reader import BATCH, Batch, JournalError, JournalReader, check_access
from watchdog.observe.source import Target

Entry = dict[str, bytes]

SERVER = {
    "_SYSTEMD_UNIT": b"kimi.service",
    "_SYSTEMD_INVOCATION_ID": b"life",
    "_PID": b"42",
    "PRIORITY": b"6",
    "SYSLOG_IDENTIFIER": b"python3",
}
ACCESS = b'INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'


class Reader:
    """Entries in the place of a journal; `_at` is when they were written."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.waiting: list[Entry] = []
        self.entry: Entry = {}

    def get(self, name: str) -> bytes:
        if name in self.entry.get("_broken", b"").decode().split():
            raise OSError(74, "Bad message")
        return self.entry[name]

    def entries(self) -> Iterator[Callable[[str], bytes]]:
        batch, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
        for self.entry in batch:
            yield self.get

    def field(self, name: str) -> bytes | None:
        return self.get(name) if name in self.entry or "_broken" in self.entry else None

    def written(self) -> float:
        return float(self.entry.get("_at", b"%f" % self.clock.now()))


class Bench:
    """A JournalSource that reads from such a list."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.advance(100)
        self.source = JournalSource(Target(config.Server(name="kimi", unit="kimi.service")), self.clock)
        self.reader = Reader(self.clock)
        self.source._reader = self.reader  # type: ignore[assignment]
        self.source._began = 10.0
        self.seen: list[Log] = []

    def read(self, *entries: Entry) -> list[Log]:
        self.reader.waiting = list(entries)
        self.seen = []
        while self.source._read(self.emit).entries:
            pass
        return self.seen

    def emit(self, observation: Observation) -> None:
        assert isinstance(observation, Log)
        self.seen.append(observation)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("entry", "log"),
    [
        (SERVER | {"MESSAGE": b"hello"}, Log(t=100.0, inv="life", message="hello", pid=42, ident="python3", priority=6)),
        (
            {"MESSAGE": b"Started.", "_PID": b"1", "UNIT": b"kimi.service", "INVOCATION_ID": b"next", "PRIORITY": b"5"},
            Log(t=100.0, inv="next", message="Started.", pid=1, priority=5, origin="systemd"),
        ),
        (
            {
                "MESSAGE": b"Suppressed 7 messages from kimi.service",
                "_SYSTEMD_UNIT": b"systemd-journald.service",
                "_UID": b"0",
                "_PID": b"9",
                "N_DROPPED": b"7",
                "OBJECT_SYSTEMD_UNIT": b"kimi.service",
                "OBJECT_SYSTEMD_INVOCATION_ID": b"life",
            },
            Log(t=100.0, inv="life", message="Suppressed 7 messages from kimi.service", pid=9, origin="journald", dropped=7),
        ),
        ({"MESSAGE": b"forged", "_PID": b"77", "UNIT": b"kimi.service", "INVOCATION_ID": b"life"}, None),
        (
            {
                "MESSAGE": b"forged",
                "_PID": b"77",
                "_SYSTEMD_UNIT": b"bad.service",
                "_UID": b"0",
                "OBJECT_SYSTEMD_UNIT": b"kimi.service",
            },
            None,
        ),
        (SERVER, None),
        (
            SERVER | {"MESSAGE": b"odd", "PRIORITY": b"high", "_PID": b"-"},
            Log(t=100.0, inv="life", message="odd", ident="python3"),
        ),
        (
            SERVER | {"MESSAGE": b"old", "_at": b"98.5"},
            Log(t=100.0, inv="life", message="old", pid=42, ident="python3", priority=6, at=98.5),
        ),
    ],
)
def test_what_an_entry_tells(bench: Bench, entry: Entry, log: Log | None) -> None:
    assert bench.read(entry) == ([] if log is None else [log])


def test_lives_are_told_apart_within_a_batch(bench: Bench) -> None:
    later = SERVER | {"_SYSTEMD_INVOCATION_ID": b"next", "_PID": b"43"}
    logs = bench.read(SERVER | {"MESSAGE": b"a"}, later | {"MESSAGE": b"b"}, SERVER | {"MESSAGE": b"c"})
    assert [(log.message, log.inv) for log in logs] == [("a", "life"), ("b", "next"), ("c", "life")]


def test_an_unreadable_entry_is_counted_and_the_next_one_is_read(bench: Bench) -> None:
    broken = SERVER | {"MESSAGE": b"x", "_broken": b"MESSAGE"}
    half = SERVER | {"MESSAGE": b"x", "_broken": b"_PID"}
    assert [log.message for log in bench.read(broken, half, SERVER | {"MESSAGE": b"good"})] == ["good"]
    assert bench.source.dropped == 2


def test_far_behind_only_bulk_is_left_out_and_counted(bench: Bench) -> None:
    access = [SERVER | {"MESSAGE": ACCESS, "_at": b"90.%d" % n} for n in range(10)]
    fatal = SERVER | {"MESSAGE": b"Scheduler hit an exception", "_at": b"91"}
    assert [log.message for log in bench.read(*access, fatal)] == [ACCESS.decode(), "Scheduler hit an exception"]
    assert bench.source.dropped == 9


def test_history_is_never_thinned_out(bench: Bench) -> None:
    access = [SERVER | {"MESSAGE": ACCESS, "_at": b"9.%d" % n} for n in range(10)]
    assert len(bench.read(*access)) == 10
    assert bench.source.dropped == 0


def test_the_lines_of_a_container_are_whole_and_without_their_newline(bench: Bench) -> None:
    """As conmon 2.1.12 writes them for podman 5.4: 8192 bytes a part, both streams at once, the newline left at the end."""
    out = SERVER | {"CONTAINER_ID_FULL": b"a1922b27c42f", "CONTAINER_NAME": b"kimi", "PRIORITY": b"6"}
    err, part = out | {"PRIORITY": b"3"}, {"CONTAINER_PARTIAL_MESSAGE": b"true"}
    told = bench.read(
        out | part | {"MESSAGE": b"o" * 8192},
        err | part | {"MESSAGE": b"e" * 8192},
        out | {"MESSAGE": b"OUT\n"},
        out | {"MESSAGE": b"short\n"},
        err | {"MESSAGE": b"ERR\n"},
    )
    assert [(each.message[:1], each.message[-4:], each.priority) for each in told] == [
        ("o", "oOUT", 6),
        ("s", "hort", 6),
        ("e", "eERR", 3),
    ]


def test_the_parts_of_a_long_line_are_one_line(bench: Bench) -> None:
    part = SERVER | {"MESSAGE": b"x" * 49152, "_STREAM_ID": b"s", "_LINE_BREAK": b"line-max"}
    other = SERVER | {"MESSAGE": b"other", "_STREAM_ID": b"t"}
    end = SERVER | {"MESSAGE": b"END", "_STREAM_ID": b"s"}
    other_log, long = bench.read(part, part, other, end)
    assert other_log.message == "other"
    assert long.message.startswith("xxx")
    assert long.message.endswith("xEND")
    bench.read(part)
    bench.clock.advance(20)
    [cut] = bench.read(other)[-1:]
    assert cut.message.startswith("xxx")


def test_of_bulk_only_the_message_and_the_life_are_told(bench: Bench) -> None:
    bulk = SERVER | {"MESSAGE": ACCESS}
    word = {"MESSAGE": b"Stopped.", "_PID": b"1", "UNIT": b"kimi.service", "INVOCATION_ID": b"life"}
    next_life = bulk | {"_SYSTEMD_INVOCATION_ID": b"next", "_PID": b"43"}
    other = SERVER | {"MESSAGE": b"ValueError: x"}
    logs = bench.read(bulk, bulk, other, bulk, word, next_life, next_life)
    assert [(log.inv, log.pid) for log in logs] == [
        ("life", 42),
        ("life", None),
        ("life", 42),
        ("life", None),
        ("life", 1),
        ("next", 43),
        ("next", None),
    ]
    assert {log.message for log in logs} == {ACCESS.decode(), "Stopped.", "ValueError: x"}
    assert bench.read(bulk)[0].pid == 42


def test_a_part_of_a_long_line_is_no_bulk_whatever_it_looks_like(bench: Bench) -> None:
    part = SERVER | {"MESSAGE": b"x" * 49152, "_STREAM_ID": b"s", "_LINE_BREAK": b"line-max"}
    end = SERVER | {"MESSAGE": ACCESS, "_STREAM_ID": b"s"}
    [log] = bench.read(part, end)
    assert log.message.endswith("x" + ACCESS.decode())
    begin = part | {"MESSAGE": ACCESS.replace(b"/v1", b"/" + b"y" * 49152)}
    _, log = bench.read(SERVER | {"MESSAGE": b"a"}, begin, end)
    assert log.message.startswith(ACCESS.decode().partition("v1")[0] + "yyy")
    assert log.message.endswith(ACCESS.decode())


def test_matches_name_only_what_cannot_be_forged() -> None:
    assert unit_matches("a.service", "apart") == (
        ("_SYSTEMD_UNIT=a.service",),
        ("_PID=1", "UNIT=a.service"),
        (
            "_SYSTEMD_UNIT=systemd-journald.service",
            "_SYSTEMD_UNIT=systemd-journald@apart.service",
            "_UID=0",
            "OBJECT_SYSTEMD_UNIT=a.service",
        ),
    )
    assert ("_PID=1", "INVOCATION_ID=abc") in life_matches("abc")


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    monkeypatch.setattr(journal_reader, "ROOTS", (tmp_path / "disk", tmp_path / "run"))
    machine = Path("/etc/machine-id")
    if not machine.exists():
        pytest.skip("this machine has no /etc/machine-id")
    return tmp_path, machine.read_text().strip()


@pytest.mark.parametrize("root", ["disk", "run"])
def test_a_journal_on_disk_or_in_memory_will_do(roots: tuple[Path, str], root: str) -> None:
    folder = roots[0] / root / roots[1]
    folder.mkdir(parents=True)
    (folder / "user-1000.journal").touch()
    with pytest.raises(JournalError, match="start systemd-journald, and set Storage="):
        check_access()
    (folder / "system.journal").touch()
    check_access()
    with pytest.raises(JournalError, match="set journal_namespace to the LogNamespace="):
        check_access("apart")
    (roots[0] / root / f"{roots[1]}.apart").mkdir()
    (roots[0] / root / f"{roots[1]}.apart" / "system.journal").touch()
    check_access("apart")


def test_a_file_that_is_cut_short_while_it_is_mapped_does_not_end_the_process(tmp_path: Path) -> None:
    script = f"""
import mmap
from pathlib import Path
from watchdog.observe.journal_sigbus import guard, struck
if not guard():
    raise SystemExit(77)
path = Path({str(tmp_path / "mapped")!r})
path.write_bytes(b"a" * 8192)
with path.open("r+b") as file:
    mapped = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ)
    assert not struck()
    file.truncate(0)
    assert mapped[:2] == bytes(2)
    assert struck()
    assert not struck()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("systemd's shared library is not on this machine")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("messages", "lively"),
    [
        ([], False),
        (['INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK'], False),
        (['[2026-01-14 02:00:00] INFO:     127.0.0.1:40000 - "GET /metrics HTTP/1.1" 200 OK'] * 3, False),
        (['INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK'] * 5, True),
        (['INFO:     10.0.0.7:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'], True),
        (['INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK', "Traceback (most recent call last):"], True),
    ],
)
def test_a_look_at_the_server_is_no_sign_that_more_comes(bench: Bench, messages: list[str], lively: bool) -> None:
    bench.reader.waiting = [{**SERVER, "MESSAGE": message.encode()} for message in messages]
    assert bench.source._read(bench.emit) == (len(messages), lively)


class Pipe:
    """In the place of libsystemd's reader: a file descriptor that never tells of anything."""

    def __init__(self) -> None:
        self.ends = os.pipe()

    def fileno(self) -> int:
        return self.ends[0]

    def close(self) -> None:
        for end in self.ends:
            os.close(end)


async def test_what_could_not_be_opened_anew_lets_go_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """By then the number may belong to a connection, of which the event loop would throw."""
    reader, opened = JournalReader(FakeClock(), ()), [Pipe()]

    def open_() -> None:
        if not opened:
            raise JournalError("gone")
        reader._raw = opened.pop()
        reader._fd = reader._raw.fileno()

    monkeypatch.setattr(reader, "_open", open_)
    monkeypatch.setattr(journal_reader, "RENEW_S", 0.0)
    loop, let_go = asyncio.get_running_loop(), list[int]()
    remove = loop.remove_reader

    def removed(fd: int) -> bool:
        let_go.append(fd)
        return remove(fd)

    monkeypatch.setattr(loop, "remove_reader", removed)
    with pytest.raises(JournalError, match="gone"), reader.opened():
        first = reader._fd
        await reader.follow(lambda: Batch(0, lively=False), lambda: None, 5.0)
    assert let_go == [first]
