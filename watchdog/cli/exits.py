"""Exit statuses (docs/exit-codes.md), and the error that carries one."""

OK = 0
FAILED = 1
USAGE = 78
"""A configuration that cannot be used (EX_CONFIG of sysexits.h): systemd does not start the daemon again for it."""
CANNOT = 2


class CommandError(Exception):
    """A command cannot do its work: one sentence, and the exit status."""

    def __init__(self, message: str, status: int = CANNOT) -> None:
        super().__init__(message)
        self.status = status
