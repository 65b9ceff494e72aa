"""Lines that tell of trouble without an end: each kind is told for as long as it lasts, and costs no more for being many."""

from watchdog.judge import trouble
from watchdog.judge.facts import Facts
from watchdog.judge.trouble import FADE_S
from watchdog.judge.verdict import Status, Verdict
from watchdog.observation import Log, Unit

INV = "a" * 32
NAN = "Detected errors during sampling! NaN in the logits."
PREFETCH = "Prefetch operation {} failed to retrieve page 3."


def serving() -> Facts:
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    f.see(Log(t=1.0, inv=INV, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!"))
    return f


def said(f: Facts, *times: float, line: str = NAN) -> None:
    for t in times:
        f.see(Log(t=t, inv=INV, message=f"[2026-01-14 02:00:00 TP0] {line}"))


def reasons(v: Verdict) -> list[str]:
    return [call.reason for call in v.calls]


def test_what_goes_on_does_not_fade() -> None:
    f = serving()
    said(f, *(600.0 + 10.0 * n for n in range(1000)))
    v = trouble.judge(f, 10_600.0)
    assert v.status is Status.FALSE and reasons(v) == ["Nan"]
    assert v.message.startswith("The log said it 1000 times in 2 h 46 min, the last time 10 s ago: ")
    assert trouble.judge(f, 10_590.0 + FADE_S).status is Status.TRUE


def test_the_ranks_say_it_together() -> None:
    f = serving()
    said(f, *(600.0 + 0.01 * n for n in range(8)))
    assert trouble.judge(f, 605.0).message.startswith("The log said 5 s ago: ")


def test_each_kind_is_told() -> None:
    f = serving()
    said(f, 600.0)
    said(f, 700.0, line=PREFETCH.format("4711"))
    assert reasons(trouble.judge(f, 710.0)) == ["HicacheTrouble", "Nan"]


def test_lines_with_a_name_of_their_own_are_not_kept_one_by_one() -> None:
    f = serving()
    for n in range(5000):
        said(f, 600.0 + n, line=PREFETCH.format(f"{n:032x}"))
    assert len(f.troubles.told) == 1
    assert "5000 times" in trouble.judge(f, 6000.0).message


TRANSFER = "Decode transfer failed for request rank=0 decode_req.req.rid='{}' with exception KVTransferError(room=3): {}"
LOST = "Failed to get kvcache from prefill instance, it might be dead"


def test_transfers_that_fail_are_told_of_the_other_side() -> None:
    f = serving()
    said(f, 600.0)
    said(f, *(700.0 + 5.0 * n for n in range(9)), line=TRANSFER.format("1f", LOST))
    assert reasons(trouble.judge(f, 750.0)) == ["Nan"]
    said(f, 745.0, line=TRANSFER.format("1f", LOST))
    assert reasons(trouble.judge(f, 750.0)) == ["TransfersFail", "Nan"]
    assert reasons(trouble.judge(f, 750.0 + 600.0)) == ["Nan"]


def test_ranks_that_tell_of_one_request_and_clients_that_went_away_are_no_failing_transfers() -> None:
    f = serving()
    said(f, *(700.0 + 0.02 * n for n in range(16)), line=TRANSFER.format("1f", LOST))
    said(f, *(800.0 + 5.0 * n for n in range(16)), line=TRANSFER.format("1f", "Aborted by AbortReq."))
    assert trouble.judge(f, 900.0).status is Status.TRUE
