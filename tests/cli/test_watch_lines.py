"""`watch` where the output is no terminal: a line for what is new, not for each figure."""

import pytest

from tests.cli.views import view
from watchdog import cli
from watchdog.cli import watch
from watchdog.cli.exits import CommandError

SENTENCES = ["serving, idle", "serving, 3 running", "hung for 20 s: no batch", "hung for 21 s: no batch", None, "serving, idle"]


def test_a_line_for_what_is_new(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    left = iter(SENTENCES)

    def asked(*_: object) -> dict[str, object]:
        sentence = next(left, "the end")
        if sentence == "the end":
            raise KeyboardInterrupt
        if sentence is None:
            raise CommandError("no daemon listens")
        return {"servers": [view(sentence=sentence)]}

    monkeypatch.setattr(watch, "asked", asked)
    assert cli.main(["watch", "--interval", "0.001"]) == 0

    said = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "kimi: serving, idle",
        "kimi: hung for 20 s: no batch",
        "sglang-watchdog watch: no daemon listens",
        "kimi: serving, idle",
    ]
