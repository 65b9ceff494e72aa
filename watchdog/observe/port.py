"""Who listens on the server's port.

/proc/net/tcp and tcp6 can be read by everybody and name each socket's inode and owner; which process holds it only its user and
root can see (/proc/PID/fd). Where we may not look, three facts still tell that a listener is a stranger: the unit has no process,
the socket was there while it had none, or it belongs to a user that the unit has no process of. Source: proc_pid_net(5).
"""

import contextlib
import ipaddress
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from watchdog.clock import Clock
from watchdog.observation import Port
from watchdog.observe.cgroup import Cgroups, contains
from watchdog.observe.files import read
from watchdog.observe.source import Beat, Emit, Target
from watchdog.worker import BusyError, Worker

STARTING_INTERVAL_S = 30.0
REST_S = 10.0
"""Between two signs of life, in seconds."""

LIMIT_S = 10.0
CAP = 16 << 20
"""Bytes of a socket table; a line has 150, so that is some 100,000 sockets."""

ESTABLISHED, LISTEN = b"01", b"0A"


class Listener(msgspec.Struct, frozen=True):
    """A listening socket: its address, its inode, and the user who made it."""

    host: str
    port: int
    inode: int
    uid: int


class PortSource:
    """Emits `Port` for one server: at each start, every 30 s while it starts, when it is ready, and when `look_now` is called."""

    name = "port"
    mandatory = False

    def __init__(self, target: Target, clock: Clock, cgroups: Cgroups | None = None, proc: Path = Path("/proc")) -> None:
        """Prepare.

        Args:
            target: the server.
            clock: tells the moments of the observations.
            cgroups: this host's hierarchies; found where None.
            proc: the root of procfs.
        """
        self._target = target
        self._clock = clock
        self._cgroups = cgroups or Cgroups(proc)
        self._proc = proc
        self._worker = Worker("port")
        self._strangers: set[int] = set()
        self._wanted = False
        self.period_s = REST_S + LIMIT_S

    def look_now(self) -> None:
        """Look at once: a probe was refused."""
        self._wanted = True
        self._target.tell()

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        seen_inv: str | None = ""
        was_starting = False
        due = 0.0
        while True:
            beat()
            inv, now = self._target.inv, self._clock.now()
            starting = self._target.hold == "starting"
            # Before the unit was looked at, a server that has long been running would be taken for a stranger.
            ready = was_starting and not starting  # what was seen before it listened would stand for hours
            was_starting = starting
            if self._target.known and (self._wanted or ready or inv != seen_inv or (starting and now >= due)):
                self._wanted = False
                seen_inv, due = inv, now + STARTING_INTERVAL_S
                seen = await self.look()
                if seen is not None and self._target.inv == inv:
                    emit(seen)
            else:
                await self._target.change(min(REST_S, due - now) if starting and due > now else REST_S)

    async def look(self) -> Port | None:
        """One look; None if it was given up."""
        host, port = address(self._target.server.base_url)
        inv, cgroup, main = self._target.inv, self._target.cgroup, self._target.main_pid
        try:
            seen = await self._worker.call(lambda: self._read(host, port, cgroup, main), LIMIT_S)
        except (TimeoutError, BusyError):
            return None
        return msgspec.structs.replace(seen, t=self._clock.now(), inv=inv)

    def _read(self, host: str, port: int, cgroup: str, main: int | None) -> Port:
        """Blocking."""
        tables = [read(self._proc / "net" / name, CAP) for name in ("tcp", "tcp6")]
        if all(table is None for table in tables):
            return Port(t=0.0, address=_joined(host, port))
        listeners, established = sockets([table or b"" for table in tables], host, port)
        if not listeners:
            return Port(t=0.0, listening=False, address=_joined(host, port), established=established)
        unit = (self._cgroups.processes(cgroup) if cgroup else []) or []
        inodes = {each.inode for each in listeners}
        pid = self._holder(inodes, unit, main)
        first = listeners[0]
        return Port(
            t=0.0,
            listening=True,
            address=_joined(first.host, first.port),
            pid=pid,
            in_unit=self._in_unit(pid, listeners, unit, cgroup),
            established=established,
        )

    def _holder(self, inodes: set[int], unit: list[int], main: int | None) -> int | None:
        """A process that has one of the sockets open: the main process before the unit's others, and these before strangers."""
        wanted = {f"socket:[{inode}]" for inode in inodes}
        first = [main] if main in unit and main is not None else []
        others = [int(folder.name) for folder in self._proc.iterdir() if folder.name.isdigit()]
        for pid in dict.fromkeys(first + unit + others):
            if _holds(self._proc / str(pid) / "fd", wanted):
                return pid
        return None

    def _in_unit(self, pid: int | None, listeners: list[Listener], unit: list[int], cgroup: str) -> bool | None:
        inodes = {each.inode for each in listeners}
        if pid is not None:
            found = pid in unit or contains(cgroup, read(f"{self._proc}/{pid}/cgroup"))
        elif not unit and (not cgroup or self._cgroups.known):
            self._strangers = inodes
            found = False
        elif inodes <= self._strangers:
            found = False
        else:
            users = [user(self._proc, each) for each in unit]
            known = None not in users
            found = False if known and all(each.uid not in users for each in listeners) else None
        return found


def address(base_url: str) -> tuple[str, int]:
    """Host and port of a base address."""
    parts = urlsplit(base_url)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)


def sockets(tables: list[bytes], host: str, port: int) -> tuple[list[Listener], int]:
    """The listeners that a client of `host` and `port` reaches, the most specific first, and the connections established there.

    Args:
        tables: the texts of /proc/net/tcp and /proc/net/tcp6.
        host: an address; with a name every address counts.
        port: the port.
    """
    try:
        asked = ipaddress.ip_address(host)
    except ValueError:
        asked = None
    line = re.compile(
        rb"^ *\d+: ([0-9A-F]{8}|[0-9A-F]{32}):%04X [0-9A-F]+:[0-9A-F]{4} (01|0A) \S+ \S+ \S+ +(\d+) +\d+ (\d+)" % port,
        re.MULTILINE,
    )
    listeners: list[tuple[int, Listener]] = []
    established = 0
    for table in tables:
        for found in line.finditer(table):
            if found[2] == ESTABLISHED:
                established += 1
                continue
            here = _unpacked(found[1])
            if here.is_unspecified or asked is None or here == asked:
                rank = 0 if not here.is_unspecified else here.version
                listeners.append((rank, Listener(str(here), port, int(found[4]), int(found[3]))))
    return [each for _, each in sorted(listeners, key=lambda pair: pair[0])], established


def _unpacked(text: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address of a socket table: groups of four bytes, each in the byte order of the machine."""
    raw = b"".join(socket.htonl(int(text[i : i + 8], 16)).to_bytes(4, "big") for i in range(0, len(text), 8))
    here = ipaddress.ip_address(raw)
    return here.ipv4_mapped or here if isinstance(here, ipaddress.IPv6Address) else here


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _holds(folder: Path, wanted: set[str]) -> bool:
    """Whether one of a process's open files is one of these; False where we may not look."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path) in wanted:  # noqa: PTH115 (there are thousands)
                        return True
    except OSError:
        return False
    return False


def user(proc: Path, pid: int) -> int | None:
    """The effective user of a process; None if it is gone or hidden. /proc/PID/status does not wait for the memory map."""
    found = re.search(rb"^Uid:\t\d+\t(\d+)", read(f"{proc}/{pid}/status", 8192) or b"", re.MULTILINE)
    return int(found[1]) if found else None
