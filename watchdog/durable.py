"""Small files that must survive SIGKILL and a power loss: written whole, never in place; a damaged one is kept aside."""

import os
from datetime import UTC, datetime
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file so that the old content or the new one is there at any moment; blocks for as long as the disk does.

    Raises:
        OSError: it could not be written (full disk, no right).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def aside(path: Path) -> str | None:
    """Keep a file that cannot be used under another name; that name, or None if it could not be renamed."""
    kept = path.with_name(f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}.bad")
    try:
        path.rename(kept)
    except OSError:
        return None
    return kept.name
