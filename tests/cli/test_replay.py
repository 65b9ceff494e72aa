"""`replay`: which file is at fault, and the status."""

import json
from pathlib import Path
from typing import Any

import pytest

from watchdog import cli


def record(folder: Path, **header: Any) -> str:
    file = folder / "r.jsonl"
    whole = {"record": "flight", "version": 1, "server": "kimi", "started": "2026-01-14T02:00:00Z", **header}
    file.write_text(json.dumps(whole) + '\n{"kind": "self", "t": 0}\n')
    return str(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[judge]\nhang_s = 1\n", ": judge.hang_s = 1: is too small; "),
        ("[judge\n", ": is no valid TOML (line 1, "),
        (None, ": cannot be read (No such file or directory); "),
    ],
)
def test_a_configuration_with_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str) -> None:
    file = tmp_path / "c.toml"
    if text is not None:
        file.write_text(text)
    assert cli.main(["replay", record(tmp_path), "--config", str(file)]) == 78
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"sglang-watchdog replay: {file}{said}" in err


def test_a_header_with_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text("")
    bad = {"judge": {"hang_s": 1}}
    for more in ([], ["--config", str(file)]):
        assert cli.main(["replay", record(tmp_path, config=bad), *more]) == 2
        said = "the record's header cannot be used: in its config, judge.hang_s = 1: is too small; "
        assert said in capsys.readouterr().err
    file.write_text("[judge]\nhang_s = 60\n")
    assert cli.main(["replay", record(tmp_path, config=bad), "--config", str(file)]) == 0, "it is mended by the file"


@pytest.mark.parametrize("words", [["--state", "/dev/null"], ["--config", "/etc"]])
def test_what_is_no_file_is_called_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.main(["replay", record(tmp_path), *words]) in (2, 78)
    err = capsys.readouterr().err
    assert "Errno" not in err
    assert "device, not a file" in err or "is a folder, not a file" in err


def test_an_empty_name_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["replay", ""])
    assert ended.value.code == 2
    assert "argument FILE: the name of a file is empty" in capsys.readouterr().err
