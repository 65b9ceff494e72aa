"""What is said after a person's word to the daemon."""

import pytest

from watchdog import cli
from watchdog.cli import operator


@pytest.mark.parametrize(
    ("were_paused", "said"),
    [
        (["kimi", "glm"], "kimi, glm: resumed\n"),
        (["kimi"], "kimi: resumed\nglm: was not paused\n"),
        ([], "glm, kimi: was not paused\n"),
    ],
)
def test_a_resume_says_what_it_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], were_paused: list[str], said: str
) -> None:
    answer = {"done": "resume", "servers": ["kimi", "glm"], "were_paused": were_paused}
    monkeypatch.setattr(operator, "asked", lambda *_: answer)
    assert cli.main(["resume"]) == 0
    assert capsys.readouterr().out == said


def test_a_pause_of_what_was_not_paused_is_a_pause(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(operator, "asked", lambda *_: {"done": "pause", "servers": ["kimi"], "were_paused": []})
    assert cli.main(["pause", "2h"]) == 0
    assert capsys.readouterr().out == "kimi: paused for 2 h\n"
