"""Output that nobody takes: one line where it can be told, a status, no traceback; a verdict's status stays."""

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_check_config import GOOD
from watchdog import cli
from watchdog.cli.output import Output

RECORD = '{"record": "flight", "version": 1, "server": "kimi", "started": "2026-01-14T02:00:00Z"}\n{"kind": "self", "t": 0}\n'
FULL = "the output cannot be written: no space left on device\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a configuration whose server nobody serves, and a record."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    text = (
        f'[daemon]\nstate_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n{GOOD}base_url = "http://127.0.0.1:{port}"\n'
    )
    (tmp_path / "c.toml").write_text(text)
    (tmp_path / "r.jsonl").write_text(RECORD)
    return tmp_path


def ended(home: Path, line: str) -> tuple[int, str]:
    """Status and standard error of a command line, in which W stands for the command; the first of a pipeline counts."""
    script = f'W() {{ {sys.executable} -m watchdog "$@"; }}; cd {home}; {line}; exit ${{PIPESTATUS[0]}}'
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {
        "PYTHONPATH": str(Path(cli.__file__).parents[2])
    }
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True, timeout=60, env=env)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["--help", "--version", "verify --help", "check-config c.toml", "replay r.jsonl --timeline"])
def test_a_full_disk_is_one_line(home: Path, words: str) -> None:
    named = " ".join(["sglang-watchdog", *(w for w in words.split()[:1] if not w.startswith("-"))])
    assert ended(home, f"W {words} >/dev/full") == (2, f"{named}: {FULL}")


def test_closed_descriptors(home: Path) -> None:
    closed = "the output cannot be written: bad file descriptor\n"
    assert ended(home, "W check-config c.toml >&-") == (2, f"sglang-watchdog check-config: {closed}")
    assert ended(home, "W check-config c.toml >&- 2>&- <&-") == (2, "")
    assert ended(home, "W verify --deep --config c.toml <&-")[1].endswith("there is nobody to ask: say --yes\n")


def test_a_file_that_may_not_grow(home: Path) -> None:
    said = "sglang-watchdog replay: the output cannot be written: file too large\n"
    assert ended(home, "ulimit -f 0; W replay r.jsonl > out") == (2, said)


def test_errors_that_nobody_can_read_keep_their_status(home: Path) -> None:
    assert ended(home, "W replay /nowhere 2>/dev/full") == (2, "")
    assert ended(home, "W check-config /nowhere 2>&-") == (78, "")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("verify --config c.toml --limit 1", 1),
        ("wait --config c.toml --timeout 1 2>/dev/null", 3),
        ("check-config c.toml", 0),
        ("check-config --json c.toml", 0),
        ("check-config /nowhere", 78),
        ("--help", 0),
        ("replay r.jsonl", 2),  # it does nothing but write, and has not written
        ("watch --config c.toml", 2),
    ],
)
def test_without_a_reader_the_verdict_stays(home: Path, words: str, status: int) -> None:
    assert ended(home, f"W {words} | true") == (status, "")


def test_a_pipe_that_does_not_wait_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    size = 1 << 20  # more than a pipe holds
    reader = subprocess.Popen(["wc", "-c"], stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    with io.BufferedWriter(Output(writing, told=True)) as out:
        out.write(b"x" * size)
    os.close(writing)
    assert int(reader.communicate(timeout=20)[0]) == size


def test_an_interrupt_while_it_loads_is_a_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.importlib, "import_module", interrupted)
    assert cli.main(["verify"]) == 130
    assert capsys.readouterr().err == ""


def test_what_it_takes_to_catch_an_interrupt_loads_at_once() -> None:
    program = "import sys, watchdog.cli; print([m for m in ('argparse', 'json', 'textwrap', 'traceback') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-c", program], check=True, capture_output=True, text=True, timeout=20)
    assert done.stdout == "[]\n"
