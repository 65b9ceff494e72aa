import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang import bulk
from watchdog.sglang.bulk import Sort, is_bulk, sort_of
from watchdog.sglang.loglines import classify
from watchdog.sglang.marks import Mark


@pytest.mark.parametrize(
    ("line", "sort"),
    [
        ("[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 3, #token: 9", (b" TP0", b"Decode", None)),
        ("[2026-01-14 02:00:00 DP1 TP3] Prefill batch. #new-seq: 1, #new-token: 9", (b" DP1 TP3", b"Prefill", None)),
        ("[2026-01-14 02:00:00] Decode batch. #running-req: 3", (b"", b"Decode", None)),
        ('INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK', (None, None, b"200")),
        ('[2026-01-14 02:00:00] INFO:     ::1:40000 - "GET /health HTTP/1.1" 503 Service Unavailable', (b"", None, b"503")),
        ("[2026-01-14 02:00:00 TP0] Scheduler hit an exception: Decode batch", None),
        ("[2026-01-14 02:00:00] Health check failed. Server couldn't get a response from detokenizer", None),
        ('[2026-01-14 02:00:00 TP0] ValueError: INFO:     1.1.1.1:4 - "GET / HTTP/1.1" 200 OK', None),
        ("", None),
    ],
)
def test_which_lines_come_in_bulk(line: str, sort: Sort | None) -> None:
    assert sort_of(line.encode()) == sort
    assert is_bulk(line.encode()) is (sort is not None)
    if sort is not None:
        meaning = classify(line)
        assert meaning is not None
        _, batch, status = sort
        assert meaning.mark is (Mark.ACCESS if batch is None else Mark(batch.decode().lower()))
        assert meaning.fields.get("status") == (None if status is None else float(status))


@given(st.binary(max_size=300))
def test_any_bytes_will_do(line: bytes) -> None:
    sort_of(line)


def test_known_heads_are_bounded() -> None:
    for i in range(2 * bulk.MAX_FORMS):
        for _ in range(2):
            assert is_bulk(f'[2026-01-14 02:00:00] INFO:     {i:04d}.0.1:4 - "GET / HTTP/1.1" 200 OK'.encode())
            assert not is_bulk(f'[2026-01-14 02:00:00] WARN:     {i:04d}.0.1:4 - "GET / HTTP/1.1" 200 OK'.encode())
        assert 0 < len(bulk._heads) <= bulk.MAX_FORMS


RANKS = st.lists(st.builds("{}{}".format, st.sampled_from(["DP", "PP", "ATTN_CP", "TP", "EP"]), st.integers(0, 20)), max_size=5)
TEXTS = ["Scheduler hit an exception: x", "Health check failed.", "INFO:     Shutting down", "Deco", "Prefi", "INFO:", ""]


@given(RANKS, st.sampled_from(TEXTS))
def test_what_has_come_in_bulk_vouches_for_no_other_line(ranks: list[str], text: str) -> None:
    prefix = " ".join(["[2026-01-14 02:00:00", *ranks]) + "] "
    access = 'INFO:     127.0.0.1:4 - "GET / HTTP/1.1" 200 OK'
    for bulky in ("Decode batch, #running-req: 1", "Prefill batch. #new-seq: 1", access):
        assert is_bulk((prefix + bulky).encode())
        assert not is_bulk((prefix + text).encode())
        assert is_bulk((prefix + bulky).encode())
