"""The processes in a unit's cgroup: their names, states, CPU time and memory.

What is read, and why not more: /proc/PID/stat and wchan never wait for the process's memory map. /proc/PID/cmdline does: while
a rank pins its host pool the map is locked, and a read blocks for as long. So it is read beside the rest, with a deadline, and
only when a process is new or when its comm has changed (SGLang's setproctitle changes both). smaps, maps and status are never
read. Source: proc_pid_stat(5), proc_pid_cmdline(5), proc_pid_wchan(5).
"""

import asyncio
import contextlib
import os
import re
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.clock import Clock
from watchdog.observation import Proc, Procs
from watchdog.observe.cgroup import Cgroups, contains
from watchdog.observe.files import number, read, table
from watchdog.observe.source import Beat, Emit, Target
from watchdog.worker import BusyError, Worker

LIMIT_S = 5.0
TITLES_LIMIT_S = 1.0
"""After so many seconds a look, and the reading of command lines, is given up."""

MAX_PROCESSES = 4096
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
TITLE = b"sglang::"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")


class Stat(msgspec.Struct, frozen=True):
    """What /proc/PID/stat tells. `started` is in clock ticks since boot: with the pid it names a process for good."""

    pid: int
    comm: bytes
    state: str
    ppid: int
    cpu_s: float
    started: int
    rss: int


class ProcessSource:
    """Emits `Procs` for one server at each interval, and when `look_now` is called."""

    name = "processes"
    mandatory = False

    def __init__(
        self,
        target: Target,
        clock: Clock,
        settings: config.Sources | None = None,
        cgroups: Cgroups | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        """Prepare.

        Args:
            target: the server.
            clock: tells the moments of the observations.
            settings: has the interval.
            cgroups: this host's hierarchies; found where None.
            proc: the root of procfs.
        """
        self._target = target
        self._clock = clock
        self._interval_s = (settings or config.Sources()).processes_interval_s
        self._cgroups = cgroups or Cgroups(proc)
        self._proc = proc
        self._worker = Worker("processes")
        self._titles = Titles(proc)
        self._wanted = asyncio.Event()
        self.period_s = self._interval_s + LIMIT_S + TITLES_LIMIT_S

    def look_now(self) -> None:
        """Look at once, not at the end of the interval."""
        self._wanted.set()

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        inv = self._target.inv
        while True:
            self._wanted.clear()
            if self._target.inv != inv:
                inv = self._target.inv
                self._titles = Titles(self._proc)  # the old one may still wait for a process that cannot die
            seen = await self.look()
            if seen is not None:
                beat()
                if self._target.inv == inv:
                    emit(seen)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):  # wait_for loses a cancellation in Python 3.11
                    await self._wanted.wait()

    async def look(self) -> Procs | None:
        """One look; None if it was given up."""
        inv, cgroup, titles = self._target.inv, self._target.cgroup, self._titles
        try:
            found, hidden, cpu_s = await self._worker.call(lambda: self._read(cgroup), LIMIT_S)
        except (TimeoutError, BusyError):
            return None
        await titles.read([stat for stat, _ in found])
        procs = [
            Proc(
                pid=stat.pid,
                ppid=stat.ppid,
                name=titles.name(stat),
                state=stat.state,
                cpu_s=stat.cpu_s,
                rss=stat.rss,
                wchan=wchan,
            )
            for stat, wchan in found
        ]
        procs += [Proc(pid=pid) for pid in hidden]
        if cpu_s is None and procs and not hidden:
            cpu_s = round(sum(stat.cpu_s for stat, _ in found), 2)
        return Procs(t=self._clock.now(), inv=inv, procs=sorted(procs, key=lambda each: each.pid), cpu_s=cpu_s)

    def _read(self, cgroup: str) -> tuple[list[tuple[Stat, str | None]], list[int], float | None]:
        """Blocking: what can be read of each process, the pids that are there but cannot be read, and the cgroup's CPU time."""
        pids = self._pids(cgroup)
        found: list[tuple[Stat, str | None]] = []
        missed: list[int] = []
        for pid in pids[:MAX_PROCESSES]:
            stat = read_stat(self._proc, pid)
            if stat is None:
                missed.append(pid)
            else:
                found.append((stat, read_wchan(self._proc, stat)))
        # One that cannot be read has ended in between, or is hidden from us (hidepid, ProtectProc=): then it is still listed.
        hidden = [pid for pid in self._pids(cgroup) if pid in missed] if missed else []
        return found, hidden, cpu_time(self._cgroups, cgroup)

    def _pids(self, cgroup: str) -> list[int]:
        if not cgroup:
            return []
        pids = self._cgroups.processes(cgroup)
        if pids is not None:
            return pids
        # No hierarchy is to be seen (a container without /sys/fs/cgroup): the last resort.
        everyone = [int(folder.name) for folder in self._proc.iterdir() if folder.name.isdigit()]
        return sorted(pid for pid in everyone if contains(cgroup, read(f"{self._proc}/{pid}/cgroup")))


