"""What judging yields: conditions, intents, and the events in which both are told."""

from enum import StrEnum
from typing import Any

import msgspec

WORST = (
    "UnitActive",
    "ProcessesPresent",
    "SchedulerProgressing",
    "RequestsCompleting",
    "ReplicasProgressing",
    "AnswersSane",
    "Started",
    "DevicesHealthy",
    "Restartable",
    "MemoryHolds",
    "FootprintAsAnnounced",
    "QueueFlowing",
    "ProbesAccepted",
    "SpeculationEffective",
    "DecodeSpeed",
    "FirstTokenSpeed",
    "LogClean",
    "Sighted",
)
"""Types of conditions that are worth the sentence when they do not hold, the worst first."""

DOUBTS = (
    ("SchedulerProgressing", "Silent"),
    ("RequestsCompleting", "CanariesFail"),
    ("AnswersSane", "OddAnswer"),
    ("AnswersSane", "CanaryErrors"),
    ("SchedulerProgressing", "ProbeFailed"),
    ("ProbesAccepted", "SomeRefused"),
)
"""(type, reason) of what is unknown because something speaks against it that does not suffice yet, the weightiest first."""


class Status(StrEnum):
    """Whether a condition holds. Unknown is a value of its own: never healthy, never ill."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge holds to be so (the Kubernetes meaning).

    Attributes:
        type: CamelCase name of the condition, such as "SchedulerProgressing"; True is the good state for every type.
        reason: CamelCase word for why.
        message: one sentence with the evidence, for people.
        since: the moment since which `status` holds, in seconds since the record's start.
        reason_since: the same for `reason`: a status may go on for another one.
    """

    type: str
    status: Status
    reason: str
    message: str
    since: float = 0.0
    reason_since: float = 0.0


class Action(StrEnum):
    """What the daemon would do (docs/flight-record.md)."""

    DIAGNOSE = "diagnose"
    RESTART = "restart"
    PLAN_RESTART = "plan_restart"
    WITHHOLD = "withhold"
    ALERT = "alert"
    CLEAR = "clear"


class Severity(StrEnum):
    """How much a person should care."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon would do, with its reason, evidence and advice."""

    action: Action
    reason: str
    severity: Severity
    message: str
    advice: str | None = None
    evidence: tuple[str, ...] = ()


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that judging brought about at the moment `t`: a changed condition, or an intent."""

    t: float
    condition: Condition | None = None
    intent: Intent | None = None

    def as_line(self) -> dict[str, Any]:
        """The event as a replay prints it (docs/flight-record.md)."""
        t = round(self.t, 3)
        if self.condition is not None:
            c = self.condition
            return {
                "t": t,
                "event": "condition",
                "type": c.type,
                "status": str(c.status),
                "reason": c.reason,
                "message": c.message,
            }
        i = self.intent
        assert i is not None
        return {
            "t": t,
            "event": "intent",
            "action": str(i.action),
            "reason": i.reason,
            "severity": str(i.severity),
            "message": i.message,
            "advice": i.advice,
            "evidence": list(i.evidence),
        }


class Want(StrEnum):
    """What a judge asks for. Whether it is done is decided in decide.py."""

    RESTART = "restart"
    PLAN_RESTART = "plan_restart"
    ALERT = "alert"
    DIAGNOSE = "diagnose"
    VETO = "veto"
    """A restart would be useless or harmful, for the reason given; the advice says what helps instead."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a judge asks for.

    Attributes:
        want: what is asked for.
        reason: CamelCase word; one cause has one reason.
        message: one sentence with the evidence.
        severity: how much a person should care (alerts and vetoes).
        advice: what a person should do, or None.
        evidence: the single facts, each a short phrase.
        at: for an alert about what happened once: when. The next such event is told again while the alert still stands.
        unmet: for a veto: it calls for a restart by itself, which it then withholds (the server is down or will be).
        quiet: for an alert: not to be begun now, as a person is at work on what it is about; one that was begun goes on.
    """

    want: Want
    reason: str
    message: str
    severity: Severity = Severity.WARNING
    advice: str | None = None
    evidence: tuple[str, ...] = ()
    at: float | None = None
    unmet: bool = False
    quiet: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one judge says at one moment: a condition (without its `since`), and what it asks for."""

    type: str
    status: Status
    reason: str
    message: str
    calls: tuple[Call, ...] = ()
