"""Log lines in the form of SGLang: no level, local time in whole seconds, the rank where there is more than one."""

import os
import time


def version_key(version: str) -> tuple[int, ...]:
    """Of "0.5.12.post1" make (0, 5, 12), by which the wordings of the versions are told apart."""
    return tuple(int(part) for part in version.split(".")[:3])


def is_version(text: str) -> bool:
    """True for what `version_key` takes."""
    parts = text.split(".")[:3]
    return len(parts) == 3 and all(part.isdecimal() for part in parts)


class Log:
    """Writes the lines of one process, each with one write so that lines of several processes do not mix."""

    def __init__(self, rank: str = "") -> None:
        self._rank = f" {rank}" if rank else ""

    def stamp(self) -> str:
        """The prefix of a line."""
        return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{self._rank}] "

    def line(self, text: str) -> None:
        """A line of SGLang's logger (standard error)."""
        _write(2, f"{self.stamp()}{text}\n")

    def raw(self, text: str) -> None:
        """A line without prefix: progress bars, tracebacks, warnings (standard error)."""
        _write(2, f"{text}\n")

    def access(self, client: str, request: str, status: str) -> None:
        """A line of uvicorn's access log (standard output)."""
        _write(1, f'{self.stamp()}INFO:     {client} - "{request}" {status}\n')


def _write(fd: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]
