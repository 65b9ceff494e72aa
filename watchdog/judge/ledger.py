"""What must outlive a daemon: the restarts that were ordered, the vetoes that were said, the pause, the alerts that stand."""

import msgspec

from watchdog.config import Restarting
from watchdog.wording import counted, span


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


class Ledger(msgspec.Struct, kw_only=True):
    """The memory of decisions of one server. Moments are on the daemon's clock; state.py carries them over its restarts."""

    restarts: list[Ordered] = []
    condemned: str | None = None
    """The incarnation whose restart was ordered: nothing more is decided about it."""
    condemned_at: float | None = None
    withheld: dict[str, float] = {}
    """Reasons that were said → since when."""
    alerts: dict[str, float] = {}
    """Alerts that stand → when last called for."""
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

    def order(self, t: float, reason: str, inv: str | None, policy: Restarting, *, dry: bool = False) -> None:
        """Write down a restart before it is carried out."""
        self.restarts = [r for r in self.restarts if t - r.t < policy.budget_long_s]
        self.restarts.append(Ordered(t=t, reason=reason, inv=inv, dry=dry))
        self.condemned, self.condemned_at = inv, t
