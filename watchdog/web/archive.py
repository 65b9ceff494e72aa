"""Incident bundles for the page and `incident export`: what there is, and one of them as a stream of tar.gz. All of it blocks."""

import contextlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from watchdog.act.bundle_names import SUMMARY, Named, named

SHOWN = 100
PIECE = 256 * 1024
BLOCK = 512
"""tar's unit (tar(5))."""
SUMMARY_CAP = 1024 * 1024


def listing(home: Path) -> list[dict[str, Any]]:
    """The newest bundles below `home`, the newest first; empty if there is no such folder or it cannot be read."""
    names: dict[str, Named] = {}
    with contextlib.suppress(OSError):
        names = {path.name: each for path in home.iterdir() if (each := named(path.name)) is not None}
    found = []
    for name in sorted(names, reverse=True)[:SHOWN]:
        with contextlib.suppress(OSError, ValueError):
            files = _files(_folder(home, name))
            found.append(
                {
                    "name": name,
                    "at": names[name].at,
                    "reason": names[name].reason,
                    "size": sum(size for _, size in files),
                    "files": [file for file, _ in files],
                }
            )
    return found


def summary(home: Path, name: str) -> bytes:
    """A bundle's one-page summary (Markdown).

    Raises:
        ValueError: not a bundle's name.
        OSError: there is none.
    """
    with _open(_folder(home, name) / SUMMARY) as file:
        return file.read(SUMMARY_CAP)


def pack(home: Path, name: str) -> Iterator[bytes]:
    """A bundle as tar.gz, in pieces of bounded size.

    Raises:
        ValueError: not a bundle's name.
        OSError: there is none, or it cannot be read.
    """
    folder = _folder(home, name)
    files = _files(folder)
    return _packed(folder, files)


def _packed(folder: Path, files: list[tuple[str, int]]) -> Iterator[bytes]:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: a gzip header (zlib.h, deflateInit2)
    for name, size in files:
        with contextlib.ExitStack() as stack:
            try:
                source = stack.enter_context(_open(folder / name))
            except FileNotFoundError:
                continue  # pruned meanwhile
            entry = tarfile.TarInfo(f"{folder.name}/{name}")
            entry.size, entry.mode = size, 0o600
            entry.mtime = os.fstat(source.fileno()).st_mtime
            yield squeeze.compress(entry.tobuf(tarfile.PAX_FORMAT))
            left = size
            while left > 0 and (piece := source.read(min(PIECE, left))):
                left -= len(piece)
                yield squeeze.compress(piece)
            # The size stands in the header already: a file that shrank is filled up with zeros.
            for length in _pieces(left + -size % BLOCK):
                yield squeeze.compress(bytes(length))
    yield squeeze.compress(bytes(2 * BLOCK)) + squeeze.flush()


def _pieces(length: int) -> Iterator[int]:
    while length > 0:
        yield min(PIECE, length)
        length -= PIECE


def _folder(home: Path, name: str) -> Path:
    if named(name) is None:
        raise ValueError(f"not the name of an incident bundle: {name[:80]!r}")
    folder = home / name
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(str(folder))
    return folder


def _files(folder: Path) -> list[tuple[str, int]]:
    """Plain files of a bundle with their sizes; links are left out."""
    with os.scandir(folder) as entries:
        return sorted((e.name, e.stat(follow_symlinks=False).st_size) for e in entries if e.is_file(follow_symlinks=False))


def _open(path: Path) -> BinaryIO:
    """Open a plain file, never through a link, never waiting (a named pipe would)."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"not a plain file: {path}")
    return os.fdopen(number, "rb")
