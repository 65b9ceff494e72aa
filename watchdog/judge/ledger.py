"""What must outlive a daemon: the restarts that were ordered, the vetoes that were said, the pause, the alerts that stand."""

import msgspec

from watchdog.config import Restarting
from watchdog.wording import counted, span

VAIN = ("refused", "dropped", "canceled")
"""Results of a restart that was not carried out: refused before systemd began it, given up by us, replaced by somebody's job."""


class Ordered(msgspec.Struct, kw_only=True):
    """One restart that we ordered.

    Attributes:
        t: when.
        reason: of which fault.
        inv: of which incarnation.
        dry: whether it was only said.
        proven: whether the life after it was ready and answered.
    """

    t: float
    reason: str
    inv: str | None = None
    proven: bool = False
    dry: bool = False


REFUSED_AGAIN_S = 10.0
"""A restart that was not carried out is ordered again after so long; each further time in a row doubles it."""
REFUSED_LONGEST_S = 300.0


class Refused(msgspec.Struct, kw_only=True):
    """Restarts of one life that were ordered and not carried out (VAIN).

    Attributes:
        t: when the last one was.
        inv: of which incarnation.
        times: how many in a row.
    """

    t: float
    inv: str | None = None
    times: int = 1


class Ledger(msgspec.Struct, kw_only=True):
    """The memory of decisions of one server. Moments are on the daemon's clock; state.py carries them over its restarts."""

    restarts: list[Ordered] = []
    condemned: str | None = None
    """The incarnation whose restart was ordered: nothing more is decided about it."""
    condemned_at: float | None = None
    refused: Refused | None = None
    """The last restart that was not carried out, as long as its life lasts."""
    repaired_at: float | None = None
    """When a person last said that the cause is mended."""
    withheld: dict[str, float] = {}
    """Reasons that were said → since when."""
    alerts: dict[str, float] = {}
    """Alerts that stand → when last called for."""
    events: dict[str, float] = {}
    """Alerts that stand and tell of what happened once → when the newest event that was told happened."""
    planned: dict[str, float] = {}
    diagnosed: dict[str, str | None] = {}
    """Suspicions that evidence was gathered for → in which incarnation."""

    def spent(self, policy: Restarting, now: float) -> str | None:
        """Why the budget forbids one more restart now; None if it does not."""
        short = [r for r in self.restarts if now - r.t < policy.budget_s]
        long = [r for r in self.restarts if now - r.t < policy.budget_long_s]
        if len(short) >= policy.budget:
            return f"{counted(len(short), 'restart')} within {span(policy.budget_s)} are the limit"
        if len(long) >= policy.budget_long:
            return f"{counted(len(long), 'restart')} within {span(policy.budget_long_s)} are the limit"
        return None

    def wait_s(self, policy: Restarting, now: float) -> float:
        """How long the next restart has to wait for the back-off, in seconds; 0 if it need not."""
        short = [r for r in self.restarts if now - r.t < policy.budget_s]
        if not short:
            return 0.0
        return max(0.0, short[-1].t + policy.backoff_s * 2.0 ** (len(short) - 1) - now)

    def again_s(self, now: float) -> float:
        """How long a restart that was not carried out waits before it is ordered again, in seconds; 0 if it need not."""
        if self.refused is None:
            return 0.0
        pause_s = min(REFUSED_AGAIN_S * 2.0 ** min(self.refused.times - 1, 10), REFUSED_LONGEST_S)
        return max(0.0, self.refused.t + pause_s - now)

    def order(self, t: float, reason: str, inv: str | None, policy: Restarting, *, dry: bool = False) -> None:
        """Write down a restart before it is carried out."""
        self.restarts = [r for r in self.restarts if t - r.t < policy.budget_long_s]
        self.restarts.append(Ordered(t=t, reason=reason, inv=inv, dry=dry))
        self.condemned, self.condemned_at = inv, t
        self.withheld.clear()  # nothing stands in the way any more: what comes back is news

    def forget_dry(self) -> None:
        """We act from now on: what was only said has spent nothing, and condemns no life."""
        if not any(r.dry for r in self.restarts):
            return
        if self.restarts[-1].dry:
            self.condemned, self.condemned_at = None, None
        self.restarts = [r for r in self.restarts if not r.dry]

    def go_on(self, since: "Ledger") -> None:
        """Take in what another one has noted since this one was written down; none of its restarts was carried out."""
        self.restarts = [*self.restarts, *since.restarts]
        self.refused = since.refused or self.refused
        self.repaired_at = since.repaired_at if since.repaired_at is not None else self.repaired_at
        if since.condemned_at is not None:
            self.condemned, self.condemned_at = since.condemned, since.condemned_at
        self.withheld |= since.withheld
        self.alerts |= since.alerts
        self.events |= since.events
        self.planned |= since.planned
        self.diagnosed |= since.diagnosed

    def resume(self, now: float) -> None:
        """Nobody has looked meanwhile: what stood when the daemon before us ended is not over for that."""
        self.alerts = dict.fromkeys(self.alerts, now)

    def acted(self, t: float, result: str, reason: str | None) -> None:
        """Take in what came of a restart: one that was not carried out does not count, and does not condemn the life."""
        if result not in VAIN:
            self.refused = None if result != "dry" else self.refused
            return
        inv = self.condemned
        if self.restarts and self.restarts[-1].reason == reason:
            inv = self.restarts.pop().inv
        self.condemned, self.condemned_at = None, None
        before = self.refused
        lately = before is not None and before.inv == inv and t - before.t < 2 * REFUSED_LONGEST_S
        self.refused = Refused(t=t, inv=inv, times=before.times + 1 if before is not None and lately else 1)

    def repaired(self, t: float, *, over: bool) -> None:
        """A person has mended the cause: a restart in vain is no reason against the next one. The budget stays.

        Args:
            t: when.
            over: the last restart has ended in vain, so that none is under way.
        """
        self.repaired_at, self.refused = t, None
        self.withheld.clear()
        if over:
            self.condemned, self.condemned_at = None, None
