"""The incidents of one server: when something went wrong, what was done about it, and how it ended. They outlive the daemon."""

import msgspec

from watchdog.judge.verdict import Action, Intent, Severity
from watchdog.wording import counted

KEPT = 50
DEEDS = 20
SETTLE_S = 60.0
"""An incident is over when the server has been well, and nothing was decided, for so long."""
RANK = (Action.ALERT, Action.DIAGNOSE, Action.PLAN_RESTART, Action.WITHHOLD, Action.RESTART)
"""Of several decisions in one incident the last of these names its cause best."""


class Deed(msgspec.Struct, kw_only=True):
    """What was decided or done, at the moment `t`."""

    t: float
    text: str


class Incident(msgspec.Struct, kw_only=True):
    """One incident; moments are on the daemon's clock.

    Attributes:
        begun: when it began, as far as what was decided on tells; else when it was first decided on.
        reason: CamelCase word for its cause.
        cause: one sentence with the evidence.
        action: the decision that named the cause.
        standing: reasons of critical alerts of which each must be over before the incident is.
        restarts: how many restarts were carried out.
        bundles: the folders of its bundles, oldest first.
        changed: when something last happened in it, or the server was last seen not to be well.
        ended: when it was over; None while it lasts.
        outcome: how it ended, one phrase.
    """

    begun: float
    reason: str
    cause: str
    action: Action
    changed: float
    standing: list[str] = []
    deeds: list[Deed] = []
    restarts: int = 0
    bundles: list[str] = []
    ended: float | None = None
    outcome: str = ""

    def moments(self) -> list[float]:
        """All moments in it."""
        return [self.begun, self.changed, self.ended or 0.0, *(d.t for d in self.deeds)]

    def shift(self, seconds: float) -> None:
        """Carry all moments over to another clock, on which they are `seconds` later."""
        self.begun += seconds
        self.changed += seconds
        self.ended = None if self.ended is None else self.ended + seconds
        for deed in self.deeds:
            deed.t += seconds


class Incidents:
    """Folds decisions, deeds and the server's state into incidents, the newest last. At most one lasts at a time."""

    def __init__(self, kept: list[Incident]) -> None:
        self.all = kept

    @property
    def open(self) -> Incident | None:
        """The one that lasts; None while all is well."""
        return self.all[-1] if self.all and self.all[-1].ended is None else None

    def go_on_from(self, before: list[Incident]) -> None:
        """Take in those of an earlier daemon, which could not be read when we began."""
        if before and before[-1].ended is None and self.all:
            before[-1].ended, before[-1].outcome = before[-1].changed, "the watchdog ended, and its memory could not be read"
        self.all[:0] = before
        del self.all[:-KEPT]

    def decided(self, t: float, intent: Intent, text: str, *, well: bool, since: float | None = None) -> bool:
        """Take in a decision; True if it begins an incident: something is done, withheld, critical, or the server is not well.

        Args:
            t: now.
            intent: what was decided.
            text: the same, for its list of deeds.
            well: whether the server is proven to serve.
            since: when that began which was decided on; None where that is not known.
        """
        action = intent.action
        if action is Action.CLEAR:
            return False
        lasting, begins = self.open, self.open is None
        alert = action in (Action.ALERT, Action.PLAN_RESTART)
        grave = not alert or intent.severity is Severity.CRITICAL or (intent.severity is Severity.WARNING and not well)
        if lasting is None:
            if not grave:
                return False
            lasting = Incident(begun=t, reason=intent.reason, cause=intent.message, action=action, changed=t)
            self.all.append(lasting)
            del self.all[:-KEPT]
        elif RANK.index(action) > RANK.index(lasting.action):
            lasting.reason, lasting.cause, lasting.action = intent.reason, intent.message, action
        if since is not None:
            over = next((i.ended for i in reversed(self.all) if i.ended is not None), None)
            lasting.begun = min(lasting.begun, since if over is None else max(since, over))
        if action is Action.ALERT and intent.severity is Severity.CRITICAL and intent.reason not in lasting.standing:
            lasting.standing.append(intent.reason)
        self.done(t, text)
        return begins

    def done(self, t: float, text: str, *, restart: bool = False, bundle: str | None = None) -> None:
        """Take in what was done in the incident that lasts."""
        lasting = self.open
        if lasting is None:
            return
        lasting.changed = t
        lasting.restarts += restart
        lasting.bundles += [bundle] if bundle else []
        lasting.deeds.append(Deed(t=t, text=text))
        if len(lasting.deeds) > DEEDS:
            del lasting.deeds[DEEDS // 2]  # its beginning and its end tell most

    def look(self, t: float, *, well: bool, stopped: bool, alerts: set[str]) -> bool:
        """End the incident if it is over; True if it was.

        Args:
            t: now.
            well: whether the server is proven to serve.
            stopped: whether a person, or the host, has taken the unit down.
            alerts: reasons of the alerts that stand.
        """
        lasting = self.open
        if lasting is None:
            return False
        if not well or alerts.intersection(lasting.standing):
            lasting.changed = max(lasting.changed, t)
        if not stopped and t - lasting.changed < SETTLE_S:
            return False
        lasting.ended = t if stopped else max(lasting.begun, lasting.changed)
        restarts = counted(lasting.restarts, "restart")
        restarted = f"well again after {restarts}" if lasting.restarts else "well again without a restart by the watchdog"
        lasting.outcome = "the unit was stopped by request" if stopped else restarted
        return True
