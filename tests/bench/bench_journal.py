"""Lines a second of our journal reader, with and without the meaning of each line, against journalctl on the same journal.

Seconds are seconds of CPU, so that other work on the machine does not count.

Run as root: python -m tests.bench.bench_journal. It boots a private systemd, fills its journal, and reads it there.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

from tests.box.box import Box
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Log, Observation
from watchdog.observe import journal
from watchdog.observe.source import Target
from watchdog.sglang.loglines import classify

ROOT = Path(__file__).resolve().parents[2]
UNIT = "flood.service"
LINES = 200_000
ROUNDS = 5

# In systemd 252 LogRateLimitIntervalSec=0 does not lift the limit; a burst that is never reached does.
FLOOD = f"""[Service]
Type=oneshot
ExecStart={sys.executable} {__file__} print
LogRateLimitIntervalSec=1
LogRateLimitBurst=10000000
"""


def print_lines() -> None:
    """The mix of a busy server: batch lines of the scheduler, access lines of the API."""
    for i in range(LINES // 4):
        stamp = f"2026-01-14 02:{i // 60 % 60:02d}:{i % 60:02d}"
        print(
            f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {i % 4096}, #cached-token: 0, full token usage: 0.01, "
            f"#running-req: 3, #queue-req: 0, cuda graph: False, input throughput (token/s): {i % 900}.25"
        )
        for rank in (0, 1):
            print(
                f"[{stamp} TP{rank}] Decode batch, #running-req: 3, #full token: {i}, full token usage: 0.02, "
                f"cuda graph: True, gen throughput (token/s): {i % 300}.31, #queue-req: 0"
            )
        print(f'[{stamp}] INFO:     127.0.0.1:{40000 + i % 9000} - "POST /v1/chat/completions HTTP/1.1" 200 OK')


def read_all(what: str) -> tuple[int, float]:
    """Read the whole journal of the unit: lines, and seconds that it took.

    Args:
        what: "read" hands every line on; "classify" finds out what each means as well; "behind" reads as the source does when it
            is far behind: lines that come in bulk are told apart, and all but one a second left out.
    """
    clock = BootClock()
    source = journal.JournalSource(Target(config.Server(name="flood", unit=UNIT)), clock)
    if what == "behind":
        source._began = -1e9
    count = 0

    def emit(observation: Observation) -> None:
        nonlocal count
        count += 1
        if what != "read" and isinstance(observation, Log):
            classify(observation.message)

    began = time.process_time()
    with source._reader.opened():
        first = source._reader.first_of(journal.unit_matches(UNIT))
        assert first is not None
        source._reader.go(first)
        if what == "behind":
            written = source._reader.written
            source._reader.written = lambda: written() - 1000  # type: ignore[method-assign]
        while source._read(emit):
            pass
    return count + source.dropped, time.process_time() - began


def journalctl() -> float:
    """Seconds that journalctl takes to print the same."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["journalctl", "-u", UNIT, "-o", "cat"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure() -> None:
    """Inside the box: each a few times in turn; the best of each counts."""
    ways = ("read", "classify", "behind")
    rounds = [(journalctl(), *(read_all(way) for way in ways)) for _ in range(ROUNDS)]
    lines = rounds[0][1][0]
    theirs = min(r[0] for r in rounds)
    print(f"journal of {lines} lines")
    print(f"journalctl -u {UNIT} -o cat   {lines / theirs:9.0f} lines/s")
    for i, way in enumerate(ways, 1):
        ours = min(r[i][1] for r in rounds)
        print(f"{way:34} {lines / ours:9.0f} lines/s   ratio {theirs / ours:.2f}")


def main() -> None:
    """Boot, fill, measure."""
    with Box() as box:
        box.unit(UNIT, FLOOD)
        box.run("systemctl", "start", UNIT, timeout=300)
        box.run("journalctl", "--sync")
        print(box.run("sh", "-c", f"cd {ROOT} && {sys.executable} -m tests.bench.bench_journal measure", timeout=300).stdout)


if __name__ == "__main__":
    {"print": print_lines, "measure": measure}.get(sys.argv[-1], main)()
