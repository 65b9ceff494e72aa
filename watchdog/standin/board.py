"""Numbers that the scheduler writes and the parent shows, in memory that both share.

The real server keeps them in files (prometheus_client's multiprocess mode): either way they stay as they were when the writer
hangs or dies.
"""

import mmap

NUMBERS = (
    "running",
    "queued",
    "used_tokens",
    "gen_throughput",
    "cache_hit_rate",
    "accept_len",
    "accept_rate",
    "idle_seconds",
    "prefill_tokens",
    "prefill_cached",
    "decode_tokens",
    "prefill_busy_s",
    "host_used",
    "evicted",
    "load_back",
    "backup",
    "retracted",
    "paused",
    "prefill_passes",
    "decode_passes",
    "queue_seconds",
    "queue_count",
    "evictable",
)


class Board:
    """A float for each of NUMBERS. To be made before the processes that share it are forked."""

    def __init__(self) -> None:
        self._values = memoryview(mmap.mmap(-1, 8 * len(NUMBERS))).cast("d")
        self._place = {name: place for place, name in enumerate(NUMBERS)}

    def __getitem__(self, name: str) -> float:
        return float(self._values[self._place[name]])

    def __setitem__(self, name: str, value: float) -> None:
        self._values[self._place[name]] = value

    def add(self, name: str, value: float) -> None:
        """Count on; only the scheduler writes, so that nothing is lost."""
        self[name] = self[name] + value
