"""Files below STATE/alerts/ that survive SIGKILL: each is written whole, or not at all. Blocking; run it in a worker."""

import contextlib
import os
from pathlib import Path

from watchdog import regular

MAX_BYTES = 16 << 20


class Store:
    """A folder of small files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> bytes | None:
        """What a file holds; None where there is none, or it cannot be read, or is larger than 16 MiB.

        What is no file at all is set aside.
        """
        try:
            raw = regular.read(self.folder / name, MAX_BYTES + 1)
        except regular.NotRegularError:
            self.set_aside(name)
            return None
        except OSError:
            return None
        return raw if len(raw) <= MAX_BYTES else None

    def save(self, name: str, content: bytes) -> None:
        """Replace a file; when this returns, the new content is on the disk.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self.folder / f"{name}.partial"
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.folder / name)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def set_aside(self, name: str) -> None:
        """Keep a file that cannot be understood, for people, and out of the way."""
        with contextlib.suppress(OSError):
            (self.folder / name).replace(self.folder / f"{name}.bad")
