"""Folds what the kernel says of file servers: who waits for one that is away is in state D, and goes on when it is back."""

from watchdog.judge.kernel_lines import KernelFact, Kind

DAY_S = 86_400.0
"""A line so old says nothing of now: not every file system tells that its server is back."""
KEPT_S = 600.0
"""So long after a life began, a line from before it still counts: who waits anew is told of anew."""


class Storage:
    """Folds lines of network file systems. They are the host's, and outlive the server's life."""

    def __init__(self) -> None:
        self._away: dict[str, tuple[float, str]] = {}
        """What the kernel calls the server → (since when it is away, how people are told of it)."""
        self.back_at: float | None = None
        """When one that was away was last said to be back."""

    def see_kernel(self, t: float, fact: KernelFact) -> None:
        """Take in what a line of the kernel that was written at `t` says."""
        if fact.share is None:
            return
        if fact.kind is Kind.STORAGE_AWAY:
            self._away.setdefault(fact.share, (t, fact.sentence))
        elif fact.kind is Kind.STORAGE_BACK and self._away.pop(fact.share, None) is not None:
            self.back_at = t

    def away(self, now: float, since: float | None) -> list[tuple[float, str]]:
        """Servers that are away: (since when, who), the one that went first in front.

        Args:
            now: the moment.
            since: when the present life of the unit began, if that is known.
        """
        young = since is not None and now - since < KEPT_S
        return sorted(x for x in self._away.values() if now - x[0] < DAY_S and (since is None or young or x[0] >= since))
