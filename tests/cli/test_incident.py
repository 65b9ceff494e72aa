"""`incident` and `history`: what lies on disk."""

import io
import json
import sys
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from watchdog import cli
from watchdog.act import bundles
from watchdog.act.bundle_names import folder_name
from watchdog.cli import history, screen
from watchdog.web import archive

AT = datetime(2026, 1, 14, 2, 0, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration, and a state folder with two bundles."""
    home = tmp_path / "state"
    for server, reason, at in (("kimi", "SchedulerHung", AT), ("glm", "RankLost", AT.replace(hour=3))):
        files = {"summary.md": f"# {reason}\n\x1b[31mred\n".encode(), "record.jsonl.gz": b"12345"}
        bundles.write(home / server / "incidents", folder_name(at, reason), files)
    (home / "kimi/incidents/notes").mkdir()
    (home / "kimi/incidents/2026-01-14T02-00-00Z-Half.partial").mkdir()
    file = tmp_path / "c.toml"
    file.write_text(f'[daemon]\nstate_dir = "{home}"\nruntime_dir = "{tmp_path}"\n', encoding="utf-8")
    return file


def run(config: Path, *words: str) -> int:
    return cli.main([*words, "--config", str(config)])


def test_list(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "incident", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "2026-01-14T02-00-00Z-SchedulerHung", "2026-01-14T03-00-00Z-RankLost"]
    assert run(config, "incident", "list", "--server", "glm", "--json") == 0
    told = json.loads(capsys.readouterr().out)["bundles"]
    assert [(b["server"], b["at"], b["reason"]) for b in told] == [("glm", "2026-01-14T03:00:00Z", "RankLost")]


@pytest.mark.parametrize("name", ["latest", "2026-01-14T03-00-00Z-RankLost", "2026-01-14T03"])
def test_show(config: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(config, "incident", "show", name) == 0
    out = capsys.readouterr().out
    assert out.startswith("# RankLost\n�[31mred\n")
    assert str(config.parent / "state/glm/incidents/2026-01-14T03-00-00Z-RankLost") in out


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("2026-01-14T0", 1, "2 bundles begin with"),
        ("nothing", 1, "there is no bundle 'nothing'"),
        ("", 1, "there is no bundle ''"),
        ("../../../etc/passwd", 1, "there is no bundle"),
        ("notes", 1, "there is no bundle"),
        ("2026-01-14T02-00-00Z-Half.partial", 1, "there is no bundle"),
    ],
)
def test_what_is_no_bundle(config: Path, capsys: pytest.CaptureFixture[str], name: str, status: int, said: str) -> None:
    assert run(config, "incident", "show", name) == status
    assert said in capsys.readouterr().err


def test_the_latest_of_none(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "incident", "show", "latest", "--server", "other") == 1
    assert "there is no bundle yet of other" in capsys.readouterr().err


def test_export(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "incident", "export", "latest", "--output", str(tmp_path)) == 0
    file = tmp_path / "glm-2026-01-14T03-00-00Z-RankLost.tar.gz"
    assert str(file) in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        members = {m.name: m for m in tar}
        assert set(members) == {f"2026-01-14T03-00-00Z-RankLost{end}" for end in ("/summary.md", "/record.jsonl.gz")}
        assert {m.uname for m in members.values()} == {""}
    before = file.read_bytes()
    assert run(config, "incident", "export", "latest", "--output", str(file)) == 2
    assert "is there already" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_export_names_the_file_that_is_there(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert run(config, "incident", "export", "latest", "--output", str(out)) == 0
    (file,) = out.iterdir()
    assert run(config, "incident", "export", "latest", "--output", str(out)) == 2
    assert f"{file} is there already" in capsys.readouterr().err


def test_export_leaves_links_out(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "state/glm/incidents/2026-01-14T03-00-00Z-RankLost"
    (folder / "link").symlink_to("/etc/passwd")
    assert run(config, "incident", "export", "latest", "--output", str(tmp_path / "x.tgz")) == 0
    with tarfile.open(tmp_path / "x.tgz") as tar:
        assert not [m for m in tar if m.name.endswith("link")]


def test_export_to_standard_output(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw))
    assert run(config, "incident", "export", "latest", "--output", "-") == 0
    sys.stdout.flush()
    with tarfile.open(fileobj=io.BytesIO(raw.getvalue())) as tar:
        assert len(tar.getnames()) == 2


def test_export_of_a_file_that_cannot_be_read(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(archive, "_open", denied)
    assert run(config, "incident", "export", "latest", "--output", str(tmp_path / "x.tgz")) == 2
    assert "Permission denied" in capsys.readouterr().err
    assert not (tmp_path / "x.tgz").exists()


def test_export_where_nothing_can_be_written(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "incident", "export", "latest", "--output", "/nowhere/there/x.tgz") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_state_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[daemon]\nstate_dir = "{tmp_path}/none"\nruntime_dir = "{tmp_path}"\n', encoding="utf-8")
    assert run(file, "incident", "list") == 2
    assert "has the daemon ever run?" in capsys.readouterr().err
    assert run(file, "history") == 2
    assert "no daemon listens" in capsys.readouterr().err


def state(config: Path, content: str) -> None:
    folder = config.parent / "state/kimi"
    (folder / "state.json").write_text(content, encoding="utf-8")


def saved(**content: object) -> str:
    return json.dumps({"wall": AT.timestamp() + 100, "now": 100.0, **content})


INCIDENT = {
    "begun": 40.0,
    "reason": "SchedulerHung",
    "cause": "Hung for 1 min 3 s: no batch for 1 min 3 s; token counters frozen with 3 running; "
    "health gave 503 after 20 s (2 times).",
    "action": "restart",
    "changed": 240.0,
    "standing": [],
    "deeds": [
        {"t": 40.0, "text": "diagnose (SchedulerSilent)"},
        {"t": 41.0, "text": "evidence saved: 2026-01-14T02-00-00Z-SchedulerHung"},
        {"t": 60.0, "text": "restart (SchedulerHung)"},
        {"t": 240.0, "text": "verified: a new life, ready after 150 s, serving, idle\x1b[2J"},
    ],
    "restarts": 1,
    "bundles": ["2026-01-14T02-00-00Z-SchedulerHung"],
    "ended": 240.0,
    "outcome": "well again after 1 restart",
}


def test_history_from_disk(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    restarts = [{"t": 40.0, "reason": "SchedulerHung", "proven": True}, {"t": 100.0, "reason": "RankLost", "dry": True}]
    state(config, saved(ledger={"restarts": restarts}, incidents=[INCIDENT]))
    assert run(config, "history", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"incidents", "decisions", "daemon"}
    assert told["daemon"] is False
    assert [(e["at"], e["server"], e["what"], e["text"]) for e in told["decisions"]] == [
        ("2026-01-14T02:00:40.000Z", "kimi", "restart", "restart ordered for SchedulerHung; the life after it was verified"),
        ("2026-01-14T02:01:40.000Z", "kimi", "restart", "would have restarted for RankLost"),
    ]
    keys = {"server", "begun_at", "ended_at", "took_s", "reason", "cause", "done", "restarts", "outcome", "bundles"}
    assert [set(i) for i in told["incidents"]] == [keys, keys]
    first, second = told["incidents"]
    assert (first["begun_at"], first["ended_at"], first["took_s"]) == (
        "2026-01-14T02:00:40.000Z",
        "2026-01-14T02:04:00.000Z",
        200.0,
    )
    assert (second["server"], second["reason"], second["bundles"]) == ("glm", "RankLost", ["2026-01-14T03-00-00Z-RankLost"])
    assert run(config, "history", "--lines", "1", "--json") == 0
    assert [len(each) for each in list(json.loads(capsys.readouterr().out).values())[:2]] == [1, 1]


def test_history_can_be_read_on_80_columns(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "width", lambda: 80)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    state(config, saved(ledger={"restarts": [{"t": 40.0, "reason": "SchedulerHung"}]}, incidents=[INCIDENT]))
    assert run(config, "history") == 0
    text = capsys.readouterr().out

    assert max(map(len, text.splitlines())) <= 80
    assert (
        text
        == """\
Incidents

2026-01-14 02:00:40  kimi  SchedulerHung
  Hung for 1 min 3 s: no batch for 1 min 3 s; token counters frozen with 3
    running; health gave 503 after 20 s (2 times).
  02:00:40 diagnose (SchedulerSilent)
  02:00:41 evidence saved: 2026-01-14T02-00-00Z-SchedulerHung
  02:01:00 restart (SchedulerHung)
  02:04:00 verified: a new life, ready after 150 s, serving, idle�[2J
  Cost: well again after 1 restart, 3 min 20 s
  Bundle: 2026-01-14T02-00-00Z-SchedulerHung

2026-01-14 03:00:00  glm  RankLost
  Cost: how it ended is not known
  Bundle: 2026-01-14T03-00-00Z-RankLost

Decisions
when                 server  what     text
2026-01-14 02:00:40  kimi    restart  restart ordered for SchedulerHung
"""
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        '{"wall": "x"}',
        '{"wall": 1e300, "now": 0, "ledger": {}}',
        '{"wall": 1}',
        "null",
        saved(ledger=[], incidents={}),
        saved(ledger={"restarts": [1]}, incidents=[{"begun": "x"}]),
        "[" * 100_000,
    ],
)
def test_a_damaged_state_file_spoils_nothing(config: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    state(config, content)
    assert run(config, "history", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert ([i["reason"] for i in told["incidents"]], told["decisions"]) == (["SchedulerHung", "RankLost"], [])


def test_history_of_one_server(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "history", "--server", "glm", "--json") == 0
    assert {i["server"] for i in json.loads(capsys.readouterr().out)["incidents"]} == {"glm"}
    assert run(config, "history", "--server", "nobody") == 2
    assert "nothing is known of a server 'nobody'" in capsys.readouterr().err


def test_history_reads_as_large_a_state_as_the_daemon(tmp_path: Path) -> None:
    saved = b'{"wall": 1.7e9, "now": 5.0, "incidents": []}'
    (tmp_path / "state.json").write_bytes(saved + b" " * (17 << 20))
    assert history.state(tmp_path, [])[0] == json.loads(saved)
