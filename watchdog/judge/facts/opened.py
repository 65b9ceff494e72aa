"""Requests that are open in the HTTP server: it goes on counting them while the engine, which counts its own, is silent."""

from collections import deque

from watchdog.judge.facts.probes import GENERATING, Probes
from watchdog.judge.facts.work import Work
from watchdog.observation import Metrics
from watchdog.wording import counted

ACTIVE = "http_requests_active"
LEFT_OVER = 30
"""In so many scrapes of an engine that answers, the fewest that it knows nothing of are those that stay counted for ever, as a
request may that was refused or given up (seen with 0.5.23). One of them may have been a canary of ours each time."""
OLD = " when last told"
SILENT_S = 15.0
"""Figures of an engine that has moved in no scrape for so long, and answers no probe, are old."""


class Opened:
    """Folds the HTTP server's own gauge. Forgets with the life."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life: nothing was counted yet."""
        self.count: float | None = None
        """How many requests of users, and canaries of ours, are open; None where nothing counts them."""
        self._unknown: deque[float] = deque(maxlen=LEFT_OVER)

    def see(self, x: Metrics, probes: Probes) -> None:
        """Take in one scrape."""
        v = x.values
        if ACTIVE not in v:
            self.count = None
            return
        level = sum(n for name, n in v.items() if name.startswith(f"{ACTIVE}."))
        if not _failing(probes):
            self._unknown.append(max(0.0, level - v.get("num_running_reqs", 0.0) - v.get("num_queue_reqs", 0.0)))
        self.count = max(0.0, level - max(0.0, min(self._unknown, default=0.0) - 1))


def _failing(probes: Probes) -> bool:
    """Whether probes that the engine has to answer are not answered now."""
    return not probes.first_failed.keys().isdisjoint(GENERATING)


def load(work: Work, opened: float | None, probes: Probes) -> str:
    """How many requests the server has, as a phrase: "3 running, 5 queued".

    Args:
        work: what is known of the engine's work.
        opened: how many requests are open in its HTTP server; None if unknown.
        probes: ours; where they fail, the engine's own figures may be old, and some may wait whom it does not count.
    """
    running, queue = work.figure("num_running_reqs", "running"), work.figure("num_queue_reqs", "queue")
    shown = ["unknown" if x is None else f"{x:.0f}" for x in (running, queue)]
    said = "load unknown" if running is None and queue is None else f"{shown[0]} running, {shown[1]} queued"
    if not _failing(probes):
        return said
    scrape, stepped = work.scrape, work.stepped_at
    if running is not None and scrape is not None and stepped is not None and scrape.t - stepped > SILENT_S:
        said += OLD
    if opened is not None and opened > (running or 0.0) + (queue or 0.0):
        said += f", {counted(round(opened), 'request')} open ({'it' if opened == 1 else 'one'} may be our own)"
    return said
