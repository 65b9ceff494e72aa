"""Reading a flight record: what is left out and why, and what cannot be read at all."""

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest

from watchdog import replay

HEADER = b'{"record":"flight","version":1}\n'
DEEP = b"[" * 100_000


def at(t: float | str) -> bytes:
    return b'{"kind":"server","t":%s}\n' % str(t).encode()


def file_of(folder: Path, raw: bytes, name: str = "r.jsonl") -> Path:
    path = folder / name
    path.write_bytes(raw)
    return path


def read(folder: Path, *lines: bytes) -> tuple[list[float], dict[str, int]]:
    """The times of the observations after a header, and what was skipped."""
    record = replay.Record(file_of(folder, HEADER + b"".join(lines)))
    return [x.t for x in record], record.skipped.reasons


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"kind":"server","t":1,"new":' + DEEP + b"\n", "nested too deeply"),
        (b'{"kind":"other","t":1,"new":' + DEEP + b"\n", "nested too deeply"),
        (b'{"kind":"other","t":1}\n', "unknown kind 'other'"),
        (b'{"kind":[],"t":1}\n', "unknown kind []"),
        (b'{"kind":"server","t":1', "no JSON (a cut line)"),
        (b"[]\n", "no JSON object"),
    ],
)
def test_a_line_that_cannot_be_used_is_skipped(tmp_path: Path, line: bytes, why: str) -> None:
    assert read(tmp_path, at(1), line.rstrip() + b"\n", at(2)) == ([1.0, 2.0], {why: 3})


def test_a_line_that_is_too_long_is_skipped_and_not_held(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(HEADER + at(1))
        for _ in range(100):
            f.write(b"x" * (1 << 20))
        f.write(b"\n" + at(2))
    record = replay.Record(path)
    tracemalloc.start()
    try:
        times = [x.t for x in record]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (times, record.skipped.reasons) == ([1.0, 2.0], {"too long (more than 16 MiB)": 3})
    assert most < 60 << 20


@pytest.mark.parametrize(
    ("before", "t", "why"),
    [
        (0, "2678401", "jumps by 31 days"),
        (0, "1e300", "jumps by 1.15741e+295 days"),
        (0, "-1", "goes back in time"),
        (None, "-315360001", "t is too far from the start of the record"),
        (None, "1e300", "t is too far from the start of the record"),
    ],
)
def test_a_time_that_cannot_be_is_skipped(tmp_path: Path, before: float | None, t: str, why: str) -> None:
    begin = [] if before is None else [at(before)]
    times, skipped = read(tmp_path, *begin, at(t), at(3))
    assert times == [*([] if before is None else [before]), 3.0]
    assert skipped == {why: len(begin) + 2}


def test_long_gaps_and_early_beginnings_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, at(-315360000), at(-315360000 + 2678400)) == ([-315360000.0, -312681600.0], {})
    assert read(tmp_path, at(1.8e9)) == ([1.8e9], {})  # a clock of seconds since 1970


def test_a_jump_does_not_make_the_replay_tick_for_ever(tmp_path: Path) -> None:
    record = replay.Record(file_of(tmp_path, HEADER + at(1) + at("1e18") + at(2)))
    *_, end = replay.replay(record, replay.settings_of(record.header))
    assert (end["t"], end["observations"], end["skipped"]) == (2.0, 2, 1)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", " is empty; a flight record begins with a header line"),
        (b"\n\n", " is empty; a flight record begins with a header line"),
        (b'{"foo":1}\n', ', line 1: is no header of a flight record ("record": "flight" is missing)'),
        (b"\n" + at(1), ', line 2: is no header of a flight record ("record": "flight" is missing)'),
        (b'{"record":"flight","new":' + DEEP, ", line 1: is no header of a flight record (nested too deeply)"),
        (b'{"record":"flight","version":2}', ", line 1: version 2 is not known; this program reads version 1"),
        (b"x" * (17 << 20) + b"\n" + HEADER, ", line 1: cannot be read (too long (more than 16 MiB))"),
    ],
    ids=["empty", "blank", "foo", "line-2", "deep", "version", "long"],
)
def test_a_file_without_a_header_is_no_record(tmp_path: Path, raw: bytes, said: str) -> None:
    path = file_of(tmp_path, raw)
    with pytest.raises(replay.RecordError) as caught:
        replay.Record(path)
    assert str(caught.value) == f"{path}{said}"


