"""The queue of requests that wait to be let in: since when somebody waits, and whom it has kept out."""

from collections import deque

SEEN_S = 2.0
"""A queue is seen so much later than it forms, where lines tell of it."""


class Queue:
    """Folds the length of the queue.

    Attributes:
        since: since when somebody waits; None while nobody does, or before it was seen.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._began: float | None = None
        self._past: deque[tuple[float, float]] = deque(maxlen=200)
        """When somebody began to wait, and when nobody waited any more."""

    def see(self, t: float, length: float) -> None:
        """Take in how many were seen to wait at `t`."""
        if length <= 0:
            if self._began is not None:
                self._past.append((self._began, t))
            self.since = self._began = None
        elif self.since is None:
            self.since = self._began = t

    def forgive(self, t: float) -> None:
        """We did not run until `t`: how long somebody waited before it is not known."""
        if self.since is not None:
            self.since = t

    def kept_out(self, began: float, ended: float) -> bool:
        """Whether a request that was made at `began` may still have stood in the queue at `ended`."""
        waits = (*self._past, *([] if self._began is None else [(self._began, float("inf"))]))
        return any(since <= began + SEEN_S and until > ended for since, until in waits)
