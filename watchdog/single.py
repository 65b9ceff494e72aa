"""One daemon at a time: whoever keeps a state directory holds a lock on a file in it, which the kernel releases at any death.

Two daemons on one state directory would overwrite each other's state, and a pause that one was told of would not bind the other.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from watchdog import durable
from watchdog.log import get
from watchdog.worker import Worker

NAME = ".lock"
LOCK_LIMIT_S = 3.0
TAKEN_S = 20.0
"""Under systemd one waits so long for another daemon to end: a unit that fails at once, again and again, is given up
(StartLimitBurst=20 within 300 s), and would not be back when that one ends."""
AGAIN_S = 1.0
PF_EXITING = 0x4
"""Of /proc/PID/stat, field 9 (include/linux/sched.h)."""
SIGKILL_BIT = 1 << 8
"""Of the masks of signals in /proc/PID/status."""


class TakenError(Exception):
    """Another daemon is at work here: one line that names it, and the cure."""

    def __init__(self, pid: int | None, where: Path) -> None:
        who = "another sglang-watchdog" if pid is None else f"another sglang-watchdog (PID {pid})"
        stop = "systemctl stop sglang-watchdog" if pid is None else f"systemctl stop sglang-watchdog, or kill {pid}"
        super().__init__(
            f"{who} has {where}: stop one of the two ({stop}), or give this one a state_dir and a runtime_dir of its own"
        )


class Unlocked(Exception):  # noqa: N818  # no failure: one goes on without the lock
    """There is no telling whether another daemon keeps this directory; the message says why, and what helps."""


async def alone(
    folder: Path, check: Callable[[], None], patience_s: float, stop: asyncio.Event, waiting: Callable[[str], object]
) -> int | None:
    """Make sure that no other daemon is at work; the file descriptor that holds the lock, None where there can be no lock.

    Args:
        folder: the state directory.
        check: raises TakenError while another daemon answers in our place.
        patience_s: for so long the other one may take to end.
        stop: set once we are told to end.
        waiting: is told what is waited for.

    Raises:
        TakenError: another daemon is at work, and did not end in time.
    """
    until = asyncio.get_running_loop().time() + patience_s
    said = False
    while True:
        try:
            check()
            return await Worker("lock").call(lambda: hold(folder), LOCK_LIMIT_S)
        except (Unlocked, TimeoutError) as e:
            why = str(e) if isinstance(e, Unlocked) else f"{folder} does not answer: look at its disk"
            risk = "a second daemon beside this one would not be noticed"
            get().error("lock-lost", message=f"going on without a lock on the state directory, {risk}: {why}")
            return None
        except TakenError as e:
            if not said:
                said = True
                get().error("start-refused", message=str(e))
            if asyncio.get_running_loop().time() >= until:
                raise
            waiting(f"waits: {e}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await stop.wait()
            if stop.is_set():
                raise


def hold(folder: Path) -> int:
    """Take the lock of a state directory, which is made where it is missing; the file descriptor that holds it.

    Raises:
        TakenError: another daemon holds it.
        Unlocked: it cannot be taken, and nobody is known to hold it.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = _opened(path)
    except OSError as e:
        raise Unlocked(f"{path} cannot be opened ({e.strerror or e}): {durable.mend(path, e)}") from e
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        holder = _holder(fd)
        os.close(fd)
        if holder is not None and dying(holder):
            raise Unlocked(f"PID {holder} was killed and cannot end: see what holds it (a disk, a GPU driver)") from e
        raise TakenError(holder, path) from e
    except OSError as e:
        os.close(fd)
        raise Unlocked(f"{path} cannot be locked ({e.strerror or e}): its file system has no locks") from e
    return fd


def _opened(path: Path) -> int:
    """The lock's file. Who may only read it, as on a disk that is read-only, may lock it all the same (flock(2))."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return os.open(path, flags | os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fchmod(fd, 0o644)  # whatever our umask: a daemon of another user must find us too
    return fd


def _holder(fd: int) -> int | None:
    """Who holds the lock (/proc/locks, proc_locks(5)); None if that is not told, as of a process outside our PID namespace."""
    own = os.fstat(fd)
    file = f"{os.major(own.st_dev):02x}:{os.minor(own.st_dev):02x}:{own.st_ino}"
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError):
        return None
    held = [int(words[4]) for words in lines if words[1] == "FLOCK" and words[5] == file]
    return next((pid for pid in held if pid > 0), None)


def listener(path: Path) -> tuple[bool, int | None]:
    """Whether somebody listens on a socket, and who.

    Raises:
        OSError: it may not be asked.
    """
    with socket.socket(socket.AF_UNIX) as s:
        s.setblocking(False)
        try:
            s.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False, None
        except BlockingIOError:  # so many wait already that we should have to wait as well
            return True, None
        pid = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
    return (False, None) if pid > 0 and dying(pid) else (True, pid or None)


def dying(pid: int) -> bool:
    """Whether a process was killed and only the kernel still holds it: it does nothing more, but its locks and sockets stay."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd:", "ShdPnd:"))]
    return stat[0] in "ZX" or bool(int(stat[6]) & PF_EXITING) or any(mask & SIGKILL_BIT for mask in masks)
