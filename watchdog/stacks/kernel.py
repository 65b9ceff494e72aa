"""A process and its threads as the kernel shows them: state, what they wait in, kernel stack.

Names are those of the threads (comm). Command lines and environments are not read: they hold keys. Sources: proc_pid_stat(5),
proc_pid_wchan(5), proc_pid_stack(5); the stack is for CAP_SYS_ADMIN alone (fs/proc/base.c, proc_pid_stack).
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from watchdog.observe.cgroup import Cgroups, contains

THREADS = 1024
THREADS_NAMED = 24
"""So many threads are named of those that stand alike."""

FRAMES = 48
FILE_BYTES = 1 << 14
_PYTHON = re.compile(rb"/(?:python|pypy)[\d.]*$")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


class Process(NamedTuple):
    """What is told of a process. `python`: whether it runs an interpreter."""

    name: str
    text: str
    python: bool


def cgroup_of(unit: str, cgroups: Cgroups) -> str | None:
    """The cgroup of a system unit, such as "/system.slice/sglang-kimi.service"; None while it has none.

    Only slices are searched. Those belong to PID 1, while in a service or a scope that was delegated anybody may make a cgroup
    of any name.
    """
    for controller in (None, "name=systemd"):
        waiting = ["/"]
        while waiting:
            here = waiting.pop()
            for name in _folders(cgroups.folder(here, controller)):
                path = f"{here.rstrip('/')}/{name}"
                if name == unit:
                    return path
                if name.endswith(".slice"):
                    waiting.append(path)
    return None


def _folders(place: Path | None) -> list[str]:
    """The names of the folders in a folder; none where it has gone."""
    if place is None:
        return []
    try:
        with os.scandir(place) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def look(pid: int, cgroup: str, proc: Path = Path("/proc")) -> Process | None:
    """A process of a cgroup; None if it has ended or is not in there.

    All is read below one open folder, which stays that of this process even if its pid is given to another.
    """
    try:
        fd = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if contains(cgroup, _read(fd, "cgroup")) is not True:
            return None
        name, _ = _stat(_read(fd, "stat"))
        return Process(name, "\n".join(_threads(fd)), _PYTHON.search(_link(fd, "exe")) is not None)
    finally:
        os.close(fd)


def is_in(pid: int, cgroup: str, proc: Path = Path("/proc")) -> bool:
    """Whether a process lives, and in this cgroup."""
    try:
        fd = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return contains(cgroup, _read(fd, "cgroup")) is True
    finally:
        os.close(fd)


def _threads(fd: int) -> list[str]:
    """The threads, those together that stand alike: a rank has hundreds that wait in the same place."""
    try:
        task = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    except OSError:
        return []
    try:
        alike: dict[str, list[str]] = {}
        threads = sorted(int(name) for name in os.listdir(task))  # noqa: PTH208
        for thread in threads[:THREADS]:
            name, state = _stat(_read(task, f"{thread}/stat"))
            if state:
                alike.setdefault(_stands(task, thread, state), []).append(f"{thread} ({name})")
    finally:
        os.close(task)
    told = []
    for stands, names in alike.items():
        more = f" and {len(names) - THREADS_NAMED} more" if len(names) > THREADS_NAMED else ""
        told.append(f"threads {', '.join(names[:THREADS_NAMED])}{more}: {stands}")
    if len(threads) > THREADS:
        told.append(f"{len(threads) - THREADS} threads more left out")
    return told


def _stands(task: int, thread: int, state: str) -> str:
    """The state of a thread, what it waits in, and its kernel stack."""
    wchan = _plain(_read(task, f"{thread}/wchan").strip())
    waits = f", waits in {wchan}" if wchan not in ("", "0") else ""
    stack = _plain(_read(task, f"{thread}/stack").strip(), keep="\n").splitlines()
    # "[<0>] futex_wait_queue+0x60/0x90"; before Linux 4.x with the address.
    frames = [line.partition("] ")[2] or line for line in stack[:FRAMES]]
    return "\n    ".join([f"state {state}{waits}", *frames])


def _stat(text: bytes) -> tuple[str, str]:
    """The name and the state in /proc/PID/stat; both empty where it could not be read. The name may hold brackets itself."""
    start, end = text.find(b"("), text.rfind(b")")
    return _plain(text[start + 1 : end]), _plain(text[end + 2 : end + 3])


def _plain(text: bytes, keep: str = "") -> str:
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in keep else "?", text.decode("utf-8", "replace"))


def _read(folder: int, name: str) -> bytes:
    """The beginning of a file; empty where it cannot be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return os.read(fd, FILE_BYTES)
        finally:
            os.close(fd)
    except OSError:
        return b""


def _link(folder: int, name: str) -> bytes:
    try:
        return os.fsencode(os.readlink(name, dir_fd=folder)).removesuffix(b" (deleted)")
    except OSError:
        return b""
