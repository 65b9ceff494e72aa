"""Files below STATE/alerts/ that survive SIGKILL: each is written whole, or not at all. Blocking; run it in a worker."""

from pathlib import Path

from watchdog import durable, regular

MAX_BYTES = 16 << 20


class Store:
    """A folder of small files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> bytes | None:
        """What a file holds; None where there is none, or it cannot be read, or is larger than 16 MiB.

        What is no file at all is put aside.
        """
        try:
            raw = regular.read(self.folder / name, MAX_BYTES + 1)
        except regular.NotRegularError:
            self.aside(name)
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
        durable.write(self.folder / name, content)

    def aside(self, name: str) -> str | None:
        """Keep a file that cannot be understood under another name; that name, or None if it could not be renamed."""
        return durable.aside(self.folder / name)
