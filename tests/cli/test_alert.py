"""`alert test`: what is claimed of the journal."""

import json
from pathlib import Path

import pytest

from tests.cli.test_check_config import GOOD
from watchdog import cli
from watchdog.cli import alert


def test_without_a_journal_nothing_was_written_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(alert, "JOURNAL", tmp_path / "none")
    file = tmp_path / "c.toml"
    file.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n{GOOD}')
    assert cli.main(["alert", "test", "--config", str(file), "--channel", "journal", "--json"]) == 0
    out, err = capsys.readouterr()
    (result,) = json.loads(out)["results"]
    assert result["ok"] is None
    assert "the line went to standard error" in result["detail"]
    assert "TEST from sglang-watchdog" in err
