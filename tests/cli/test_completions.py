"""The completion for bash names every command and every option, and bash takes it."""

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchdog.cli import parser

SCRIPT = Path(__file__).parents[2] / "packaging/completions/sglang-watchdog.bash"


def subcommands(p: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(a.choices) for a in p._actions if isinstance(a, argparse._SubParsersAction)), {})


def options(p: argparse.ArgumentParser) -> set[str]:
    return {o for a in p._actions if a.help != argparse.SUPPRESS for o in a.option_strings if o.startswith("--")}


def everything() -> Iterator[tuple[str, set[str]]]:
    """Each command, with the words that may follow it."""
    top = parser()
    yield "", {*subcommands(top), "--help", "--version"}
    for name, p in subcommands(top).items():
        if name != "standin":
            yield name, options(p) | set(subcommands(p))
        for verb, inner in subcommands(p).items():
            yield f"{name} {verb}", options(inner)


def test_it_names_every_command_and_option() -> None:
    told = re.findall(r'^ +"(.*?)"\) words="(.*?)"', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: set(words.split()) for name, words in told} == dict(everything()), "run: python packaging/write_completions.py"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sglang-watchdog ver", ["verify"]),
        ("sglang-watchdog --ver", ["--version"]),
        ("sglang-watchdog incident ex", ["export"]),
        ("sglang-watchdog incident export --ou", ["--output"]),
        ("sglang-watchdog wait --ti", ["--timeout"]),
        ("sglang-watchdog alert test --channel we", ["webhook"]),
    ],
)
def test_bash_completes(line: str, expected: list[str]) -> None:
    words = line.split()
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source '{SCRIPT}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _sglang_watchdog; echo \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout.split() == expected
