"""Does the server still say the right thing? Judged by its canaries' answers, against the answers it gave before."""

from collections import Counter, deque
from itertools import pairwise
from statistics import median

import msgspec

from watchdog.judge import text
from watchdog.judge.facts.probes import queue_full, refused_us
from watchdog.judge.text import Quality
from watchdog.observation import Probe


class InARow(msgspec.Struct):
    """Answers of one kind in a row: the moments of the first and the last, how many, and what is odd about the last."""

    since: float
    last: float = 0.0
    count: int = 0
    reason: str = ""

    def add(self, t: float, reason: str) -> None:
        """Take in one more."""
        self.last, self.reason = t, reason
        self.count += 1


class Answers:
    """Folds canary answers. What was good in this life or in one before is remembered; the run of bad ones is not."""

    def __init__(self) -> None:
        self.good_ever = 0
        self.begin()

    def begin(self) -> None:
        """A new life has given no answer yet."""
        self.bad: InARow | None = None
        """The present run of bad answers; `bad_grade` is the grade of its first."""
        self.bad_grade = ""
        self.good = 0
        self.good_of: Counter[str] = Counter()
        """Good answers of this life, by canary."""
        self.wrong: dict[str, InARow] = {}
        """The present run of suspicious answers of each canary."""
        self.last_good_at: float | None = None
        self.graded: deque[tuple[float, Quality, str]] = deque(maxlen=20)
        """(t, quality, reason) of the last answers that were plainly good or plainly bad."""
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
            if graded.quality is not Quality.SUSPICIOUS:
                self.graded.append((o.t, graded.quality, graded.reason))
                self.wrong.pop(o.probe, None)
            else:
                self.wrong.setdefault(o.probe, InARow(o.t)).add(o.t, graded.reason)
            if graded.quality is Quality.GOOD:
                self.bad = None
                self.good += 1
                self.good_of[o.probe] += 1
                self.good_ever += 1
                self.last_good_at = o.t
            elif graded.quality in (Quality.DEGENERATE, Quality.EMPTY):
                if self.bad is None:
                    self.bad, self.bad_grade = InARow(o.t), str(graded.quality)
                self.bad.add(o.t, graded.reason)
        elif o.outcome in ("malformed", "reset") or (o.outcome == "status" and not refused_us(o) and not queue_full(o)):
            self.errors.append(o)
        elif o.outcome == "ok":
            self.errors.clear()

    def between_s(self) -> float:
        """The usual time between two of the last graded answers, in seconds; 0 if there are no two."""
        pauses = [b[0] - a[0] for a, b in pairwise(self.graded)]
        return median(pauses) if pauses else 0.0
