"""Small files that must survive SIGKILL and a power loss: written whole, never in place; a damaged one is kept aside."""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

from watchdog.regular import NotRegularError


def write(path: Path, data: bytes, mode: int | None = None, group: int | None = None) -> None:
    """Write a file so that the old content or the new one is there at any moment; blocks for as long as the disk does.

    Args:
        path: the file; folders that are missing above it are made.
        data: what it is to hold.
        mode: its permissions, which it never exceeds; None: it is for its owner alone (0600).
        group: its group, with root for its owner; None: who writes it.

    Raises:
        OSError: it could not be written (full disk, no right).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)  # of a write that was cut short; what is no file of ours is not written into either
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as f:
        f.write(data)
        f.flush()
        if group is not None:
            os.fchown(f.fileno(), 0, group)
        if mode is not None:
            os.fchmod(f.fileno(), mode)
        os.fsync(f.fileno())
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def mend(path: Path, e: OSError) -> str:
    """What a person can do about a file that cannot be read or written: `e` says why."""
    if e.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST) or isinstance(e, NotRegularError):
        return f"move away what lies at {path}"
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space"
    return "mend its owner and mode" if e.errno in (errno.EACCES, errno.EPERM) else "see whether its disk is well"


def aside(path: Path) -> str | None:
    """Keep a file that cannot be used under another name; that name, or None if it could not be renamed."""
    kept = path.with_name(f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}.bad")
    try:
        path.rename(kept)
    except OSError:
        return None
    return kept.name
