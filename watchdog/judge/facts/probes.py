"""What our own probes of this life came to."""

from collections import deque

from watchdog.observation import Probe
from watchdog.wording import span

CANARIES = ("chat", "prefix")
GENERATING = ("health", *CANARIES)
AT_ONCE_S = 1.0
"""An answer that comes sooner was not waited for: nobody asked the engine."""


class Attempt:
    """One probe that was really made: when it began and ended, and how."""

    __slots__ = ("began", "connected", "ended", "failed", "probe")

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.ended = probe.t
        self.began = probe.t - (probe.total_s or 0.0)
        self.failed = failed(probe)
        self.connected = probe.outcome not in ("refused", "connect_timeout")
        """Whether it came to the server's door at all: one that did not says nothing of what the server does with requests."""


def failed(o: Probe) -> bool:
    """Whether the probe says that the server did not serve it. A refusal of our request says nothing of the server."""
    if o.outcome in ("refused", "connect_timeout", "timeout", "reset"):
        return True
    return o.outcome == "status" and (o.status or 0) >= 500 and not queue_full(o) and not foreign(o)


def queue_full(o: Probe) -> bool:
    """Whether the server said that its queue is full: it is busy, not ill (SGLang tokenizer_manager.py, 503).

    In answer to a streamed request it says so in an event after a 200 (0.5.23): then the words are in `detail` and not in `body`.
    """
    said = f"{o.body or ''} {o.detail or ''}".lower()
    return o.status == 503 and o.probe in CANARIES and "queue is full" in said


def foreign(o: Probe) -> bool:
    """Whether somebody else answered at once in the server's place, as a proxy does: SGLang has no gateway errors and no HTML."""
    if o.outcome != "status" or (o.status or 0) < 500 or (o.total_s or 0.0) >= AT_ONCE_S:
        return False
    return o.status in (502, 504) or (o.body or "").lstrip().startswith("<")


def refused_us(o: Probe) -> bool:
    """Whether somebody refused the request for what it is (401, 403, 404 …), or in the server's place."""
    return o.outcome == "status" and o.status is not None and (300 <= o.status < 500 or foreign(o))


class Probes:
    """The attempts of this life, by kind of probe. Skipped probes prove nothing and are left out."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life begins, or what failed until now is not to count (we did not run ourselves)."""
        self.last: dict[str, Attempt] = {}
        self.last_ok: dict[str, Attempt] = {}
        self.attempts: deque[Attempt] = deque(maxlen=200)
        self.queue_full_at: float | None = None
        self.queue_full_since: float | None = None
        """Since when each canary has been told so."""
        self.first_failed: dict[str, Attempt] = {}
        """The first failure of the present run of failures, by probe."""

    def see(self, o: Probe) -> None:
        """Take in one probe of the present life."""
        if o.outcome == "skipped":
            return
        attempt = Attempt(o)
        self.last[o.probe] = attempt
        self.attempts.append(attempt)
        if queue_full(o):
            self.queue_full_at = o.t
            self.queue_full_since = o.t if self.queue_full_since is None else self.queue_full_since
        elif o.probe in CANARIES:
            self.queue_full_since = None
        if attempt.failed:
            self.first_failed.setdefault(o.probe, attempt)
        else:
            self.first_failed.pop(o.probe, None)
            if o.outcome == "ok":
                self.last_ok[o.probe] = attempt

    def failures_since(self, t: float, probes: tuple[str, ...] = GENERATING) -> list[Attempt]:
        """The failed attempts that ended after `t` and after the last good one of their kind, oldest first."""
        runs = [self.first_failed[name].ended for name in probes if name in self.first_failed]
        if not runs:
            return []
        start = max(t, min(runs) - 1e-9)
        return [a for a in self.attempts if a.failed and a.ended > start and a.probe.probe in probes and not self._ok_after(a)]

    def _ok_after(self, a: Attempt) -> bool:
        good = self.last_ok.get(a.probe.probe)
        return good is not None and good.ended >= a.ended

    def last_answer(self, probes: tuple[str, ...] = GENERATING) -> float | None:
        """When one of these probes was last answered well."""
        return max((a.ended for name, a in self.last_ok.items() if name in probes), default=None)


def said(attempts: list[Attempt]) -> list[str]:
    """Each failed attempt as a phrase, equal ones counted."""
    counts: dict[str, int] = {}
    for a in attempts:
        o = a.probe
        if o.outcome == "status":
            word = (
                f"{o.probe} gave {o.status} {'at once' if (o.total_s or 0.0) < 1 else f'after {span(round(o.total_s or 0.0))}'}"
            )
        elif o.outcome in ("timeout", "connect_timeout"):
            word = f"{o.probe} had no answer within {span(o.limit_s or o.total_s or 0)}"
        else:
            word = f"{o.probe} was {o.outcome}"
        counts[word] = counts.get(word, 0) + 1
    return [word if n == 1 else f"{word} ({n} times)" for word, n in counts.items()]
