"""How the demo tells its story, and how `make help` looks; the demo itself is run by `make demo`."""

import importlib.util
import io
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
START = ["starting for 8 s: weights 12%, about 4 s to go; last progress just now (12% of weights)"]
HANG = [
    f"in doubt: no step of the engine for {n} s (odd after 20 s: the usual limit); chat had no answer within 6 s"
    for n in range(8, 26)
]
HANG[9] += " (2 times)"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "packaging/demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_that_change_are_one_line_where_there_is_no_terminal(demo: ModuleType) -> None:
    out = io.StringIO()
    story = demo.Story(out)
    for text in [*START, *HANG, "hung for 20 s: no batch for 20 s"]:
        story.status(text)
    story.tell("demo", "done")

    lines = [line.partition(" s ")[2].strip() for line in out.getvalue().splitlines()]

    assert lines == [f"status  {START[0]}", f"status  {HANG[0]}", "status  hung for 20 s: no batch for 20 s", "demo  done"]
    assert "\x1b" not in out.getvalue()


def test_a_status_that_other_lines_follow_is_not_told_twice(demo: ModuleType) -> None:
    out = io.StringIO()
    story = demo.Story(out)
    for text in ("well: verified", "well: verified", "hung for 20 s"):
        story.status(text)
        story.leave_status()
        story.tell("demo", "a step")
    assert re.findall(r"status  (.*)", out.getvalue()) == ["well: verified", "hung for 20 s"]


def test_a_life_that_was_verified_before_the_restart_is_not_the_new_one(demo: ModuleType) -> None:
    story = demo.Story(io.StringIO())
    told = {"SGLANG_WATCHDOG_EVENT": "verified", "SGLANG_WATCHDOG_INVOCATION": "a" * 32}
    assert not story.verified(after="a" * 32)
    story.entries.append(told)
    assert not story.verified(after="a" * 32)
    story.entries.append({**told, "SGLANG_WATCHDOG_INVOCATION": "b" * 32})
    assert story.verified(after="a" * 32)


def test_the_command_of_a_unit_may_lie_anywhere(demo: ModuleType) -> None:
    """As systemd.service(5) reads a word in quotes, and systemd.unit(5) a percent sign."""
    assert demo.quoted(Path('/a b/50%/"c"\\d')) == r'"/a b/50%%/\"c\"\\d"'
    for unit, verb in ((demo.SERVER, "standin"), (demo.WATCHDOG, "run")):
        assert f'ExecStart="{demo.COMMAND}" {verb} ' in unit


class Closed(io.StringIO):
    def flush(self) -> None:
        raise BrokenPipeError


def test_where_nobody_reads_the_thread_that_waits_ends_the_demo(demo: ModuleType) -> None:
    story = demo.Story(Closed())
    story._gist = demo.gist("well")
    story.status("well")
    with pytest.raises(BrokenPipeError):
        story.tell("evidence", "told by another thread")
    with pytest.raises(BrokenPipeError):
        story.status("well")


def test_on_a_terminal_the_line_changes_in_place_below_what_happens(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    story = demo.Story(out)
    story.status(HANG[0])
    story.status(HANG[1])
    story.tell("evidence", "collecting evidence")
    story.status("hung for 20 s")
    story.leave_status()
    story.tell("demo", "done")

    shown = screen(out.getvalue())

    assert [line.partition(" s ")[2].strip()[:36] for line in shown] == [
        "evidence  collecting evidence",
        "status  in doubt: no step of the eng",
        "status  hung for 20 s",
        "demo  done",
    ]
    assert "for 9 s" in shown[1] and max(map(len, shown)) < 80


def screen(text: str) -> list[str]:
    """What a terminal shows in the end."""
    lines = [""]
    for part in re.findall(r"\n|\r\x1b\[K|[^\n\r]+", text):
        if part == "\n":
            lines.append("")
        else:
            lines[-1] = "" if part.startswith("\r") else lines[-1] + part
    return [line for line in lines if line]


def test_make_help_has_every_target_in_one_column_on_80_columns() -> None:
    lines = subprocess.run(["make", "-C", ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout.splitlines()
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)

    heads = [line.split()[1] for line in lines if line.startswith("  make ")]

    assert heads == targets
    assert max(map(len, lines)) < 80
    width = max(map(len, targets))
    assert {line[: 9 + width][-2:] for line in lines} == {"  "}
    assert {line[9 + width] == " " for line in lines} == {False}
