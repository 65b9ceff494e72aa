"""Small files of the kernel (procfs, cgroupfs): read whole, capped, and None where they cannot be read."""

import os
from pathlib import Path

CAP = 64 * 1024


def read(path: Path | str, cap: int = CAP) -> bytes | None:
    """The first `cap` bytes of a file; None if it is not there or must not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        pieces: list[bytes] = []
        while cap > 0 and (piece := os.read(fd, min(cap, 1 << 20))):
            pieces.append(piece)
            cap -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(fd)


def number(path: Path | str) -> int | None:
    """The whole number that a file holds; None if it holds none ("max")."""
    return whole(read(path))


def whole(text: bytes | None) -> int | None:
    """A whole number; None for any other text."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def table(text: bytes | None, separator: bytes = b" ") -> dict[str, int]:
    """The whole numbers of `name number` lines; lines of another form are left out."""
    found: dict[str, int] = {}
    for line in (text or b"").splitlines():
        name, _, rest = line.partition(separator)
        word = rest.split(None, 1)
        value = whole(word[0]) if word else None
        if value is not None:
            found[name.decode("ascii", "replace").strip()] = value
    return found


def pressure(text: bytes | None) -> tuple[float | None, float | None]:
    """avg10 of "some" and of "full" in a pressure file, in % of time (0…100) as the kernel prints it.

    Source: Documentation/accounting/psi.rst.
    """
    found: dict[bytes, float] = {}
    for line in (text or b"").splitlines():
        words = line.split()
        if len(words) > 1 and words[1].startswith(b"avg10="):
            try:
                found[words[0]] = float(words[1][6:])
            except ValueError:
                continue
    return found.get(b"some"), found.get(b"full")
