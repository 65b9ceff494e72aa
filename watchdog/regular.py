"""Opens regular files only, and never waits: opening a named pipe waits for a writer, and a device may have no end."""

import errno
import io
import os
import stat
from pathlib import Path

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularError(OSError):
    """What has the file's name is something else; `strerror` says what."""


def opened(path: Path, *, pipe: bool = False) -> io.BufferedReader:
    """Open a regular file for reading; links are followed.

    Args:
        path: the file.
        pipe: a pipe is taken too, as of `zcat … | … /dev/stdin`; one that nobody writes to is empty.

    Raises:
        NotRegularError: it is something else.
        OSError: it is not there, or must not be read.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as e:
        if e.errno == errno.ENXIO:  # open(2): a socket, or a device that is not there
            raise NotRegularError(errno.EINVAL, "it is a socket or a device, not a file", str(path)) from e
        raise
    mode = os.fstat(number).st_mode
    if pipe and stat.S_ISFIFO(mode):
        os.set_blocking(number, True)
    elif not stat.S_ISREG(mode):
        os.close(number)
        kind = next((word for is_kind, word in KINDS if is_kind(mode)), "something else")
        raise NotRegularError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return os.fdopen(number, "rb")


def read(path: Path, cap: int) -> bytes:
    """The first `cap` bytes of a regular file.

    Raises:
        OSError: as `opened`.
    """
    with opened(path) as file:
        return file.read(cap)