def test_a_header_that_is_no_text_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(replay.RecordError, match="line 1: is no header"):
        replay.Record(file_of(tmp_path, b'{"record":"\xff"}\n'))


def packed(lines: int) -> bytes:
    chance = random.Random(1)
    return gzip.compress(HEADER + b"".join(at(i + chance.random()) for i in range(lines)))


@pytest.mark.parametrize("damage", ["cut", "data", "checksum", "behind"])
def test_a_damaged_gzip_file_is_read_up_to_the_damage(tmp_path: Path, damage: str) -> None:
    whole = packed(50_000)
    middle = len(whole) // 2
    raw = {
        "cut": whole[:middle],
        "data": whole[:middle] + b"\xff" * 64 + whole[middle + 64 :],
        "checksum": whole[:-8] + b"\0\0\0\0" + whole[-4:],
        "behind": whole + b"garbage",
    }[damage]
    record = replay.Record(file_of(tmp_path, raw, "r.jsonl.gz"))
    count = sum(1 for _ in record)
    told = [why for why in record.skipped.reasons if why.startswith("the file is cut or damaged after line ")]
    assert len(told) == 1
    assert count > 10_000
    assert int(told[0].rsplit(" ", 1)[1]) >= count + 1


@pytest.mark.parametrize("size", [1, 2, 5, 12, 20])
def test_a_gzip_file_cut_before_its_first_line_is_called_cut(tmp_path: Path, size: int) -> None:
    path = file_of(tmp_path, packed(10)[:size], "r.jsonl.gz")
    with pytest.raises(replay.RecordError, match="the file is cut or damaged after line 0"):
        replay.Record(path)


@pytest.mark.parametrize("name", ["r", "r.jsonl", "r.gz.1"])
def test_a_packed_record_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    packed_here = gzip.compress(HEADER + at(1) + at(2))

    assert [x.t for x in replay.Record(file_of(tmp_path, packed_here, name))] == [1.0, 2.0]


def test_a_file_that_is_no_gzip_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(replay.RecordError, match="is no gzip file"):
        replay.Record(file_of(tmp_path, HEADER + at(1), "r.jsonl.gz"))
    with pytest.raises(replay.RecordError, match="is empty"):
        replay.Record(file_of(tmp_path, b"", "r.jsonl.gz"))


def test_a_second_header_is_called_so(tmp_path: Path) -> None:
    times, skipped = read(tmp_path, at(1), HEADER, at(0), at(2))
    assert times == [1.0, 2.0]
    assert skipped == {"a second header: two records in one file": 3, "goes back in time": 4}


def test_an_end_before_the_last_observation_is_a_doubt(tmp_path: Path) -> None:
    header = HEADER.rstrip().removesuffix(b"}") + b', "until": 3}\n'
    record = replay.Record(file_of(tmp_path, header + at(1) + at(5)))
    *_, end = replay.replay(record, replay.settings_of(record.header))
    assert end["t"] == 5.0
    assert [doubt.partition(": ")[2] for doubt in record.doubts] == [
        "until 3 is not used: after the last t, 5, it goes back in time"
    ]


def test_a_moment_that_is_none_is_a_doubt_in_plain_words(tmp_path: Path) -> None:
    record = replay.Record(
        file_of(tmp_path, b'{"record":"flight","version":1,"server":"x","started":"2026-01-01T00:00:00+99:00"}\n')
    )
    (doubt,) = record.doubts
    assert "is no moment (it is written like 2026-01-14T02:00:00Z)" in doubt
