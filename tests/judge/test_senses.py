"""What the daemon says of its own senses."""

from watchdog.judge import senses
from watchdog.judge.facts.senses import Senses
from watchdog.judge.verdict import Status, Want
from watchdog.observation import Self


def test_a_source_that_falls_again_and_again_is_told_and_no_longer_counts_as_seeing() -> None:
    s = Senses()
    s.see(Self(t=0.0))
    assert senses.judge(s, 1.0).status is Status.TRUE

    s.see(Self(t=30.0, fallen=["endpoint (FileNotFoundError: no profile)"]))
    v = senses.judge(s, 31.0)

    assert (v.status, v.reason) == (Status.FALSE, "SourceFails")
    assert "endpoint (FileNotFoundError: no profile)" in v.message
    assert [c.reason for c in v.calls] == ["SourceFails"]

    s.see(Self(t=60.0))
    assert senses.judge(s, 61.0).status is Status.TRUE


def test_one_bad_report_of_what_we_read_is_no_news() -> None:
    """Two in a row are: it reports each half minute."""
    for reported in ({"journal_ok": False}, {"bus_ok": False}):
        s = Senses()
        s.see(Self(t=0.0, **reported))
        assert [c for c in senses.judge(s, 29.0).calls if c.want is Want.ALERT] == []
        s.see(Self(t=30.0, **reported))
        assert [c.reason for c in senses.judge(s, 60.0).calls if c.want is Want.ALERT] != []
        s.see(Self(t=60.0))
        assert senses.judge(s, 61.0).status is Status.TRUE


def test_a_bus_that_does_not_answer_forbids_a_restart_at_once() -> None:
    s = Senses()
    s.see(Self(t=0.0, bus_ok=False))
    assert [c.want for c in senses.judge(s, 1.0).calls] == [Want.VETO]
