"""Explaining a moment and telling a replay as a timeline."""

import json
from pathlib import Path

import pytest

from tests.incidents import cases_busy, cases_hang, cases_start_fails  # noqa: F401
from tests.incidents.case import CASES
from watchdog.judge.explain import text
from watchdog.judge.timeline import timeline
from watchdog.observation import Header, encode
from watchdog.replay import Record, explained_at, replay, settings_of


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("records") / "hang.jsonl", "hang-full-use-low-power")


def written(path: Path, name: str) -> Path:
    sim = CASES[name].sim("plain", 7)
    header = Header(server="kimi", started="2026-01-14T02:00:00Z", history="mid-life" if sim.setup.mid_life else None)
    path.write_bytes(b"\n".join(map(encode, [header, *sim.out])) + b"\n")
    return path


def at(path: Path, t: float) -> dict[str, object]:
    record = Record(path)
    return explained_at(record, settings_of(record.header), t)


def test_a_healthy_moment_says_what_a_restart_would_take(hang: Path) -> None:
    told = at(hang, 500.0)

    assert told["phase"] == "serving"
    assert told["wanted"] == told["vetoes"] == []
    assert any("two failed probes" in line for line in told["restart"])  # type: ignore[attr-defined]
    json.dumps(told)


def test_the_moment_of_the_hang_says_why(hang: Path) -> None:
    before, after = at(hang, 640.0), at(hang, 800.0)

    assert before["wanted"] == []
    assert after["condemned"] is True
    assert any("has been ordered" in line for line in after["restart"])  # type: ignore[attr-defined]
    first = after["conditions"][0]  # type: ignore[index]
    assert (first["type"], first["status"], first["reason"]) == ("SchedulerProgressing", "False", "Hung")
    assert "A restart (1 of 2 are spent):" in text(after)


def test_a_start_and_its_vetoes(tmp_path: Path) -> None:
    path = written(tmp_path / "shm.jsonl", "dev-shm-full")

    told = at(path, 1400.0)

    assert any(v["reason"] == "ShmFull" for v in told["vetoes"])  # type: ignore[attr-defined]
    assert any(line.startswith("Withheld (ShmFull)") for line in told["restart"])  # type: ignore[attr-defined]


def test_explaining_changes_nothing(hang: Path) -> None:
    assert at(hang, 640.0) == at(hang, 640.0)
    assert text(at(hang, 1e9)).count("Conditions:") == 1


def test_a_timeline_tells_the_turns_and_the_decisions(hang: Path) -> None:
    record = Record(hang)
    lines = list(timeline(replay(record, settings_of(record.header)), record.header.started))

    assert len([line for line in lines if ">> RESTART SchedulerHung" in line]) == 1
    assert any("SchedulerProgressing fails (Hung)" in line for line in lines)
    assert lines[0].startswith("2026-01-14 02:1")
    assert "-- end: 1 restart, " in lines[-1]
    assert not any("is unknown" in line and "SchedulerProgressing" not in line for line in lines[:1])


def test_a_timeline_without_a_date() -> None:
    end = {"event": "end", "t": 9.0, "observations": 3, "skipped": 1, "restarts": 0, "alerts": 0}

    assert list(timeline([end], "")) == ["        9 s -- end: 0 restarts, 0 alerts; 3 observations, 1 line skipped"]
