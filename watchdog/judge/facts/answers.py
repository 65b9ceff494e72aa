"""Folds what canaries were answered: the grades of their texts, runs of bad ones, errors."""

from collections import Counter, deque
from itertools import pairwise
from statistics import median

import msgspec

from watchdog.judge import text
from watchdog.judge.facts.probes import queue_full, refused_us
from watchdog.judge.text import Grade, Quality
from watchdog.observation import Probe


class InARow(msgspec.Struct):
    """Answers in a row of which none was good.

    Attributes:
        since, last: the moments of the first and of the last.
        count: how many; `odd` of them are odd by themselves (the others lack the expected word), `plain` of those plainly bad.
        reason: what is wrong with the last, or with the last that is plainly bad.
        plain_since, grade: the moment and the grade of the first that is plainly bad.
    """

    since: float
    last: float = 0.0
    count: int = 0
    odd: int = 0
    plain: int = 0
    reason: str = ""
    plain_since: float = 0.0
    grade: str = ""

    def add(self, t: float, graded: Grade) -> None:
        """Take in one more."""
        self.last = t
        self.count += 1
        self.odd += not graded.lacks_word
        if graded.quality is not Quality.SUSPICIOUS:
            if not self.plain:
                self.plain_since, self.grade = t, str(graded.quality)
            self.plain += 1
            self.reason = graded.reason
        elif not self.plain:
            self.reason = graded.reason

    @property
    def weight(self) -> int:
        """How much they say: one that is merely odd counts half as much as one that is plainly bad."""
        return self.count + self.plain


class Answers:
    """Folds canary answers. What was good in this life or in one before is remembered; the runs of others are not."""

    def __init__(self) -> None:
        self.good_ever = 0
        self.begin()

    def begin(self) -> None:
        """A new life has given no answer yet."""
        self.run: InARow | None = None
        """The answers since the last good one, of whichever canary."""
        self.good = 0
        self.good_of: Counter[str] = Counter()
        """Good answers of this life, by canary."""
        self.runs: dict[str, InARow] = {}
        """The answers of each canary since its own last good one."""
        self.last_good_at: float | None = None
        self.graded: deque[tuple[float, Quality, str]] = deque(maxlen=20)
        """(t, quality, reason) of the last answers whose words were good, odd or plainly bad by themselves."""
        self.errors: deque[Probe] = deque(maxlen=50)
        """The present run of canaries that got an HTTP error or a malformed body at once."""
        self.last_answer: Probe | None = None
        self.content: deque[tuple[float, bool]] = deque(maxlen=60)
        """(t, whether content came) of answers that ended by themselves: reasoning without content is a parser's fault."""

    def see(self, o: Probe) -> None:
        """Take in a chat or prefix probe of the present life."""
        if o.outcome == "ok" and o.answer is not None:
            self.errors.clear()
            self.last_answer = o
            if o.answer.finish_reason == "stop" and (o.answer.text or o.answer.reasoning):
                self.content.append((o.t, bool((o.answer.text or "").strip()) or o.answer.tool_calls > 0))
            graded = text.grade(o.answer, o.expects)
            if not graded.lacks_word and o.answer.finish_reason != "abort":
                self.graded.append((o.t, graded.quality, graded.reason))
            if graded.quality is Quality.GOOD:
                self.run = None
                self.runs.pop(o.probe, None)
                self.good += 1
                self.good_of[o.probe] += 1
                self.good_ever += 1
                self.last_good_at = o.t
            else:
                self.run = self.run or InARow(o.t)
                for run in (self.run, self.runs.setdefault(o.probe, InARow(o.t))):
                    run.add(o.t, graded)
        elif o.outcome in ("malformed", "reset") or (o.outcome == "status" and not refused_us(o) and not queue_full(o)):
            self.errors.append(o)
        elif o.outcome == "ok":
            self.errors.clear()

    def between_s(self) -> float:
        """The usual time between two of the last graded answers, in seconds; 0 if there are no two."""
        pauses = [b[0] - a[0] for a, b in pairwise(self.graded)]
        return median(pauses) if pauses else 0.0
