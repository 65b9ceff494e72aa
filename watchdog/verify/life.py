"""What the journal says of the present life of the unit, folded for the checks. Pure."""

from typing import Any

import msgspec

from watchdog.observation import Log
from watchdog.sglang import arguments
from watchdog.sglang.hostpool import Kv, kv_of
from watchdog.sglang.loglines import Line, Mark, classify

TROUBLE = {
    Mark.NAN: "not-a-number in the computation",
    Mark.OUT_OF_MEMORY: "out of memory",
    Mark.HOST_MEMORY_SHORT: "host memory is short",
    Mark.NO_SPACE: "no space is left in /dev/shm or on a disk",
    Mark.MEMORY_UNBALANCED: "GPU memory is unbalanced",
    Mark.HICACHE_TROUBLE: "the hierarchical cache has trouble",
    Mark.WARMUP_FAILED: "the warm-up failed",
    Mark.LEAK_CHECK: "the KV cache's own leak check failed",
    Mark.WATCHDOG_SOFT: "SGLang's own watchdog spoke up",
    Mark.EXCEPTION: "an exception",
}
SAID = 160
MOST = 20


class Pool(msgspec.Struct, frozen=True):
    """One line that announces a host pool."""

    rank: str | None
    size: float


class Life(msgspec.Struct, kw_only=True):
    """What was read.

    Attributes:
        lines: how many lines of the server.
        ready: whether its readiness line was seen.
        kv: the target model's KV cache, one for each rank that told of it.
        draft: the draft model's, likewise (the second line of a rank, where there is speculation).
        pools: the announced host pools.
        ratio: what `HiCache auto-sizing` chose.
        context: tokens of the longest prompt with its answer, as the engine has it.
        args: the launch arguments as the server logged them.
        fatal: lines after which no server lives.
        trouble: other lines that tell of trouble: what, and the first line of each sort.
        accepted: accept length of the newest decode lines; None where no decode line was seen.
        decodes: decode lines, and how many of them had an accept length.
        dropped: messages that journald says it dropped.
    """

    lines: int = 0
    ready: bool = False
    kv: dict[str, Kv] = {}
    draft: dict[str, Kv] = {}
    pools: list[Pool] = []
    ratio: float | None = None
    context: int | None = None
    args: dict[str, Any] = {}
    fatal: list[str] = []
    trouble: dict[str, str] = {}
    accepted: float | None = None
    decodes: int = 0
    accepting: int = 0
    dropped: int = 0

    def see(self, log: Log) -> None:
        """Take in one line of this life."""
        self.dropped += log.dropped or 0
        if log.origin != "server":
            return
        self.lines += 1
        line = classify(log.message)
        if line is not None:
            self._line(line, log.message)

    def _line(self, line: Line, message: str) -> None:
        mark = line.mark
        if line.fatal and len(self.fatal) < MOST:
            self.fatal.append(line.message[:SAID])
        elif mark in TROUBLE and len(self.trouble) < MOST:
            self.trouble.setdefault(TROUBLE[mark], line.message[:SAID])
        if mark is Mark.READY:
            self.ready = True
        elif mark is Mark.KV_CACHE:
            self._kv(line)
        elif mark is Mark.HOST_POOL and "bytes" in line.fields:
            self.pools.append(Pool(line.rank, line.fields["bytes"]))
        elif mark is Mark.TOKENS_TOTAL and "context_len" in line.fields:
            self.context = int(line.fields["context_len"])
        elif mark is Mark.ARGS:
            self.args = self.args or arguments.parse_server_args_line(message)
        elif mark is Mark.DECODE:
            self.decodes += 1
            if "accept_len" in line.fields:
                self.accepting += 1
                self.accepted = line.fields["accept_len"]
        elif "ratio" in line.fields and line.message.startswith("HiCache auto-sizing"):
            self.ratio = line.fields["ratio"]

    def _kv(self, line: Line) -> None:
        found = kv_of(line.fields)
        rank = line.rank or "-"
        if found is not None and rank not in self.kv:
            self.kv[rank] = found
        elif found is not None:
            self.draft.setdefault(rank, found)
