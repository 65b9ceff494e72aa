"""What is printed for people: safe text, colours where they help, tables that fit, words for times and sizes."""

import json
import os
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from watchdog.wording import span

__all__ = ["colours", "moment", "paint", "plain", "print_json", "size", "span", "table", "width"]

COLOURS = {"ok": "32", "odd": "33", "bad": "31", "unknown": "35", "dim": "2", "strong": "1"}
WIDTH_ELSEWHERE = 120
"""Columns where the output is no terminal."""


def plain(text: str) -> str:
    """Text on one line without control, format and surrogate characters, which could do things to a terminal."""
    return "".join(" " if c in "\n\r\t" else c if unicodedata.category(c)[0] != "C" else "�" for c in text)


def colours() -> bool:
    """Whether to colour: only on a terminal, and not where NO_COLOR is set (no-color.org) or the terminal is dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, kind: str, on: bool) -> str:
    """`text` in the colour of a kind (COLOURS)."""
    return f"\x1b[{COLOURS[kind]}m{text}\x1b[0m" if on and kind in COLOURS else text


def width() -> int:
    """Columns to fill: those of the terminal, 60 at least."""
    import shutil  # noqa: PLC0415

    return max(60, shutil.get_terminal_size((WIDTH_ELSEWHERE, 24)).columns) if sys.stdout.isatty() else WIDTH_ELSEWHERE


def print_json(value: Any) -> None:
    """One JSON object, in ASCII, so that no character of it can do anything to a terminal."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def table(rows: Iterable[Sequence[str]], head: Sequence[str], columns: int, kinds: Sequence[str] = (), on: bool = False) -> str:
    """A table whose last two columns take the room that is left, each cell wrapped.

    Args:
        rows: the cells, plain text.
        head: the names of the columns, three at least.
        columns: how wide it may be.
        kinds: for each row, the colour of its first cell.
        on: whether to colour.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    narrow = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head) - 2)]
    room = max(24, columns - sum(narrow) - 2 * (len(head) - 1))
    wanted = [max((len(row[i]) for row in [list(head), *cells]), default=0) for i in (-2, -1)]
    first = wanted[0] if sum(wanted) <= room else min(wanted[0], max(room // 2, room - wanted[1]))
    widths = [*narrow, first, room - first]
    lines = [paint("  ".join(name.ljust(w) for name, w in zip(head, widths, strict=True)).rstrip(), "dim", on)]
    for number, row in enumerate(cells):
        wrapped = [textwrap.wrap(cell, w, break_on_hyphens=False) or [""] for cell, w in zip(row, widths, strict=True)]
        for i in range(max(map(len, wrapped))):
            parts = [(w[i] if i < len(w) else "").ljust(size) for w, size in zip(wrapped, widths, strict=True)]
            if kinds and i == 0:
                parts[0] = paint(parts[0], kinds[number], on)
            lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def moment(at: str | None) -> str:
    """A moment in RFC 3339 as local time: "2026-01-14 02:00:13"; "?" if unknown."""
    if at is None:
        return "?"
    from datetime import datetime  # noqa: PLC0415  # not needed by every command

    try:
        return datetime.fromisoformat(at.replace("Z", "+00:00")).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return plain(at[:40])


def size(amount: float | None) -> str:
    """Bytes in both spellings: "358.16 GB (333.6 GiB)"; "?" if unknown."""
    from watchdog.units import GB, GIB  # noqa: PLC0415  # not needed by every command

    if amount is None:
        return "?"
    return f"{amount / GB:.2f} GB ({amount / GIB:.2f} GiB)"
