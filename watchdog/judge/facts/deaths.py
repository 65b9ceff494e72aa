"""How the lives of the server ended, and which of their last lines names the cause."""

from collections import deque
from collections.abc import Sequence

import msgspec

from watchdog.judge.facts.kills import BY_KERNEL
from watchdog.sglang.loglines import Line, Mark

LAST_LINES_S = 3.0
"""systemd tells of an end at once; the last lines, which name the cause, come out of the journal a moment later."""
KEPT = 200
"""So many ends are known one by one, those before them by their number: more than the fastest loop has in `LAST_LINES_S`."""
DAY_S = 86400.0
TEXT = 500
"""So much of a last line is kept for the next daemon, in characters."""

# The order says which of several fatal lines names the cause best.
CAUSES = (
    Mark.BAD_ARGUMENTS,
    Mark.PORT_IN_USE,
    Mark.HOST_MEMORY_SHORT,
    Mark.NO_SPACE,
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

SIGNALS = {2: "INT", 3: "QUIT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV", 13: "PIPE", 15: "TERM"}
"""The numbers of Linux (signal(7)); a judge has nothing to do with the machine that it runs on."""


def order(mark: Mark) -> int:
    """The lower, the better a line of this kind names the cause."""
    return CAUSES.index(mark) if mark in CAUSES else len(CAUSES)


def ending(code: str) -> str:
    """How a process ended, for people: "killed by SIGKILL", not "killed with status 9"."""
    how, _, status = code.partition(" with status ")
    if how not in ("killed", "dumped") or not status.isdecimal():
        return code
    name = SIGNALS.get(int(status))
    return f"killed by {f'SIG{name}' if name else f'signal {status}'}{' with a core dump' if how == 'dumped' else ''}"


def raised(line: Line) -> bool:
    """Whether it is the last line of a traceback that may have ended a process."""
    return line.mark in CAUSES and "error" in line.text


class Death:
    """How one life ended.

    Attributes:
        t: when.
        lived_s: from InactiveExitTimestamp to the end; None if unknown.
        ready: whether it had been ready.
        served_s: from its readiness to the end; None if it never was ready, or since when is unknown.
        asked: whether a person, systemd or we had asked for it.
        signalled: whether all that asked for it was a SIGTERM, of which systemd knows nothing.
        code: "exited", "killed" or "dumped" with its status, for people.
        mark: the fatal line that came last, and its text; None where there was none.
        inv: which life it was.
        unseen: how many lives systemd says that it started between this one and the one seen before it.
        before: how many equal early deaths came right before it that are not kept one by one.
        first: when the first of those was; its own moment without any.
        recalled: whether the daemon before us saw it: what has come of the unit since then is not known.
    """

    def __init__(
        self,
        *,
        t: float,
        lived_s: float | None,
        ready: bool,
        served_s: float | None = None,
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
        self.served_s = served_s
        self.asked = asked
        self.signalled = signalled
        self.code = code
        self.mark = mark
        self.text = text
        self.inv = inv
        self.killed: str | None = BY_KERNEL if code == "oom-kill" else None
        """How the kernel's OOM killer had to do with it, as a phrase; None where nothing says so."""
        self.unseen = 0
        self.before = 0
        self.first = t
        self.recalled = False

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

    def resembles(self, other: "Death") -> bool:
        """Whether both have one cause. Last lines can be lost; how a process ended by itself still says the same."""
        if self.signature == other.signature:
            return True
        return self.code == other.code and self.code.startswith("exited") and None in (self.mark, other.mark)

    @property
    def brief(self) -> bool:
        """Whether the life was ready, and served for a shorter time than its start had taken."""
        return self.ready and self.served_s is not None and self.lived_s is not None and 2 * self.served_s < self.lived_s

    @property
    def early(self) -> bool:
        """Whether the life was never ready, or only briefly, and nobody ended it."""
        return not self.asked and (not self.ready or self.brief)


class Kept(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One `Death`, as it is written down for the next daemon. `mark` is a word there: another version may not know it."""

    t: float
    first: float
    code: str
    asked: bool
    ready: bool
    signalled: bool = False
    lived_s: float | None = None
    served_s: float | None = None
    mark: str | None = None
    text: str = ""
    inv: str | None = None
    killed: str | None = None
    unseen: int = 0
    before: int = 0


class Ends(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The ends of the last day, for the daemon that comes after us. Moments are on the daemon's clock.

    Attributes:
        deaths: one by one, the newest last.
        minutes: how many nobody asked for, minute by minute: (its first end, how many).
        over_at: all deaths until this moment were made good by a life that was well; None where none was.
    """

    deaths: list[Kept] = []
    minutes: list[tuple[float, int]] = []
    over_at: float | None = None

    def moments(self) -> list[float]:
        """All moments."""
        return [t for d in self.deaths for t in (d.t, d.first)] + [t for t, _ in self.minutes] + [self.over_at or 0.0]

    def shift(self, seconds: float) -> None:
        """Carry all moments over to another clock, on which they are `seconds` later."""
        for d in self.deaths:
            d.t, d.first = d.t + seconds, d.first + seconds
        self.minutes = [(t + seconds, n) for t, n in self.minutes]
        if self.over_at is not None:
            self.over_at += seconds


class Deaths(deque[Death]):
    """The ends of earlier lives, the newest last; those that are not kept any more are counted.

    What the daemon before us saw is among them: it counts, but it does not say how the present state of a unit came about.
    """

    def __init__(self) -> None:
        super().__init__(maxlen=KEPT)
        self._minutes: deque[tuple[float, int]] = deque()
        """How many nobody asked for, minute by minute: (its first end, how many)."""

    def add(self, death: Death, unseen: int = 0) -> None:
        """One more life has ended; `unseen` others before it were not seen one by one."""
        death.unseen = unseen
        if len(self) == KEPT and self[0].early and self[1].early and self[1].resembles(self[0]):
            self[1].before, self[1].first = self[0].before + 1 + self[1].unseen, self[0].first
        self.append(death)
        n = unseen if death.asked else unseen + 1
        if self._minutes and death.t - self._minutes[-1][0] < 60.0:
            first, before = self._minutes.pop()
            self._minutes.append((first, before + n))
        elif n:
            self._minutes.append((death.t, n))
        while self._minutes and death.t - self._minutes[0][0] >= DAY_S:
            self._minutes.popleft()

    def clear(self) -> None:
        """Forget them all."""
        super().clear()
        self._minutes.clear()

    def of(self, inv: str | None) -> Death | None:
        """The newest death, if it was that of the life `inv`."""
        return self[-1] if self and self[-1].inv == inv else None

    def told(self, inv: str | None) -> Death | None:
        """The death that tells how a unit came down whose last life is `inv`; None where nobody saw it.

        Of one that the daemon before us saw, a person may have stopped what systemd would have started again. So it tells only
        that a stop was asked for.
        """
        last = self[-1] if self else None
        return None if last is not None and last.recalled and not (last.asked and last.inv == inv) else last

    def asked(self, inv: str | None) -> bool:
        """Whether the unit, whose last life is `inv`, came down because somebody asked for it."""
        death = self.told(inv)
        return death is not None and death.asked

    def keep(self, now: float) -> Ends:
        """Those of the last day, to be written down."""
        deaths = [
            Kept(
                t=d.t,
                first=d.first,
                code=d.code,
                asked=d.asked,
                ready=d.ready,
                signalled=d.signalled,
                lived_s=d.lived_s,
                served_s=d.served_s,
                mark=d.mark,
                text=d.text[:TEXT],
                inv=d.inv,
                killed=d.killed,
                unseen=d.unseen,
                before=d.before,
            )
            for d in self
            if now - d.t < DAY_S
        ]
        return Ends(deaths=deaths, minutes=[(t, n) for t, n in self._minutes if now - t < DAY_S])

    def recall(self, ends: Ends) -> None:
        """Take up what the daemon before us saw; what was seen since comes after it."""
        own, seen = list(self), {d.inv for d in self}
        super().clear()
        self.extend([*(_recalled(k) for k in ends.deaths if k.inv not in seen), *own])
        self._minutes = deque(sorted([*ends.minutes, *self._minutes]))

    def in_a_day(self, now: float) -> int:
        """How many nobody had asked for within the last 24 h."""
        return sum(n for t, n in self._minutes if now - t < DAY_S)

    def early(self, until: Death | None = None) -> list[Death]:
        """The early deaths since a life last served for longer than its start had taken, however that one ended.

        Args:
            until: as it was when this one had ended, whatever came after it.
        """
        out: list[Death] = []
        for d in self:
            if d.early:
                out.append(d)
            elif d.ready and not d.brief:
                out.clear()
            if d is until:
                break
        return out


def _recalled(k: Kept) -> Death:
    mark = Mark(k.mark) if k.mark in _MARKS else None
    death = Death(
        t=k.t,
        lived_s=k.lived_s,
        ready=k.ready,
        served_s=k.served_s,
        asked=k.asked,
        signalled=k.signalled,
        code=k.code,
        mark=mark,
        text=k.text,
        inv=k.inv,
    )
    death.killed, death.unseen, death.before, death.first, death.recalled = k.killed, k.unseen, k.before, k.first, True
    return death


_MARKS = frozenset(Mark)


def alike(run: Sequence[Death]) -> list[Death]:
    """The last of these deaths, as far back as they have one cause."""
    same: list[Death] = []
    told: Death | None = None
    for d in reversed(run):
        if told is not None and not d.resembles(told):
            break
        if told is None or told.mark is None:
            told = d  # where the newest have lost their last lines, those before them say what the cause is
        same.append(d)
    return same[::-1]


def count(same: Sequence[Death]) -> int:
    """How many lives that was in a row, with those that were not seen or are not kept one by one."""
    return len(same) + same[0].before + sum(d.unseen for d in same[1:]) if same else 0
