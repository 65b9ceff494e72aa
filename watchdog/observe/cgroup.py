"""Where a unit's cgroup files lie: cgroup v2, v1, or both at once (hybrid).

Sources: cgroups(7); kernel Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/; systemd's "Control Group APIs and Delegation"
(in hybrid mode a unit has the same path below the v1 controllers, below name=systemd, and below the v2 tree without controllers).
"""

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from watchdog.observe.files import read

MAX_FOLDERS = 1000
"""So many cgroups of one unit are looked at; a server has one, a unit with Delegate=yes some."""

_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True):
    """One mounted hierarchy.

    Attributes:
        point: where it is mounted.
        root: which of its cgroups is mounted there; "/" but in containers.
        names: the v1 controllers, and "name=systemd"; empty for v2.
    """

    point: Path
    root: str
    names: frozenset[str]


def mounts(mountinfo: bytes) -> list[Mount]:
    """The cgroup hierarchies in the text of /proc/PID/mountinfo (proc_pid_mountinfo(5))."""
    found: list[Mount] = []
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(b" - ")
        fields, kind = before.split(b" "), after.split(b" ")
        if not dash or len(fields) < 5 or len(kind) < 3 or kind[0] not in (b"cgroup", b"cgroup2"):
            continue
        names = frozenset(kind[2].decode("utf-8", "replace").split(",")) if kind[0] == b"cgroup" else frozenset[str]()
        found.append(Mount(Path(_text(fields[4])), _text(fields[3]), names))
    return found


def _text(field: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda octal: bytes([int(octal[1], 8) & 255]), field))


class Cgroups:
    """The hierarchies of this host, as this process sees them. All methods block for some microseconds."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        """Prepare, without I/O.

        Args:
            proc: the root of procfs.
        """
        self._proc = proc

    @functools.cached_property
    def _mounts(self) -> list[Mount]:
        return mounts(read(self._proc / "self/mountinfo", 1 << 20) or b"")

    @functools.cached_property
    def v2(self) -> Mount | None:
        """The v2 tree; None where there is none."""
        return next((m for m in self._mounts if not m.names), None)

    @functools.cached_property
    def v1(self) -> dict[str, Mount]:
        """The v1 trees by controller, and "name=systemd"."""
        return {name: m for m in reversed(self._mounts) for name in m.names}

    @property
    def known(self) -> bool:
        """Whether the processes of a unit can be listed at all."""
        return self.v2 is not None or "name=systemd" in self.v1

    def folder(self, cgroup: str, controller: str | None = None) -> Path | None:
        """The folder of a cgroup; None if there is none.

        Args:
            cgroup: its path, such as "/system.slice/sglang-kimi.service".
            controller: a v1 controller ("memory"), or "name=systemd"; None for the v2 tree.
        """
        mount = self.v2 if controller is None else self.v1.get(controller)
        if mount is None or not cgroup.startswith("/") or ".." in cgroup.split("/"):
            return None
        inner = cgroup
        if mount.root != "/" and (cgroup == mount.root or cgroup.startswith(mount.root + "/")):
            inner = cgroup[len(mount.root) :]
        folder = mount.point / inner.lstrip("/")
        return folder if folder.is_dir() else None

    def processes(self, cgroup: str) -> list[int] | None:
        """The pids in a cgroup and below it, ascending; empty for a cgroup that is gone, None if no hierarchy can tell."""
        if not self.known:
            return None
        found: set[int] = set()
        for controller in (None, "name=systemd"):
            folder = self.folder(cgroup, controller)
            if folder is not None:
                for each in _tree(folder):
                    found.update(_pids(each))
            if found:
                break
        return sorted(found)


def _tree(folder: Path) -> Iterator[Path]:
    """A cgroup and those below it."""
    waiting = [folder]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        here = waiting.pop()
        yield here
        try:
            with os.scandir(here) as entries:
                waiting += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:  # it went away
            continue


def _pids(folder: Path) -> list[int]:
    """0 stands for a process outside of our pid namespace; a threaded cgroup cannot be read (EOPNOTSUPP)."""
    text = read(folder / "cgroup.procs", 1 << 20) or b""
    return [int(word) for word in text.split() if word.isdigit() and word != b"0"]


def contains(cgroup: str, own: bytes | None) -> bool | None:
    """Whether a process whose /proc/PID/cgroup is `own` belongs to a cgroup; None where that cannot be told."""
    if not cgroup or not own:
        return None
    for line in own.decode("utf-8", "replace").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (number == "0" or names == "name=systemd") and (path == cgroup or path.startswith(cgroup.rstrip("/") + "/")):
            return True
    return False
