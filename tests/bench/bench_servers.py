"""What one more server costs the daemon: `python -m tests.bench.bench_servers` (root, about five minutes).

One daemon with default intervals beside 1, 2 and 8 stand-in servers, all quiet; figures are printed, not asserted.
"""

import os
import statistics
import sys
import time

from tests.bench.bench_daemon import Process, share, told
from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog

COUNTS = (1, 2, 8)
SETTLE_S = 15.0
MEASURE_S = 60.0
LIMIT_S = 240.0
DAEMON = """[daemon]
runtime_dir = "/run/{name}"
"""
TABLE = """[[servers]]
name = "{name}"
unit = "{unit}"
base_url = "http://127.0.0.1:{port}"
"""


def measured(box: Box, servers: list[Server]) -> tuple[float, float, float]:
    """Resident and anonymous memory in MiB, and CPU in percent of a core, of a fresh daemon beside these servers."""
    dog = Watchdog(box, f"wmany{len(servers)}", servers)
    tables = "".join(TABLE.format(name=each.name, unit=each.unit, port=each.port) for each in servers)
    dog.write(DAEMON.format(name=dog.name) + tables)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", dog.unit)
    wait_for(lambda: all(seen["verified"] for seen in dog.ask("status")["servers"]), LIMIT_S, "all servers are verified")
    time.sleep(SETTLE_S)
    process = Process(box, dog.unit)
    cpu = share(process, MEASURE_S)
    figures = process.memory("VmRSS"), process.memory("RssAnon"), cpu
    box.run("systemctl", "stop", dog.unit)
    return figures


def main() -> int:
    """Print all figures."""
    with Box() as box:
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {COMMAND}")
        servers = [Server(f"many{n}", 33100 + n, seconds=1, arguments="--enable-metrics") for n in range(max(COUNTS))]
        for server in servers:
            server.install(box)
        box.run("systemctl", "daemon-reload")
        box.run("systemctl", "start", *(server.unit for server in servers))
        seen = {}
        for count in COUNTS:
            rss, anon, cpu = seen[count] = measured(box, servers[:count])
            told(f"quiet servers: {count}, resident memory", f"{rss:.1f} MiB", "<= 56 MiB for one" if count == 1 else "-")
            told("  of it anonymous", f"{anon:.1f} MiB", "-")
            told(f"  CPU, {MEASURE_S:.0f} s", f"{cpu:.2f} % of a core", "<= 0.3 % for one" if count == 1 else "-")
    slopes = [statistics.linear_regression(COUNTS, [seen[count][part] for count in COUNTS]).slope for part in (0, 2)]
    told("one more server: resident memory", f"{slopes[0]:.2f} MiB", "-")
    told("one more server: CPU", f"{slopes[1]:.3f} % of a core", "-")
    return 0


if __name__ == "__main__":
    sys.exit(main())
