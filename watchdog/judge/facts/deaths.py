"""How one life of the server ended, and which of its last lines names the cause."""

from watchdog.judge.facts.kills import BY_KERNEL
from watchdog.sglang.loglines import Line, Mark

# The order says which of several fatal lines names the cause best.
CAUSES = (
    Mark.BAD_ARGUMENTS,
    Mark.PORT_IN_USE,
    Mark.HOST_MEMORY_SHORT,
    Mark.WARMUP_FAILED,
    Mark.OUT_OF_MEMORY,
    Mark.CUDA_ERROR,
    Mark.LEAK_CHECK,
    Mark.WATCHDOG_FIRED,
    Mark.MEMORY_UNBALANCED,
    Mark.HICACHE_TROUBLE,
    Mark.FATAL,
    Mark.TRACEBACK_END,
    Mark.CHILD_DEAD,
    Mark.EXCEPTION,
)


def order(mark: Mark) -> int:
    """The lower, the better a line of this kind names the cause."""
    return CAUSES.index(mark) if mark in CAUSES else len(CAUSES)


class Death:
    """How one life ended.

    Attributes:
        t: when.
        lived_s: from InactiveExitTimestamp to the end; None if unknown.
        ready: whether it had been ready.
        asked: whether a person, systemd or we had asked for it.
        signalled: whether all that asked for it was a SIGTERM, of which systemd knows nothing.
        code: "exited", "killed" or "dumped" with its status, for people.
        mark: the fatal line that came last, and its text; None where there was none.
        inv: which life it was.
    """

    def __init__(
        self,
        *,
        t: float,
        lived_s: float | None,
        ready: bool,
        asked: bool,
        signalled: bool = False,
        code: str,
        mark: Mark | None,
        text: str,
        inv: str | None = None,
    ) -> None:
        self.t = t
        self.lived_s = lived_s
        self.ready = ready
        self.asked = asked
        self.signalled = signalled
        self.code = code
        self.mark = mark
        self.text = text
        self.inv = inv
        self.killed: str | None = BY_KERNEL if code == "oom-kill" else None
        """How the kernel's OOM killer had to do with it, as a phrase; None where nothing says so."""

    def blame(self, line: Line) -> None:
        """A line that came late may name the cause better."""
        if self.mark is None or order(line.mark) < order(self.mark):
            self.mark, self.text = line.mark, line.message

    @property
    def signature(self) -> str:
        """Equal for two deaths of the same cause."""
        if self.code in ("oom-kill", "start timeout"):
            return self.code
        return str(self.mark) if self.mark else self.code
