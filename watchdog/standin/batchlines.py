"""The batch lines of the scheduler, and the gauges that are written with them."""

import time

from watchdog.standin.board import Board
from watchdog.standin.log import Log
from watchdog.standin.options import Options


class BatchLines:
    """Prints a line for each prefill pass and for every 40th decode step (--decode-log-interval), worded as in the version."""

    def __init__(self, options: Options, log: Log, board: Board) -> None:
        self._options = options
        self._log = log
        self._board = board
        self._steps = 0
        self._tokens = 0
        self._sequences = 0
        self._last_decode = self._last_prefill = time.monotonic()

    def prefill(self, *, sequences: int, new: int, cached: int, running: int, queued: int, pending: int, used: int) -> None:
        """One prefill pass begins."""
        now = time.monotonic()
        speed = f"input throughput (token/s): {new / max(now - self._last_prefill, 1e-3):.2f}"
        self._last_prefill = now
        stop = "," if self._options.since(0, 5, 4) else "."
        text = (
            f"Prefill batch{stop} #new-seq: {sequences}, #new-token: {new}, #cached-token: {cached}, "
            f"token usage: {self._usage(used):.2f}, #running-req: {running}, #queue-req: {queued}, "
        )
        if self._options.since(0, 5, 11):
            text += f"#pending-token: {pending}, cuda graph: False, {speed}"
        elif self._options.since(0, 5, 10):
            text += f"cuda graph: False, {speed}"
        elif self._options.since(0, 5, 9):
            text += f"{speed}, cuda graph: False"
        self._log.line(text)
        self._gauges(running, queued, used)
        self._board["cache_hit_rate"] = cached / max(cached + new, 1)

    def decoded(self, running: int, tokens: int, used: int, queued: int) -> None:
        """One decode step is done."""
        self._steps += 1
        self._tokens += tokens
        self._sequences += running
        if self._steps < self._options.server["decode_log_interval"]:
            return
        now = time.monotonic()
        throughput = self._tokens / max(now - self._last_decode, 1e-3)
        length = self._tokens / max(self._sequences, 1)
        self._steps = self._tokens = self._sequences = 0
        self._last_decode = now
        stop = "," if self._options.since(0, 5, 4) else "."
        text = f"Decode batch{stop} #running-req: {running}, #token: {used}, token usage: {self._usage(used):.2f}, "
        if self._options.speculates:
            rate = self._accept_rate(length)
            text += f"accept len: {length:.2f}, "
            text += f"accept rate: {rate:.2f}, " if self._options.since(0, 5, 3) else ""
            self._board["accept_len"], self._board["accept_rate"] = length, rate
        text += f"cuda graph: True, gen throughput (token/s): {throughput:.2f}, #queue-req: {queued}"
        self._log.line(text if self._options.since(0, 5, 9) else f"{text}, ")
        self._gauges(running, queued, used)
        self._board["gen_throughput"] = throughput

    def idle(self, running: int, queued: int, used: int) -> None:
        """The scheduler has had nothing to do for a while."""
        self._gauges(running, queued, used)
        self._board["gen_throughput"] = 0.0

    def _accept_rate(self, length: float) -> float:
        """Up to 0.5.10 with the bonus token, later without (surface of the metric changed in 0.5.11)."""
        drafts = int(self._options.server["speculative_num_draft_tokens"])
        if self._options.since(0, 5, 11):
            return max(length - 1, 0.0) / max(drafts - 1, 1)
        return length / max(drafts, 1)

    def _usage(self, used: int) -> float:
        return used / self._options.kv_tokens

    def _gauges(self, running: int, queued: int, used: int) -> None:
        self._board["running"], self._board["queued"], self._board["used_tokens"] = running, queued, used
