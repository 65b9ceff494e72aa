"""What the daemon costs, and how fast it is, under a private systemd: `python -m tests.bench.bench_daemon` (root, 11 minutes).

Figures are printed with their goals, not asserted: the machine may be busy with other things.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog

QUIET_S = 120.0
SETTLED_S = 330.0
"""A life is watched more closely for its first five minutes."""
FLOOD_S = 30.0
SAMPLES = 40
FATAL = "[2026-01-01 00:00:00] Scheduler hit an exception: Traceback (most recent call last):"
PRINTER = """[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c '{prints}'
TimeoutStopSec=1
"""
DEFAULTS = """[daemon]
runtime_dir = "/run/{name}"
[[servers]]
name = "{name}"
unit = "{unit}"
base_url = "http://127.0.0.1:{port}"
"""


class Process:
    """One process of the box, seen from outside."""

    def __init__(self, box: Box, unit: str) -> None:
        pid1 = int((box.dir / "pid").read_text())
        inside = box.show(unit, "MainPID")
        namespace = Path(f"/proc/{pid1}/ns/pid").readlink()
        self.proc = next(p for p in Path("/proc").iterdir() if p.name.isdigit() and _inside(p, namespace) == inside)

    def cpu_s(self) -> float:
        """CPU time so far, with ended children (evidence, NVML), in seconds."""
        fields = (self.proc / "stat").read_text().rpartition(") ")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def memory(self, name: str) -> float:
        """A line of status, in MiB."""
        line = next(x for x in (self.proc / "status").read_text().splitlines() if x.startswith(f"{name}:"))
        return int(line.split()[1]) / 1024

    def pss(self) -> float:
        """Its proportional share of memory, in MiB."""
        return int((self.proc / "smaps_rollup").read_text().partition("Pss:")[2].split()[0]) / 1024


def _inside(proc: Path, namespace: Path) -> str | None:
    try:
        if (proc / "ns/pid").readlink() != namespace:
            return None
        return (proc / "status").read_text().partition("NSpid:")[2].split("\n")[0].split()[-1]
    except OSError:
        return None


def share(process: Process, seconds: float) -> float:
    """Percent of a core over a while."""
    before, begun = process.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return 100 * (process.cpu_s() - before) / (time.monotonic() - begun)


def told(what: str, figure: str, goal: str) -> None:
    """Print one line."""
    print(f"{what:62} {figure:>18}   goal {goal}", flush=True)


def started(box: Box, dog: Watchdog, server: str, port: int) -> float:
    """Start a daemon with default settings; seconds from its exec to READY=1."""
    dog.write(DEFAULTS.format(name=dog.name, unit=server, port=port))
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", dog.unit)
    begun, ready = (
        int(box.show(dog.unit, name)) for name in ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
    )
    return (ready - begun) / 1e6


def costs(box: Box) -> None:
    """READY, memory and CPU, with all sources on and default intervals."""
    server = Server("quiet", 33001, seconds=2, arguments="--enable-hierarchical-cache --host-pool-mib 8")
    server.install(box)
    dog = Watchdog(box, "wcost", [server])
    ready = started(box, dog, server.unit, server.port)
    told("READY=1 after", f"{ready:.2f} s", "<= 1 s")
    box.run("systemctl", "start", server.unit)
    wait_for(lambda: dog.ask("status")["servers"][0]["verified"], 180, "the server is verified")
    time.sleep(10)
    process = Process(box, dog.unit)
    told("resident memory beside a quiet server", f"{process.memory('VmRSS'):.1f} MiB", "<= 56 MiB")
    early = share(process, QUIET_S)
    told(f"CPU beside a quiet server, {QUIET_S:.0f} s just after its start", f"{early:.2f} % of a core", "-")
    time.sleep(SETTLED_S - QUIET_S)
    told(f"CPU beside a quiet server, {QUIET_S:.0f} s from then on", f"{share(process, QUIET_S):.2f} % of a core", "<= 0.3 %")
    server.fault(box, "log-flood", "lines=500")
    time.sleep(5)
    told(f"CPU at 500 log lines a second, {FLOOD_S:.0f} s", f"{share(process, FLOOD_S):.2f} % of a core", "<= 3 %")
    told("resident memory after that", f"{process.memory('VmRSS'):.1f} MiB", "<= 56 MiB")
    told("  of it anonymous", f"{process.memory('RssAnon'):.1f} MiB", "-")
    told("  its share (PSS)", f"{process.pss():.1f} MiB", "-")
    box.run("systemctl", "stop", dog.unit, server.unit)


def latency(box: Box) -> None:
    """From the moment at which a fatal line is written to the moment at which the intent is dispatched, by journald's stamps."""
    prints = f'sleep 1; echo "{FATAL}"; exec sleep 600'
    box.unit("printer.service", PRINTER.format(prints=prints))
    dog = Watchdog(box, "wlate", [Server("printer", 33002)])
    started(box, dog, "printer.service", 33002)
    for n in range(SAMPLES):
        box.run("systemctl", "restart", "printer.service")
        wait_for(lambda: len(_stamps(box, "SGLANG_WATCHDOG_ACTION=diagnose")) > n, 30, "an intent")  # noqa: B023
    lines = _stamps(box, "_SYSTEMD_UNIT=printer.service", "_TRANSPORT=stdout")
    intents = _stamps(box, "SGLANG_WATCHDOG_ACTION=diagnose")
    took = sorted((b - a) / 1e3 for a, b in zip(lines, intents, strict=True))
    figure = f"{statistics.median(took):.1f} / {took[-1]:.1f} ms"
    told(f"fatal line to dispatched intent, median / worst of {SAMPLES}", figure, "99th percentile <= 100 ms")


def _stamps(box: Box, *match: str) -> list[int]:
    """When journald received the entries that match, in microseconds."""
    out = box.run("journalctl", "-o", "json", "--no-pager", "--output-fields=MESSAGE", *match, check=False).stdout
    return [int(json.loads(line)["__REALTIME_TIMESTAMP"]) for line in out.splitlines()]


def main() -> int:
    """Print all figures."""
    with Box() as box:
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {COMMAND}")
        costs(box)
        latency(box)
    return 0


if __name__ == "__main__":
    sys.exit(main())
