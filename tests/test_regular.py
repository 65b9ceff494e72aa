"""What is no regular file is never waited for and never read on, wherever a file of ours is opened."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from watchdog import baseline, durable, regular, replay
from watchdog.act.alerts.store import Store
from watchdog.clock import FakeClock
from watchdog.state import StateFile
from watchdog.web import shelf


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listens(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


STRANGE: list[tuple[Callable[[Path], None], str]] = [(pipe, "a named pipe"), (Path.mkdir, "a folder"), (listens, "a socket")]


@pytest.mark.parametrize(("make", "word"), STRANGE)
def test_what_is_no_file_is_refused_with_its_kind(
    tmp_path: Path, make: Callable[[Path], None], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("x"))
    with pytest.raises(regular.NotRegularError, match=word):
        regular.read(Path("x"), 100)


def test_a_device_is_refused() -> None:
    with pytest.raises(regular.NotRegularError, match="a device"):
        regular.read(Path("/dev/zero"), 100)


@pytest.mark.parametrize("make", [pipe, Path.mkdir])
def test_the_state_directory_takes_what_is_no_file_aside_and_goes_on(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name in ("state.json", "baseline.json", "timeline.json", "book.json"):
        make(tmp_path / name)
    state = StateFile(tmp_path / "state.json", FakeClock())
    saved, why = state.load()
    assert [r.reason for r in saved.ledger.restarts] == ["StateLost"]
    assert why is not None
    assert "not a file" in why
    assert "kept as state.json." in why
    state.write(state.encode(saved))
    assert state.load()[1] is None

    kept, why = baseline.BaselineFile(tmp_path / "baseline.json").load()
    assert kept.baselines == []
    assert why is not None
    assert "kept as baseline.json." in why

    with pytest.raises(ValueError, match=r"not a file\); kept as timeline\.json\."):
        shelf.take(tmp_path)
    assert shelf.take(tmp_path) is None

    store = Store(tmp_path)
    assert store.load("book.json") is None
    store.save("book.json", b"{}")
    assert store.load("book.json") == b"{}"


def test_a_pipe_or_link_in_the_place_of_the_unfinished_file_is_not_written_into(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    pipe(tmp_path / "0.json.new")
    (tmp_path / "1.json.new").symlink_to(elsewhere)
    for name in ("0.json", "1.json"):
        path = tmp_path / name
        durable.write(path, b"fresh")
        assert path.read_bytes() == b"fresh"
    assert elsewhere.read_bytes() == b"untouched"


def test_a_state_that_cannot_be_written_says_what_is_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory") as e:
        durable.write(path, b"{}")
    assert durable.mend(path, e.value) == f"move away what lies at {path}"
    assert durable.mend(path, PermissionError(13, "no")) == "mend its owner and mode"


def test_a_device_is_no_record() -> None:
    with pytest.raises(replay.RecordError, match="a device, not a file"):
        replay.Record(Path("/dev/zero"))


def test_a_pipe_without_an_end_is_refused_early() -> None:
    command = [sys.executable, "-m", "watchdog", "replay", "/dev/stdin"]
    with (
        open("/dev/zero", "rb") as zeros,  # noqa: PTH123
        subprocess.Popen(["cat"], stdin=zeros, stdout=subprocess.PIPE) as cat,
    ):
        done = subprocess.run(command, stdin=cat.stdout, capture_output=True, text=True, timeout=60, check=False)
        cat.kill()
    assert done.returncode == 2
    assert "line 1: cannot be read (too long" in done.stderr


def test_a_record_from_a_pipe_is_judged() -> None:
    command = [sys.executable, "-m", "watchdog", "replay", "/dev/stdin"]
    raw = '{"record":"flight","version":1}\n{"kind":"server","t":1}\n'
    done = subprocess.run(command, input=raw, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, '"observations": 1' in done.stdout) == (0, True)


def test_a_record_without_an_observation_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_VAIN_BYTES", 1000)
    path = tmp_path / "r.jsonl"
    good = b'{"kind":"server","t":1}\n'
    path.write_bytes(b'{"record":"flight","version":1}\n' + (b"\n" * 12 + good) * 5)
    assert len(list(replay.Record(path))) == 5
    path.write_bytes(b'{"record":"flight","version":1}\n' + b"\n" * 2000)
    with pytest.raises(replay.RecordError, match="without an observation"):
        list(replay.Record(path))


@pytest.mark.parametrize("started", ["2199-99-99", "yesterday", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_header_whose_moment_cannot_be_is_told(tmp_path: Path, started: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"record":"flight","version":1,"started":"{started}"}}\n{{"kind":"server","t":1}}\n')
    record = replay.Record(path)
    assert record.header.started == ""
    assert [started in doubt and "line 1" in doubt for doubt in record.doubts] == [True]


@pytest.mark.parametrize(
    ("started", "taken"),
    [("2026-01-14T02:00:00Z", "2026-01-14T02:00:00Z"), ("", ""), ("2026-01-14T02:00:00", "2026-01-14T02:00:00Z")],
)
def test_a_header_s_moment_is_of_utc_where_it_names_no_zone(tmp_path: Path, started: str, taken: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"record":"flight","version":1,"started":"{started}"}}\n')
    record = replay.Record(path)
    assert (record.header.started, record.doubts) == (taken, [])
