"""What is to be written, and what was: a manifest in the format of sha256sum(1), and the files as they were before.

The manifest lies in a folder that only root can write to: undoing deletes what it names.
"""

import hashlib
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from watchdog import durable

FOLDER = Path("/etc/sglang-watchdog/setup")
State = Literal["new", "as it is", "ours, changes", "changed by a person", "not ours"]
_ENTRY = re.compile(r"([0-9a-f]{64})  (/.+)")
_LEFT = re.compile(r"# no drop-in: (\S+)")  # a comment for sha256sum(1)


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be written.

    Attributes:
        why: what it is for, half a line.
        mode: its permissions.
        group: its group; None for root's.
    """

    path: Path
    text: str
    why: str
    mode: int = 0o644
    group: int | None = None


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Manifest:
    """What `setup` wrote on this host."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Read it, if it is there.

        `left` has the servers' units that a person wants to have no drop-in.

        Raises:
            OSError: it is there and cannot be read.
        """
        self._folder = folder
        self._file = folder / "manifest"
        self.entries: dict[Path, str] = {}
        self.left: set[str] = set()
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                entry = _ENTRY.fullmatch(line)
                if entry:
                    self.entries[Path(entry[2])] = entry[1]
                elif left := _LEFT.fullmatch(line):
                    self.left.add(left[1])

    def leave(self, units: Iterable[str], *, leave: bool) -> None:
        """Note whether these units are to have no drop-in.

        Raises:
            OSError: it could not be written.
        """
        self.left = self.left | set(units) if leave else self.left - set(units)
        self._save()

    def state(self, file: File) -> State:
        """How a file on disk stands to the one that is wanted."""
        data = _content(file.path)
        if data is None:
            return "new"
        if data == file.text.encode():
            return "as it is"
        known = self.entries.get(file.path)
        if known is None:
            return "not ours"
        return "ours, changes" if digest(data) == known else "changed by a person"

    def is_ours(self, path: Path) -> bool:
        """Whether a file is as we wrote it."""
        data = _content(path)
        return data is not None and self.entries.get(path) == digest(data)

    def write(self, file: File) -> None:
        """Write a file, after noting it and keeping what was there.

        What was there before all is what `undo` restores; what a person made of our file later is kept beside it, for the person.

        Raises:
            OSError: it could not be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        data = _content(file.path)
        if data is not None and data != file.text.encode() and not self.is_ours(file.path):
            place = self._before(file.path)
            if place.exists() and place.read_bytes() != data:
                place = self._aside(file.path)
            durable.write(place, data, file.path.stat().st_mode & 0o777, file.path.stat().st_gid)
        self.entries[file.path] = digest(file.text.encode())
        self._save()
        file.path.parent.mkdir(parents=True, exist_ok=True)
        durable.write(file.path, file.text.encode(), file.mode, file.group)

    def undo(self) -> list[str]:
        """Put all back as it was, but for what a person has changed since. Returns what was done, a sentence each.

        Raises:
            OSError: something could not be put back; the rest is still in the manifest.
        """
        done: list[str] = []
        for path in list(self.entries):
            before = self._before(path)
            if path.exists() and not self.is_ours(path):
                done.append(f"kept {path}: it was changed since")
                if before.exists() and before.read_bytes() != path.read_bytes():
                    # Under another name: what a later setup finds is what its undo will restore.
                    before = before.rename(self._aside(path))
            elif before.exists():
                old = before.stat()
                durable.write(path, before.read_bytes(), old.st_mode & 0o777, old.st_gid)
                done.append(f"restored {path}")
            elif path.exists():
                path.unlink()
                done.append(f"removed {path}")
                if path.parent.name.endswith(".d") and not any(path.parent.iterdir()):
                    path.parent.rmdir()
            if before == self._before(path):
                before.unlink(missing_ok=True)
            done += [f"kept {each}: {path} as it was before setup replaced it" for each in self._kept(path)]
            del self.entries[path]
            self._save()
        self._file.unlink(missing_ok=True)
        for folder in (self._folder / "before", self._folder, self._folder.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return done

    def _before(self, path: Path) -> Path:
        return self._folder / "before" / str(path).lstrip("/").replace("/", "--")

    def _aside(self, path: Path) -> Path:
        """A free place for one more copy of a person's file."""
        before = self._before(path)
        return next(place for n in itertools.count(2) if not (place := before.with_name(f"{before.name}.{n}")).exists())

    def _kept(self, path: Path) -> list[Path]:
        before = self._before(path)
        numbered = re.compile(re.escape(before.name) + r"\.\d+")
        places = before.parent.iterdir() if before.parent.is_dir() else ()
        return sorted(place for place in places if numbered.fullmatch(place.name))

    def _save(self) -> None:
        text = "".join(f"{checksum}  {path}\n" for path, checksum in self.entries.items())
        text += "".join(f"# no drop-in: {unit}\n" for unit in sorted(self.left))
        durable.write(self._file, text.encode(), 0o644)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def changes(files: Iterable[File], manifest: Manifest, *, replace: bool) -> tuple[list[File], list[tuple[File, State]]]:
    """(files that are to be written, files that stay and how they stand).

    Args:
        files: what is wanted.
        manifest: what was written before.
        replace: whether files that a person wrote or changed are replaced too.
    """
    write: list[File] = []
    stay: list[tuple[File, State]] = []
    for file in files:
        state = manifest.state(file)
        if state in ("new", "ours, changes") or (replace and state != "as it is"):
            write.append(file)
        else:
            stay.append((file, state))
    return write, stay
