"""Observations a second in replay, and a whole day of a busy server with eight GPUs.

Seconds are seconds of CPU, so that other work on the machine does not count.

Run: python -m tests.bench.bench_replay
"""

import tempfile
import time
from pathlib import Path

from tests.incidents.sim import Setup, Sim
from watchdog.observation import Header, encode
from watchdog.replay import Record, replay, settings_of

HOUR = 3600.0


def write(path: Path, hours: float) -> int:
    """A record of a busy server; how many observations it has."""
    sim = Sim(Setup(rate=1.2), 1)
    sim.run(hours * HOUR)
    header = Header(server="kimi", started="2026-01-14T02:00:00Z", history="mid-life")
    with path.open("wb") as f:
        for x in (header, *sim.out):
            f.write(encode(x) + b"\n")
    return len(sim.out)


def measure(path: Path) -> tuple[int, float]:
    """Observations and CPU seconds of one replay."""
    begin = time.process_time()
    record = Record(path)
    last = list(replay(record, settings_of(record.header)))[-1]
    return last["observations"], time.process_time() - begin


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.jsonl"
        write(path, 24.0)
        observations, seconds = measure(path)
    print(
        f"24 h of a busy server with eight GPUs: {observations} observations in {seconds:.1f} s CPU, "
        f"{observations / seconds:.0f} a second"
    )


if __name__ == "__main__":
    main()
