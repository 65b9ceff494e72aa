"""A stop that we ordered: for how long it has lasted, when it is ended by force, and whether anything is left to wait for."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from watchdog.observation import Procs
from watchdog.wording import span

VAIN_DRAIN_S = 30.0
"""A server whose engine is gone waits for requests that never end, until it is killed (measured with 0.5.23).

So long because its main process may still have something to do: it sleeps, dumps stacks and requests, and waits for core dumps.
Pinned memory is no reason. It is that of the schedulers, and one of which anything is left to unpin is not gone (`engine_left`).
"""
CLOSING_S = 5.0
"""The same once the log says that it waits for connections to close. That comes after the dumps, and ends only when each client
gives up: whoever is still connected waits for an engine that is gone (seen with 0.5.23, for 38 s until SIGKILL). So long for what
needs no engine, errors above all, to be sent.
"""

SPARED = "we send no SIGKILL in this mode"


@dataclass(kw_only=True)
class Stop:
    """How one stop goes. Moments are in seconds on CLOCK_MONOTONIC.

    Attributes:
        began: when it was ordered.
        end_at: when it is ended with SIGKILL.
        gone_at: when the engine was first seen to be gone, so that nothing in flight can end any more; None before.
        closing_at: when it was first seen to do nothing more than to wait for its connections to close, after that; None before.
        killed_at: when SIGKILL was sent; None before.
        may_kill: whether we may end it by force now, as the mode stands.
    """

    began: float
    end_at: float
    gone_at: float | None = None
    closing_at: float | None = None
    killed_at: float | None = None
    may_kill: Callable[[], bool] = lambda: True

    def see_gone(self, now: float) -> bool:
        """Take in that no engine process is left: from now on it is waited for so long at most; True if that is news."""
        if self.gone_at is not None:
            return False
        self.gone_at = now
        self.end_at = min(self.end_at, now + VAIN_DRAIN_S)
        return True

    def see_closing(self, now: float) -> bool:
        """Take in that it waits for connections, and nothing else: for users of a gone engine in vain; True if that is news."""
        if self.gone_at is None or self.closing_at is not None:
            return False
        self.closing_at = now
        self.end_at = min(self.end_at, now + CLOSING_S)
        return True

    @property
    def hastened_at(self) -> float | None:
        """When it was last seen that there is less to wait for than was thought; None before."""
        return self.gone_at if self.closing_at is None else self.closing_at

    def said(self, now: float) -> str:
        """For how long it has lasted and what comes, as a phrase."""
        if self.killed_at is not None:
            return f"for {span(now - self.began)}; SIGKILL was sent {span(now - self.killed_at)} ago"
        why = "its engine is gone, " if self.gone_at is not None else ""
        return f"for {span(now - self.began)}; {why}{self.end(now)}{' if it has not ended by then' if self.may_kill() else ''}"

    def end(self, now: float) -> str:
        """How it is ended where it does not end by itself, as a phrase."""
        return f"SIGKILL in {span(max(0.0, self.end_at - now))}" if self.may_kill() else SPARED


def engine_left(look: Procs | None, known: Collection[int], inv: str | None, since: float) -> bool:
    """Whether an engine process may still be at work: one that was seen in this life is there, and not defunct.

    Args:
        look: the newest look at the unit's processes.
        known: the pids of the engine processes that were seen in this life.
        inv: the life that is to end.
        since: since when it stops; what was seen before says nothing.
    """
    if look is None or look.inv != inv or look.t < since or not look.procs or not known:
        return True
    return any(x.pid in known and x.state not in ("Z", "X") for x in look.procs)
