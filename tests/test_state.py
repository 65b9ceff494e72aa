"""What survives the daemon's end: moments carried over, damage noticed, nothing lost at SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog import regular
from watchdog.clock import FakeClock
from watchdog.config import Restarting
from watchdog.incidents import Deed, Incident
from watchdog.judge.facts.deaths import Deaths, Ends, Kept
from watchdog.judge.facts.learned import Learned, OneStart
from watchdog.judge.ledger import Ledger, Ordered
from watchdog.judge.verdict import Action
from watchdog.state import LOST, Saved, StateFile, UnderWay


class Later(FakeClock):
    """A clock of a daemon that starts anew: it begins at 0 whatever was before."""


def written(path: Path, saved: Saved, now: float = 1000.0) -> None:
    clock = FakeClock()
    clock.advance(now)
    file = StateFile(path, clock)
    file.write(file.encode(saved))


def test_nothing_there_is_a_fresh_state(tmp_path: Path) -> None:
    saved, trouble = StateFile(tmp_path / "state.json", FakeClock()).load()

    assert trouble is None
    assert saved.ledger == Ledger()


def test_moments_are_carried_over_to_the_clock_of_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ordered = Ordered(t=400.0, reason="SchedulerHung")
    ledger = Ledger(restarts=[ordered], condemned="a" * 32, condemned_at=400.0, alerts={"X": 990.0}, events={"X": 980.0})
    written(path, Saved(ledger=ledger, paused=True, paused_until=1600.0), now=1000.0)

    saved, trouble = StateFile(path, Later()).load()

    assert trouble is None
    assert saved.ledger.restarts[0].t == pytest.approx(-600.0, abs=2.0)
    assert saved.ledger.condemned_at == pytest.approx(-600.0, abs=2.0)
    assert saved.ledger.alerts["X"] == pytest.approx(-10.0, abs=2.0)
    assert saved.ledger.events["X"] == pytest.approx(-20.0, abs=2.0)
    assert saved.paused_until == pytest.approx(600.0, abs=2.0)


def test_what_is_about_another_unit_is_left_but_for_a_person_s_word(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    learned = Learned()
    learned.add_start(OneStart(inv="1", total_s=100.0))
    saved = Saved(
        ledger=Ledger(restarts=[Ordered(t=900.0, reason="SchedulerHung")], condemned="a" * 32, condemned_at=900.0),
        learned=learned,
        under_way=UnderWay(t=990.0, reason="X", inv="a1", stage="job", job="/job/7"),
        incidents=[Incident(begun=900.0, reason="R", cause="c", action=Action.RESTART, changed=950.0)],
        observed_s=500.0,
        ends=Ends(deaths=[Kept(t=900.0, first=900.0, code="oom-kill", asked=False, ready=True)], minutes=[(900.0, 1)]),
        paused=True,
        paused_until=1600.0,
        pause_reason="by hand",
    )
    clock = FakeClock()
    clock.advance(1000.0)
    file = StateFile(path, clock, "old.service")
    file.write(file.encode(saved))

    assert StateFile(path, Later(), "old.service").load()[0].under_way is not None
    found, said = StateFile(path, Later(), "new.service").load()

    assert said is not None
    assert said.startswith(f"{path} is about old.service, and new.service has its name now: its restarts")
    assert (found.paused, found.pause_reason, found.paused_until) == (True, "by hand", pytest.approx(600.0, abs=2.0))
    assert found.ends == Ends()
    assert (found.ledger, found.learned.starts, found.under_way, found.incidents, found.observed_s) == (
        Ledger(),
        [],
        None,
        [],
        0.0,
    )
    new = StateFile(path, Later(), "new.service")
    new.write(new.encode(found))
    assert new.load()[1] is None, "said once"


def test_a_state_that_does_not_name_its_unit_is_that_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    written(path, Saved(ledger=Ledger(restarts=[Ordered(t=900.0, reason="SchedulerHung")])))
    saved, trouble = StateFile(path, Later(), "kimi.service").load()
    assert (len(saved.ledger.restarts), trouble) == (1, None)


def test_incidents_are_carried_over_and_must_be_plausible(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    incident = Incident(begun=400.0, reason="R", cause="c", action=Action.RESTART, changed=500.0, deeds=[Deed(t=450.0, text="d")])
    written(path, Saved(incidents=[incident]), now=1000.0)

    saved, trouble = StateFile(path, Later()).load()

    assert trouble is None
    assert saved.incidents[0].begun == pytest.approx(-600.0, abs=2.0)
    assert saved.incidents[0].deeds[0].t == pytest.approx(-550.0, abs=2.0)
    incident.deeds[0].t = 1e12
    written(path, Saved(incidents=[incident]), now=1000.0)
    assert "moments that cannot be" in str(StateFile(path, Later()).load()[1])


def test_ends_are_carried_over_and_must_be_plausible(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    death = Kept(t=400.0, first=390.0, code="exited with status 1", asked=False, ready=True)
    written(path, Saved(ends=Ends(deaths=[death], minutes=[(380.0, 2)], over_at=370.0)), now=1000.0)

    saved, trouble = StateFile(path, Later()).load()

    assert trouble is None
    ends = saved.ends
    moments = [ends.deaths[0].t, ends.deaths[0].first, ends.minutes[0][0], ends.over_at]
    assert moments == [pytest.approx(t, abs=2.0) for t in (-600.0, -610.0, -620.0, -630.0)]
    death.first = 1e12
    written(path, Saved(ends=Ends(deaths=[death])), now=1000.0)
    assert "moments that cannot be" in str(StateFile(path, Later()).load()[1])


def test_a_file_without_ends_and_one_of_another_version_s_words_are_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    death = Kept(t=900.0, first=900.0, code="killed with status 9", asked=False, ready=True, mark="a-word-of-tomorrow", text="so")
    written(path, Saved(ends=Ends(deaths=[death], minutes=[(900.0, 1)])))
    saved, trouble = StateFile(path, Later()).load()
    deaths = Deaths()
    deaths.recall(saved.ends)
    assert trouble is None
    assert [(d.mark, d.text, d.recalled) for d in deaths] == [(None, "so", True)]
    content = json.loads(path.read_bytes())
    del content["ends"]
    path.write_text(json.dumps(content))
    saved, trouble = StateFile(path, Later()).load()
    assert (saved.ends, trouble) == (Ends(), None)


def test_over_a_reboot_the_wall_clock_counts_and_a_job_of_ours_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    written(
        path,
        Saved(ledger=Ledger(restarts=[Ordered(t=1000.0, reason="X")]), under_way=UnderWay(t=1000.0, reason="X", job="/job/7")),
    )
    content = json.loads(path.read_text())
    content["boot_id"] = "another"
    content["wall"] = time.time() - 5000
    path.write_text(json.dumps(content))

    saved, _ = StateFile(path, Later()).load()

    assert saved.ledger.restarts[0].t == pytest.approx(-5000.0, abs=2.0)
    assert saved.under_way is None


def test_within_a_boot_a_job_of_ours_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    written(path, Saved(under_way=UnderWay(t=990.0, reason="X", inv="a1", stage="job", job="/job/7")))

    kept = StateFile(path, Later()).load()[0].under_way

    assert kept is not None
    assert (kept.stage, kept.job, kept.inv) == ("job", "/job/7", "a1")
    assert kept.t == pytest.approx(-10.0, abs=2.0)


def test_a_wall_clock_that_went_back_makes_nothing_older_than_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    written(path, Saved(ledger=Ledger(restarts=[Ordered(t=900.0, reason="X")])))
    content = json.loads(path.read_text())
    content["boot_id"] = "another"
    content["wall"] = time.time() + 86400
    path.write_text(json.dumps(content))

    assert StateFile(path, Later()).load()[0].ledger.restarts[0].t == pytest.approx(-100.0, abs=2.0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"version": 1, "ledger": {"restarts": [{"t": "x"}]}}',
        b'{"version": 2}',
        b'{"version": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"version": 1, "ledger": {"restarts": [{"t": 1e308, "reason": "x"}]}}',
    ],
)
def test_a_file_that_cannot_be_used_is_kept_aside_and_costs_a_restart(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)

    saved, trouble = StateFile(path, FakeClock()).load()

    assert trouble is not None
    assert str(path) in trouble
    assert [r.reason for r in saved.ledger.restarts] == [LOST]
    assert not path.exists()
    assert next(tmp_path.glob("state.json.*.bad")).read_bytes() == content


@given(cut=st.integers(min_value=0, max_value=400))
def test_a_file_cut_anywhere_never_crashes_and_never_gives_more_budget(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("state") / "state.json"
    full = Saved(ledger=Ledger(restarts=[Ordered(t=900.0, reason="SchedulerHung"), Ordered(t=950.0, reason="SchedulerHung")]))
    written(path, full)
    data = path.read_bytes()
    path.write_bytes(data[:cut])

    saved, _ = StateFile(path, Later()).load()

    assert saved.ledger.wait_s(Restarting(), 0.0) > 0


def test_an_unreadable_file_is_told_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, cap: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path), cap)

    monkeypatch.setattr(regular, "read", refused)
    path = tmp_path / "state.json"

    saved, trouble = StateFile(path, FakeClock()).load()

    assert trouble is not None
    assert "mend its owner and mode" in trouble
    assert saved.ledger.restarts


WRITER = """
import sys
from pathlib import Path
from watchdog.clock import BootClock
from watchdog.judge.ledger import Ledger, Ordered
from watchdog.state import Saved, StateFile
clock = BootClock()
file = StateFile(Path(sys.argv[1]), clock)
for n in range(1, 100000):
    file.write(file.encode(Saved(ledger=Ledger(restarts=[Ordered(t=0.0, reason="X")] * (n % 40 + 1)))))
    print(n, flush=True)
"""


def test_sigkill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as p:
            assert p.stdout is not None
            for _ in range(30):
                p.stdout.readline()
            os.kill(p.pid, signal.SIGKILL)
            p.wait()

        saved, trouble = StateFile(path, Later()).load()

        assert trouble is None
        assert saved.ledger.restarts
