"""The command line as a whole: help, errors in one line, no tracebacks, nothing loaded that is not needed."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchdog import cli
from watchdog.cli import exits
from watchdog.cli.exits import CommandError

COMMANDS = [name for members in cli.GROUPS.values() for name in members]
QUICK = [name for name in COMMANDS if name not in ("run", "standin", "watch")]
VERBS = [("incident", "list"), ("incident", "show"), ("incident", "export"), ("alert", "test"), ("standin", "fault")]


@pytest.mark.parametrize("words", [(name,) for name in COMMANDS] + VERBS)
def test_help_is_complete(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        cli.main([*words, "--help"])
    text = capsys.readouterr().out
    assert e.value.code == 0
    assert "example:\n  " in text
    assert f"sglang-watchdog {' '.join(words)}" in text.split("example:")[1] or words == ("incident", "list")


def test_the_groups_are_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(f"\n    {name}" in text for name in COMMANDS)


def ended(argv: list[str]) -> int:
    try:
        return cli.main(argv)
    except SystemExit as e:
        assert isinstance(e.code, int)
        return e.code


ODD = ["-1", "", "--", "-", "latest", "../../etc", "\x00", "\x1b[2J", "\udcff", "30m", "kimi", "/nowhere/a.toml"]
OPTIONS = [
    "--json",
    "--server",
    "--config",
    "--help",
    "-h",
    "--timeout",
    "--limit",
    "--lines",
    "--reason",
    "--output",
    "--strict",
]
WORDS = st.sampled_from([*QUICK, "list", "show", "export", "test", *OPTIONS, *ODD]) | st.text(max_size=12)


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(QUICK), st.lists(WORDS, max_size=5))
def test_any_arguments_end_with_a_status_and_at_most_one_line(command: str, rest: list[str]) -> None:
    out, err = io_of([command, "--config", "/nowhere/absent.toml", *rest])
    assert "Traceback" not in out + err
    assert err.count("\n") <= 1
    assert "\x1b" not in err


def io_of(argv: list[str]) -> tuple[str, str]:
    """What is printed; the status must be one of the documented ones."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = ended(argv)
    assert status in {0, exits.FAILED, exits.CANNOT, exits.USAGE}, (argv, status, err.getvalue())
    return out.getvalue(), err.getvalue()


def test_a_fault_of_our_own_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from watchdog.cli import status

    def broken(_: object) -> int:
        raise KeyError("servers\n\x1b[31m")

    monkeypatch.setattr(status, "run", broken)
    assert cli.main(["status"]) == exits.INTERNAL
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "KeyError" in said
    assert "\x1b" not in said


def test_an_error_carries_its_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from watchdog.cli import status

    def no(_: object) -> int:
        raise CommandError("it cannot be", exits.FAILED)

    monkeypatch.setattr(status, "run", no)
    assert cli.main(["status"]) == exits.FAILED
    assert capsys.readouterr().err == "sglang-watchdog status: it cannot be\n"


@pytest.mark.parametrize("command", ["status", "watch", "pause", "incident list", "history"])
def test_what_only_asks_the_daemon_loads_little(command: str, tmp_path: Path) -> None:
    """Imports are what makes a command slow to start: about 0.2 s for these."""
    heavy = ("asyncio", "msgspec", "aiohttp", "structlog", "dbus_fast", "watchdog.config", "watchdog.judge", "watchdog.standin")
    program = f"""
import sys
from watchdog.cli import GROUPS, parser
args = {command.split()!r} + ["--config", "{tmp_path}/none.toml"]
parser(args[0]).parse_args(args)
if args[0] != "watch":
    from watchdog.cli import main
    main(args)
print([name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=20)
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
