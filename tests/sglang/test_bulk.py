import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang.bulk import Bulk, bulk_of
from watchdog.sglang.loglines import classify
from watchdog.sglang.marks import Mark


@pytest.mark.parametrize(
    ("line", "bulk"),
    [
        ("[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 3, #token: 9", Bulk(False, b"Decode", b" TP0")),
        ("[2026-01-14 02:00:00 DP1 TP3] Prefill batch. #new-seq: 1, #new-token: 9", Bulk(False, b"Prefill", b" DP1 TP3")),
        ("[2026-01-14 02:00:00] Decode batch. #running-req: 3", Bulk(False, b"Decode", b"")),
        ('INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK', Bulk(True, b"200", b"")),
        ('[2026-01-14 02:00:00] INFO:     ::1:40000 - "GET /health HTTP/1.1" 503 Service Unavailable', Bulk(True, b"503", b"")),
        ("[2026-01-14 02:00:00 TP0] Scheduler hit an exception: Decode batch", None),
        ("[2026-01-14 02:00:00] Health check failed. Server couldn't get a response from detokenizer", None),
        ('[2026-01-14 02:00:00 TP0] ValueError: INFO:     1.1.1.1:4 - "GET / HTTP/1.1" 200 OK', None),
        ("", None),
    ],
)
def test_which_lines_come_in_bulk(line: str, bulk: Bulk | None) -> None:
    assert bulk_of(line.encode()) == bulk
    if bulk is not None:
        meaning = classify(line)
        assert meaning is not None
        assert meaning.mark is (Mark.ACCESS if bulk.access else Mark(bulk.name.decode().lower()))


@given(st.binary(max_size=300))
def test_any_bytes_will_do(line: bytes) -> None:
    bulk_of(line)
