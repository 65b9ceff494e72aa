"""`explain` and `replay --timeline` of a record, as a person runs them."""

import json
from pathlib import Path

import msgspec
import pytest

from watchdog.cli import main
from watchdog.judge.ledger import Ledger, Ordered
from watchdog.observation import Header, Log, Probe, Unit, encode
from watchdog.state import Saved

INV = "a" * 32
STARTED = "2026-01-14T02:00:00Z"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A server that hangs at 100 s: no batch any more, and health checks fail."""
    lines = [Header(server="kimi", unit="sglang-kimi.service", started=STARTED, history="mid-life")]
    seen: list[object] = [Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=-9000.0)]
    batch = "[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 4, #token: 900, token usage: 0.10, cuda graph: True, "
    seen += [
        Log(t=float(t), inv=INV, message=f"{batch}gen throughput (token/s): 90.0, #queue-req: 0, ") for t in range(0, 100, 4)
    ]
    seen += [
        Probe(t=float(t), inv=INV, probe="health", outcome="status", status=503, total_s=20.0, limit_s=25.0)
        for t in (130, 160, 190)
    ]
    seen += [Unit(t=300.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=-9000.0)]
    path = tmp_path / "night.jsonl"
    path.write_bytes(b"\n".join(encode(x) for x in [*lines, *seen]) + b"\n")  # type: ignore[arg-type]
    return path


def test_the_timeline_tells_the_hang_and_the_restart(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(record), "--timeline"]) == 0
    text = capsys.readouterr().out
    assert ">> RESTART SchedulerHung" in text
    assert "2026-01-14 02:02:" in text


def test_a_stricter_budget_of_a_state_file_withholds(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    wall = 1768356000.0  # 2026-01-14T02:00:00Z
    spent = Ledger(restarts=[Ordered(t=-7000.0, reason="X"), Ordered(t=-3600.0, reason="Y")])
    state.write_bytes(msgspec.json.encode(Saved(wall=wall, now=0.0, ledger=spent)))
    assert main(["replay", str(record), "--timeline", "--state", str(state)]) == 0
    text = capsys.readouterr().out
    assert "RESTART" not in text
    assert ">> WITHHOLD BudgetSpent" in text


@pytest.mark.parametrize("at", ["+240", "2026-01-14T02:04:00Z", "2026-01-14 02:04:00"])
def test_explain_of_a_moment(record: Path, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--record", str(record), "--at", at]) == 0
    text = capsys.readouterr().out
    assert "SchedulerProgressing does not hold" in text
    assert main(["explain", "--record", str(record), "--at", "+50", "--json"]) == 0
    assert "does not hold" not in json.dumps(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--record", "RECORD", "--at", "tomorrow"], "is no moment"),
        (["--record", "/nowhere.jsonl"], "cannot be read"),
        (["--record", "RECORD", "--at", "1999-01-01T00:00:00Z"], "nothing of that moment: it begins at 2026-01-14T02:00:00Z"),
        (["--at", "2026-01-14T02:00:00Z", "--config", "CONFIG"], "has the daemon ever run?"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    record: Path, tmp_path: Path, args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    assert main(["explain", *(a.replace("RECORD", str(record)).replace("CONFIG", str(config)) for a in args)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_the_daemons_own_record_of_a_moment_is_found(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flight = tmp_path / "state/kimi/flight"
    flight.mkdir(parents=True)
    (flight / "20260114T020000.000000.jsonl").write_bytes(record.read_bytes())
    config = tmp_path / "c.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    assert main(["explain", "--at", "2026-01-14T02:04:00Z", "--config", str(config)]) == 0
    assert "SchedulerProgressing does not hold" in capsys.readouterr().out