class Titles:
    """The names of processes, learned from their command lines."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._known: dict[tuple[int, int], tuple[bytes, str]] = {}
        self._worker = Worker("titles")

    async def read(self, stats: list[Stat]) -> None:
        """Read the command lines that are new; those that block are left for later."""
        alive = {(stat.pid, stat.started): stat for stat in stats}
        for key in list(self._known):  # a copy: a thread that was given up may still add to it
            if key not in alive:
                del self._known[key]
        wanted = [stat for key, stat in alive.items() if key not in self._known or not self._settled(stat)]
        if not wanted:
            return
        with contextlib.suppress(TimeoutError, BusyError):
            await self._worker.call(lambda: self._learn(wanted), TITLES_LIMIT_S)

    def _settled(self, stat: Stat) -> bool:
        comm, name = self._known[stat.pid, stat.started]
        return comm == stat.comm and (name.startswith("sglang::") or not comm.startswith(TITLE))

    def _learn(self, stats: list[Stat]) -> None:
        """Blocking. Each is kept as soon as it is read, so that one that blocks takes only those after it along."""
        for stat in stats:
            line = read(self._proc / str(stat.pid) / "cmdline", 4096)
            again = read_stat(self._proc, stat.pid)
            if line is not None and again is not None and again.started == stat.started:
                self._known[stat.pid, stat.started] = (stat.comm, title(line, stat.comm))

    def name(self, stat: Stat) -> str:
        """The best name that is known: SGLang's title, the interpreter for Python, else comm."""
        known = self._known.get((stat.pid, stat.started))
        return known[1] if known is not None and self._settled(stat) else _word(stat.comm)


def title(cmdline: bytes, comm: bytes) -> str:
    """The name of a process: "sglang::scheduler_TP0", "python3", or its comm.

    Args:
        cmdline: /proc/PID/cmdline; empty for a zombie.
        comm: at most 15 bytes. For Python it names a thread ("pt_main_thread" with torch), so the interpreter's name is taken.
    """
    first = cmdline.partition(b"\0")[0].rstrip()
    if first.startswith(TITLE):
        return _word(first[:200])
    base = _word(first.rpartition(b"/")[2].partition(b" ")[0])
    return base if _PYTHON.fullmatch(base) else _word(comm)


def _word(name: bytes) -> str:
    text = name.decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def read_stat(proc: Path, pid: int) -> Stat | None:
    """/proc/PID/stat; None if the process is gone or hidden."""
    text = read(f"{proc}/{pid}/stat", 4096)
    if text is None:
        return None
    start, end = text.find(b"("), text.rfind(b")")  # comm may hold brackets and spaces itself
    fields = text[end + 1 :].split()
    try:
        return Stat(
            pid=pid,
            comm=text[start + 1 : end],
            state=fields[0].decode(),
            ppid=int(fields[1]),
            cpu_s=(int(fields[11]) + int(fields[12])) / TICK,
            started=int(fields[19]),
            rss=int(fields[21]) * PAGE,
        )
    except (ValueError, IndexError):
        return None


def read_wchan(proc: Path, stat: Stat) -> str | None:
    """In which function of the kernel a process waits; "0" for one that runs, None where we may not know.

    The kernel writes "0" as well where the reader has no right to trace the process (fs/proc/base.c, proc_pid_wchan).
    """
    text = read(f"{proc}/{stat.pid}/wchan", 128)
    if text is None or (text == b"0" and stat.state != "R"):
        return None
    return _word(text.strip()) or None


def cpu_time(cgroups: Cgroups, cgroup: str) -> float | None:
    """The CPU time of a cgroup so far, with that of its ended processes, in seconds; None where it is not counted."""
    v2 = cgroups.folder(cgroup)
    if v2 is not None and (used := table(read(v2 / "cpu.stat")).get("usage_usec")) is not None:
        return used / 1e6
    v1 = cgroups.folder(cgroup, "cpuacct")
    used = number(v1 / "cpuacct.usage") if v1 is not None else None
    return None if used is None else used / 1e9
