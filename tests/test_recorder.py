"""The flight recorder: what goes in comes out, within limits, whatever the disk does."""

import gzip
import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from watchdog import recorder
from watchdog.clock import FakeClock
from watchdog.config import Recording
from watchdog.observation import Header, Log, decode
from watchdog.recorder import Recorder
from watchdog.replay import Record


def line(t: float, text: str = "a line") -> Log:
    return Log(t=t, inv="0" * 32, message=text)


def made(folder: Path, **settings: object) -> Recorder:
    return Recorder(folder, Header(server="kimi", unit="sglang-kimi.service"), Recording(**settings), FakeClock())  # type: ignore[arg-type]


def flush(r: Recorder) -> None:
    work = r.pending()
    if work is not None:
        work()


def test_what_is_written_can_be_replayed(tmp_path: Path) -> None:
    r = made(tmp_path)
    for n in range(100):
        r.take(line(n))
    flush(r)
    r.take(line(100.0))
    flush(r)

    (file,) = tmp_path.glob("*.jsonl")
    record = Record(file)

    assert record.header.server == "kimi"
    assert [x.t for x in record] == [float(n) for n in range(101)]


def test_a_second_daemon_begins_a_new_segment_and_packs_the_old_one(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.take(line(1.0))
    flush(first)
    second = Recorder(tmp_path, Header(server="kimi"), Recording(), _at(5.0))
    second.take(line(6.0))
    flush(second)

    (packed,) = tmp_path.glob("*.gz")
    (plain,) = tmp_path.glob("*.jsonl")

    assert [x.t for x in Record(packed)] == [1.0]
    assert [x.t for x in Record(plain)] == [6.0]


def _at(t: float) -> FakeClock:
    clock = FakeClock()
    clock.advance(t)
    return clock


def test_the_ring_keeps_to_its_size_and_drops_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SEGMENT", 64 * 1024)
    clock = FakeClock()
    r = Recorder(tmp_path, Header(), Recording(disk_mib=1), clock)
    for n in range(400):
        clock.advance(1.0)
        r.take(line(n, os.urandom(8000).hex()))
        flush(r)

    files = sorted(tmp_path.glob("*.jsonl*"))
    total = sum(f.stat().st_size for f in files)

    assert total <= 1024**2 + 64 * 1024
    assert [x.t for x in Record(files[-1])][-1] == 399.0
    assert next(iter(Record(files[0]))).t > 0.0


def test_memory_keeps_to_time_and_size(tmp_path: Path) -> None:
    r = made(tmp_path, enabled=False, memory_s=60.0, memory_mib=1)
    for n in range(200):
        r.take(line(n))

    assert decode(r.lines()[1]).t == 139.0

    for n in range(200, 400):
        r.take(line(200 + n / 10, os.urandom(25_000).hex()))

    assert 0 < r._packed_bytes + r._memory_bytes <= 1024**2 + recorder.BLOCK + 60_000
    moments = [decode(x).t for x in r.lines()[1:]]
    assert moments == [200 + n / 10 for n in range(400 - len(moments), 400)], "the newest, without a gap"
    assert len(moments) < 100
    assert r.pending() is None


def test_memory_that_is_packed_comes_back_whole_and_in_order(tmp_path: Path) -> None:
    r = made(tmp_path, enabled=False)
    lines = [line(n / 10, f"line {n} with a line break\nin it") for n in range(5000)]
    for x in lines:
        r.take(x)

    assert r._packed
    assert [decode(x) for x in r.lines()[1:]] == lines
    younger = [decode(x).t for x in r.lines(since=450.0)[1:]]
    assert younger[-1] == 499.9
    assert 450.0 in younger
    assert len(younger) < 2000, "at most a block more than was asked for"


def test_since_gives_the_header_and_what_is_younger(tmp_path: Path) -> None:
    r = made(tmp_path)
    for n in range(10):
        r.take(line(n))

    header, *rest = r.lines(since=7.0)

    assert b'"record":"flight"' in header
    assert [decode(x).t for x in rest] == [7.0, 8.0, 9.0]


def test_the_header_knows_a_wall_clock_that_was_set(tmp_path: Path) -> None:
    clock = FakeClock()
    r = Recorder(tmp_path, Header(), Recording(), clock)
    r.take(line(1.0))
    clock.origin += timedelta(days=365)  # a time server is heard some time after a boot
    flush(r)
    (file,) = tmp_path.glob("*.jsonl")
    for head in (r.lines()[0], file.read_bytes().splitlines()[0]):
        assert msgspec.json.decode(head, type=Header).started == "2027-01-14T02:00:00.000Z"


def test_a_disk_that_takes_nothing_is_told_and_nothing_crashes(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    r = made(blocked)
    r.take(line(1.0))
    flush(r)

    assert r.dropped == 1
    assert r.trouble is not None
    assert len(r.lines()) == 2

    blocked.unlink()
    r.take(line(2.0))
    flush(r)

    assert r.trouble is None
    (file,) = blocked.glob("*.jsonl")
    assert [x.t for x in Record(file)] == [2.0]


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    full = tmp_path / "flight"
    r = made(full)
    full.mkdir()
    r.take(line(1.0))
    flush(r)
    (file,) = full.glob("*.jsonl")
    file.unlink()
    file.symlink_to("/dev/full")
    r.take(line(2.0))
    flush(r)

    assert r.trouble is not None
    assert "No space left" in r.trouble


def test_what_waits_for_a_disk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PENDING", 10_000)
    r = made(tmp_path)
    for n in range(1000):
        r.take(line(n))

    assert r.dropped > 0
    work = r.pending()
    assert work is not None


def test_a_packed_segment_is_a_whole_gzip_file(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.take(line(1.0))
    flush(first)
    flush_second = Recorder(tmp_path, Header(), Recording(), _at(9.0))
    flush_second.take(line(9.0))
    flush(flush_second)
    (packed,) = tmp_path.glob("*.gz")

    with gzip.open(packed) as f:
        assert len(f.readlines()) == 2
