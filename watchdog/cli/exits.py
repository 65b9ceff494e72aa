"""Exit statuses (docs/exit-codes.md), and the error that carries one."""

OK = 0
FAILED = 1
"""It was done, and the answer is no."""
CANNOT = 2
"""It cannot be done, or cannot be told."""
TIMEOUT = 3
"""`wait` only: the time that it was given is over."""
INTERNAL = 70
"""A fault of this program (EX_SOFTWARE of sysexits.h)."""
TAKEN = 75
"""`run` only: another daemon is at work in its place (EX_TEMPFAIL of sysexits.h): systemd starts it again later."""
USAGE = 78
"""A configuration that cannot be used (EX_CONFIG of sysexits.h): systemd does not start the daemon again for it."""
INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot do its work: one sentence, and the exit status."""

    def __init__(self, message: str, status: int = CANNOT) -> None:
        super().__init__(message)
        self.status = status
