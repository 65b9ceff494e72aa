"""A command of the host, run with a deadline and a cap on what it prints."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence

from watchdog.worker import Worker

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "TERM": "dumb", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat"}
"""What a command gets, besides PATH: neither NOTIFY_SOCKET (its messages would count as ours) nor credentials."""

GRACE_S = 0.5
"""A killed command has so long to go, in seconds; one that hangs in a driver is left behind."""


class CommandError(Exception):
    """The command could not tell anything; the message is for people."""


async def output(command: Sequence[str], limit_s: float, cap: int) -> bytes:
    """What a command prints (both streams), at most `cap` bytes.

    Raises:
        CommandError: it is not installed, took longer than `limit_s` seconds, or failed and printed nothing else than its error.
    """
    path = os.environ.get("PATH", os.defpath)
    program = await find(command[0], limit_s)
    if program is None:
        raise CommandError(f"{command[0]} is not installed")
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": path, **ENVIRONMENT},
            cwd="/",
            start_new_session=True,
        )
    except OSError as e:
        raise CommandError(f"{command[0]} cannot be run: {e.strerror}") from e
    assert process.stdout is not None
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(limit_s):
            left = cap
            while left > 0 and (piece := await process.stdout.read(min(left, 1 << 16))):
                pieces.append(piece)
                left -= len(piece)
            if left > 0:
                await process.wait()
    except TimeoutError:
        raise CommandError(f"{command[0]} gave no answer within {limit_s:.1f} s") from None
    finally:
        await end(process)
    text = b"".join(pieces)
    if process.returncode not in (0, None, -signal.SIGKILL):
        said = text.decode("utf-8", "replace").strip().partition("\n")[0][:200]
        raise CommandError(f"{command[0]} failed (status {process.returncode}): {said or 'it said nothing'}")
    return text


async def find(name: str, limit_s: float) -> str | None:
    """Where a command is installed; None if it is not, or if a folder in PATH does not answer."""
    path = os.environ.get("PATH", os.defpath)
    try:
        return await Worker("which").call(lambda: shutil.which(name, path=path), limit_s)
    except TimeoutError:
        return None


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill what still runs of a process that has a session of its own, and let go of its pipes."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
    # A child of its own may hold their other end for ever. asyncio has no public name for this.
    vars(process)["_transport"].close()
