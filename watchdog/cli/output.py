"""Standard output and error of the command, and what becomes of a text that cannot be written: a disk is full, a reader gone."""

import errno
import io
import os
import select
import sys
from typing import Any

from watchdog.cli.exits import CommandError


class OutputError(CommandError):
    """The output cannot be written."""

    def __init__(self, number: int) -> None:
        """Say why.

        Args:
            number: the error number of the system.
        """
        super().__init__(f"the output cannot be written: {os.strerror(number).lower()}")


class GoneError(CommandError):
    """The reader of a stream is gone; nothing to complain about, so there is no message."""

    def __init__(self) -> None:
        super().__init__("")


class Output(io.FileIO):
    """A descriptor that is written to until that fails once; what comes afterwards is dropped.

    A reader that has gone away is no error: the command goes on, and ends with the status of what it found. Only what streams
    (`stream`) ends then.

    Attributes:
        streams: whether the command does nothing but write.
    """

    def __init__(self, number: int | None, *, told: bool) -> None:
        """Take a descriptor over.

        Args:
            number: the descriptor; None where it was closed before we began.
            told: whether a failure is told by an OutputError. It is not where there is no other place to tell it.
        """
        super().__init__(os.devnull if number is None else number, "wb", closefd=number is None)
        self.streams = False
        self._closed = number is None
        self._told = told
        self._lost = False

    def write(self, data: Any) -> int:
        """Write it.

        Raises:
            OutputError: it cannot be written; only the first time.
            GoneError: the reader of a stream is gone; only the first time.
        """
        if not self._lost:
            try:
                return self._written(data)
            except OSError as e:
                self._lost = True
                if self._told and not isinstance(e, BrokenPipeError):
                    raise OutputError(e.errno or errno.EIO) from e
                if self._told and self.streams:
                    raise GoneError from e
        return len(data)

    def _written(self, data: Any) -> int:
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        while (size := super().write(data)) is None:  # somebody made it non-blocking, and it is full
            select.select([], [self], [])
        return size


def install() -> None:
    """Put ours in the place of the interpreter's, for the whole process."""
    if sys.stdin is None:  # closed, like the other two where they are None
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    sys.stdout = _text(sys.stdout, errors="replace", told=True)  # a terminal that cannot show a character shows another
    sys.stderr = _text(sys.stderr, errors="backslashreplace", told=False)


def _text(old: Any, *, errors: str, told: bool) -> io.TextIOWrapper:
    raw = Output(None if old is None else old.fileno(), told=told)
    at_once = not told or raw.isatty() or getattr(old, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=getattr(old, "encoding", "utf-8"), errors=errors, line_buffering=at_once
    )


def stream() -> None:
    """Say that from now on the command does nothing but write: without a reader it ends, with a status that is not 0."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, Output):
        raw.streams = True
