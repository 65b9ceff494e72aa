"""Is a life proven to serve, and does anything speak against it? For who ends incidents, learns from it, and clears alerts."""

from collections.abc import Mapping

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import DOUBTS, Condition, Status

MATTER = (
    "UnitActive",
    "ProcessesPresent",
    "SchedulerProgressing",
    "RequestsCompleting",
    "AnswersSane",
    "FootprintAsAnnounced",
)
"""Conditions whose fault says that the server is not well."""
UNSEEN = (("SchedulerProgressing", "Blind"), ("RequestsCompleting", "TooSlowToTell"), ("ProcessesPresent", "Stopped"))
"""(type, reason) of what is unknown for other reasons, but was not seen to be well either."""


def against(f: Facts, conditions: Mapping[str, Condition]) -> Condition | None:
    """What that matters speaks against a server that serves, also what is only in doubt; None if nothing does."""
    for kind in MATTER:
        c = conditions.get(kind)
        if c is None or c.status is Status.TRUE:
            continue
        # Of a word that is missing in an answer the question may be to blame.
        only_a_word = c.reason == "OddAnswer" and not _odd(f)
        if c.status is Status.FALSE or ((kind, c.reason) in (*DOUBTS, *UNSEEN) and not only_a_word):
            return c
    return None


def serving(f: Facts) -> bool:
    """Whether this life is surely ready, and not about to end."""
    return f.life.proven and f.life.phase() is Phase.SERVING and f.life.dying_at is None


def answered(f: Facts) -> bool:
    """Whether a canary of this life, or real traffic since it was ready, was answered as it should be."""
    # A request that may have ended before it was ready is its own warm-up: that comes to no key and no proxy.
    ready, ended = f.life.ready_at, f.work.surely_ended_at
    served = f.work.ends_seen and ready is not None and ended is not None and ended >= ready
    # Users are served, but with what?
    return f.answers.last_good_at is not None or (served and not _odd(f))


def _odd(f: Facts) -> bool:
    """Whether the answers since the last good one are odd by themselves."""
    return f.answers.run is not None and f.answers.run.odd > 0
