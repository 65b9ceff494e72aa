"""Writes packaging/completions/sglang-watchdog.bash from the command line's own parser."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from watchdog.cli import parser

FILE = Path(__file__).parent / "completions/sglang-watchdog.bash"
SCRIPT = """\
# Bash completion for sglang-watchdog. Installed as /usr/share/bash-completion/completions/sglang-watchdog.
# Made by packaging/write_completions.py; a test compares it with the program (tests/cli/test_completions.py).

_sglang_watchdog() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command="" verb="" word words=""
    COMPREPLY=()

    case $before in
        --config | --output)
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
            ;;
        --channel)
            mapfile -t COMPREPLY < <(compgen -W "journal webhook alertmanager apprise" -- "$current")
            return
            ;;
    esac

    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
            -*) ;;
            *)
                if [[ -z $command ]]; then
                    command=$word
                elif [[ -z $verb ]]; then
                    verb=$word
                fi
                ;;
        esac
    done

    case $command in
        incident | alert | baseline) ;;
        *) verb="" ;;
    esac
    case "$command${verb:+ $verb}" in
@COMMANDS@
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    if [[ $command == check-config || $command == replay ]] && [[ $current != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}

complete -o filenames -F _sglang_watchdog sglang-watchdog
"""


def subcommands(p: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands of a parser by their names."""
    return next((dict(a.choices) for a in p._actions if isinstance(a, argparse._SubParsersAction)), {})


def options(p: argparse.ArgumentParser) -> list[str]:
    """The long options of a parser that its help names."""
    return sorted({o for a in p._actions if a.help != argparse.SUPPRESS for o in a.option_strings if o.startswith("--")})


def following() -> Iterator[tuple[str, list[str]]]:
    """Each command, and the words that may follow it. The options of the stand-in are its own matter."""
    top = parser()
    yield "", [*subcommands(top), *options(top)]
    for name, p in subcommands(top).items():
        if name != "standin":
            yield name, [*subcommands(p), *options(p)]
        for verb, inner in subcommands(p).items():
            yield f"{name} {verb}", options(inner)


def script() -> str:
    """The whole file."""
    lines = [f"""        "{command}") words="{" ".join(words)}" ;;""" for command, words in following()]
    return SCRIPT.replace("@COMMANDS@", "\n".join(lines))


if __name__ == "__main__":
    FILE.write_text(script(), encoding="utf-8")
