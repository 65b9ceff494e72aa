"""What a log line can mean (`Mark`), and what is known of one (`Line`)."""

from enum import StrEnum

import msgspec


class Mark(StrEnum):
    """What a log line means. One line has at most one mark."""

    # start-up, in the order of a start
    ARGS = "args"
    INIT_BEGIN = "init-begin"
    WEIGHTS_BEGIN = "weights-begin"
    WEIGHTS_PROGRESS = "weights-progress"
    WEIGHTS_END = "weights-end"
    KV_CACHE = "kv-cache"
    MEMORY_POOL = "memory-pool"
    GRAPHS_BEGIN = "graphs-begin"
    GRAPHS_PROGRESS = "graphs-progress"
    GRAPHS_END = "graphs-end"
    TOKENS_TOTAL = "tokens-total"
    HOST_POOL = "host-pool"
    HOST_POOL_DONE = "host-pool-done"
    RANKS_UP = "ranks-up"
    HTTP_UP = "http-up"
    WARMUP = "warmup"
    READY = "ready"
    STARTING = "starting"
    """Any other line that only a start-up prints: it moves, no more."""
    # work
    PREFILL = "prefill"
    DECODE = "decode"
    ACCESS = "access"
    RETRACT = "retract"
    # trouble
    HEALTH_FAILED = "health-failed"
    HEALTH_DRAINING = "health-draining"
    DUMP = "dump"
    WATCHDOG_FIRED = "watchdog-fired"
    WATCHDOG_SOFT = "watchdog-soft"
    EXCEPTION = "exception"
    TRACEBACK_END = "traceback-end"
    CHILD_DEAD = "child-dead"
    SIGQUIT = "sigquit"
    DYING = "dying"
    OUT_OF_MEMORY = "out-of-memory"
    HOST_MEMORY_SHORT = "host-memory-short"
    NO_SPACE = "no-space"
    PORT_IN_USE = "port-in-use"
    BAD_ARGUMENTS = "bad-arguments"
    CUDA_ERROR = "cuda-error"
    WARMUP_FAILED = "warmup-failed"
    NAN = "nan"
    LEAK_CHECK = "leak-check"
    MEMORY_UNBALANCED = "memory-unbalanced"
    HICACHE_TROUBLE = "hicache-trouble"
    ABORTED = "aborted"
    # end of life
    SIGTERM = "sigterm"
    DRAINING = "draining"
    SHUTDOWN = "shutdown"
    FATAL = "fatal"
    """A line after which the server cannot live, that has no mark of its own."""


PREFILL, DECODE, ACCESS = WORK = (Mark.PREFILL, Mark.DECODE, Mark.ACCESS)
"""What a busy server prints all the time, by names of their own: Python 3.11 takes as long for `Mark.X` as for a call."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one log line means.

    Attributes:
        mark: the meaning.
        rank: "TP0", "DP1 TP1" … as the line's prefix has it; None for the main process, the detokenizer and TP1 schedulers.
        fields: numbers of the line under canonical names (see `loglines.classify`).
        text: words of the line under canonical names: "error", "path", "method", "model" ….
        fatal: True where no server survives the event that the line tells.
        message: the line's text without prefix and colours, at most 500 characters.
    """

    mark: Mark
    rank: str | None = None
    fields: dict[str, float] = {}
    text: dict[str, str] = {}
    fatal: bool = False
    message: str = ""
