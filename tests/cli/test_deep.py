"""`verify --deep` asks a person before it loads a server; where there is nobody, it does nothing."""

import argparse
import io
import sys
from pathlib import Path

import pytest

from watchdog import cli
from watchdog.cli import deep
from watchdog.cli.exits import CANNOT, CommandError
from watchdog.verify.deep.plan import Plan, Step

PLANS = [Plan(server="kimi", seconds=120.0, steps=[Step(name="load", requests=8, tokens=4512)])]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def given(*words: str) -> argparse.Namespace:
    return cli.parser("verify").parse_args(["verify", *words])


@pytest.mark.parametrize("words", [["--yes"], ["--force"], ["--max-tokens", "5"], ["--max-time", "1m"]])
def test_options_of_the_deep_check_belong_to_it(words: list[str]) -> None:
    with pytest.raises(CommandError, match="belongs to --deep") as e:
        deep.allowed(given(*words))
    assert e.value.status == CANNOT
    deep.allowed(given("--deep", "--yes", *words))


@pytest.mark.parametrize("number", ["0", "-1", "many", "1e5", "٣", "9" * 30])
def test_a_ceiling_is_a_number(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        given("--deep", "--max-tokens", number)
    assert e.value.code == CANNOT and "no number of tokens" in capsys.readouterr().err


def test_nobody_to_ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even the configuration is looked at then."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert cli.main(["verify", "--deep", "--config", str(tmp_path / "none.toml")]) == CANNOT
    said = capsys.readouterr().err
    assert "there is nobody to ask: say --yes" in said and said.count("\n") == 1


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("Yes\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_a_person_sees_the_ceiling_and_decides(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    deep.allowed(given("--deep"))
    if agreed:
        deep.ask(PLANS)
    else:
        with pytest.raises(CommandError, match="nothing was asked of the server"):
            deep.ask(PLANS)
    said = capsys.readouterr()
    assert said.out == ""  # standard output belongs to the findings
    assert "kimi: at most 8 requests, 4512 tokens and 2 min" in said.err and said.err.endswith("[y/N] ")
