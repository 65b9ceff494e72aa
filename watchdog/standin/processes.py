"""Child processes with the titles that SGLang gives them."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

_libc = ctypes.CDLL(None, use_errno=True)


def set_title(title: str) -> None:
    """Show `title` as the command line and the name of this process, as setproctitle does.

    The kernel shows the memory between arg_start and arg_end (fields 48 and 49 of /proc/PID/stat, proc_pid_stat(5)) as
    /proc/PID/cmdline; it is overwritten there. Cut to the length of the original command line.
    """
    start, room = _command_line()
    ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)
    _libc.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)


def set_program(options: Sequence[str]) -> None:
    """Show `python -m sglang.launch_server` before the options of this process, so that it is taken for what it imitates.

    The rest of the room is filled with leading slashes, which mean nothing in a path. Where there is too little room, the command
    line stays as it is.
    """
    start, room = _command_line()
    tail = b"".join(option.encode() + b"\0" for option in options)
    head = b"python\0-m\0sglang.launch_server\0"
    if ctypes.string_at(start, room).endswith(tail) and len(head) <= room - len(tail):
        ctypes.memmove(start, head.rjust(room - len(tail), b"/"), room - len(tail))


def _command_line() -> tuple[int, int]:
    """Where the command line of this process is in its memory, and its length."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    return start, end - start


def fork(title: str, body: Callable[[], None]) -> int:
    """Run `body` in a child that is killed when its parent dies; returns the child's process id.

    Signals have their default actions in the child, as in SGLang's children, but for SIGINT, which is the parent's business.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        set_title(title)
        body()
        status = 0
    except BaseException:  # noqa: BLE001 (a child must never run on into its parent's code)
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def exit_code(pid: int) -> int | None:
    """How the child ended: its exit status, or minus the signal's number; None while it lives."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None
