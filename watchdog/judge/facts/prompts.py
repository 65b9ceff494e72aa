"""How long users wait for their first token, by the size of the prompt.

SGLang has one histogram of times to the first token and another one of prompt tokens, and no table of both (0.4.6 to 0.5.23).
But between two scrapes few requests get their first token while nothing waits. What was computed of prompts since the last
first token, divided by their number, is then the size to which the mean of their times belongs. Only what was computed
counts: what the cache had takes no time. Up to 0.5.21 a request that does not stream has its first 50 tokens counted as the
first (managers/tokenizer_manager.py; DEFAULT_FORCE_STREAM_INTERVAL).
"""

import statistics
from collections import deque
from collections.abc import Mapping

from watchdog.judge.facts.recent import EACH_S
from watchdog.judge.facts.speed import FEW, LEARN_COUNT, WINDOW_S
from watchdog.observation import Metrics
from watchdog.sglang.loglines import Line

WAITS = "time_to_first_token_seconds"
COMPUTED = "realtime_tokens_total.prefill_compute"
"""Counted at each prefill, from 0.5.7 on; before, the prefill lines tell the same."""
TOGETHER = 3
"""More first tokens between two scrapes mean that requests wait for each other."""
GAP_S = 60.0
"""Scrapes further apart than this say nothing together."""


class Prompts:
    """Folds scrapes and prefill lines of one life into (size, time to the first token)."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life learns anew."""
        self.first: dict[int, list[float]] = {}
        """The first figures of this life, in seconds, by size."""
        self.recent: deque[tuple[float, int, float]] = deque()
        """(when, size, seconds): a size is the power of two at or below the tokens that were computed."""
        self._before: Metrics | None = None
        self._lines = 0.0
        self._lines_before = 0.0
        self._tokens = 0.0
        self._crowded = False

    def see_prefill(self, line: Line) -> None:
        """Take in a prefill line."""
        self._lines += line.fields.get("new_token", 0.0)

    def see_metrics(self, o: Metrics) -> None:
        """Take in a good scrape."""
        before, self._before = self._before, o
        computed, self._lines_before = self._lines - self._lines_before, self._lines
        if before is None or not 0 < o.t - before.t <= GAP_S:
            self._tokens, self._crowded = 0.0, False
            return
        if COMPUTED in o.values:
            computed = _grew(before.values, o.values, COMPUTED)
        count = _grew(before.values, o.values, f"{WAITS}_count")
        seconds = _grew(before.values, o.values, f"{WAITS}_sum")
        waiting = o.values.get("num_queue_reqs", 0.0) > 0
        self._tokens += max(0.0, computed)
        self._crowded = self._crowded or waiting
        if count <= 0:
            return
        if not self._crowded and count <= TOGETHER and self._tokens >= count and seconds > 0:
            self._add(o.t, self._tokens / count, seconds / count)
        self._tokens, self._crowded = 0.0, waiting

    def _add(self, t: float, tokens: float, wait: float) -> None:
        size = 1 << (int(tokens).bit_length() - 1)
        first = self.first.setdefault(size, [])
        if len(first) < LEARN_COUNT:
            first.append(wait)
        if self.recent and t - self.recent[-1][0] < EACH_S:
            return  # where it is scraped this often, one of them tells as much
        self.recent.append((t, size, wait))
        while self.recent[0][0] < t - WINDOW_S:
            self.recent.popleft()

    def usual(self) -> dict[int, float]:
        """Usual seconds by size in this life, where enough was seen."""
        return {size: statistics.median(waits) for size, waits in self.first.items() if len(waits) >= LEARN_COUNT}

    def now(self, t: float, usual: Mapping[int, float]) -> list[tuple[int, float]]:
        """(size, seconds) of the last minutes, for sizes that have a usual time; none without enough over half of them."""
        recent = [(at, size, wait) for at, size, wait in self.recent if at > t - WINDOW_S and size in usual]
        if len(recent) < FEW or recent[-1][0] - recent[0][0] < WINDOW_S / 2:
            return []
        return [(size, wait) for _, size, wait in recent]


def _grew(before: Mapping[str, float], now: Mapping[str, float], name: str) -> float:
    return now.get(name, 0.0) - before.get(name, 0.0)
