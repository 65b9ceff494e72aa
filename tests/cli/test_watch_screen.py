"""`watch` on a terminal: whatever ends it, the terminal has its own screen and its cursor back."""

import os
import signal
import sys

import pytest

from tests.cli.views import view
from watchdog import cli
from watchdog.cli import watch


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on the output is one; returns the signals that the command sends to itself, in the place of its end."""
    sent: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert pid == os.getpid() and signal.getsignal(number) is signal.SIG_DFL
        sent.append(number)

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return sent


def ends_by(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    looks = iter((True, False))

    def asked(*_: object) -> dict[str, object]:
        if not next(looks):
            signal.raise_signal(number)
        return {"servers": [view()]}

    monkeypatch.setattr(watch, "asked", asked)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_once_the_terminal_has_its_own_screen_back(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = on_a_terminal(monkeypatch)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        ends_by(monkeypatch, number)
        with pytest.raises(SystemExit) as ended:
            cli.main(["watch", "--interval", "0.001"])
    finally:
        signal.signal(number, before)
    out = capsys.readouterr().out
    assert out.startswith(watch.OTHER_SCREEN) and out.endswith(watch.OWN_SCREEN)
    assert killed == [number] and ended.value.code == 128 + number


def test_an_interrupt_ends_it_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    killed = on_a_terminal(monkeypatch)
    ends_by(monkeypatch, signal.SIGINT)
    assert cli.main(["watch", "--interval", "0.001"]) == 0
    assert capsys.readouterr().out.endswith(watch.OWN_SCREEN) and killed == []


def test_under_nohup_it_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    killed = on_a_terminal(monkeypatch)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asked = iter((signal.SIGHUP, signal.SIGINT))

        def answer(*_: object) -> dict[str, object]:
            signal.raise_signal(next(asked))
            return {"servers": [view()]}

        monkeypatch.setattr(watch, "asked", answer)
        assert cli.main(["watch", "--interval", "0.001"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "kimi" in capsys.readouterr().out and killed == []
