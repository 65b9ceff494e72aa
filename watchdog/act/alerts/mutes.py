"""Which cause makes which others not worth a message: the table, and how it is read. It holds within one server."""

from collections.abc import Iterable

import msgspec

from watchdog.act.alerts.notice import Cause

HANGS = frozenset(
    {
        "SchedulerHung",
        "NothingReachesUsers",
        "NotAdmitting",
        "TurnedAwayAtRest",
        "ReplicaHung",
        "DyingNeverEnded",
        "StartStuck",
    }
)
REFUSALS = frozenset({"ProbesRefused", "ProbesDoNotConnect"})
CANARIES = (
    frozenset({"CanaryErrors", "CanaryAloneFails", "GarbageAnswers", "GarbageAtTimes", "GarbageFromTheStart", "MalformedAnswers"})
    | {"WrongAnswers", "OddFromTheStart", "ErrorsFromTheStart", "HalfFails", "CanariesUnanswered"}
    | REFUSALS
)
ENDS = frozenset({"ProcessGone", "DiedUnasked", "ServerDied", "UnitFailed", "SameEarlyDeath"}) | {
    "NotCured",
    "RestartFailed",
    "RestartRefused",
}
SPECULATION = frozenset({"SpeculationCollapsed", "SpeculationTooGood"})
SHAPES = frozenset({"AnswerShapeChanged", "EmptyContent", "ReasoningNotParted", "LoadBackChangesAnswers"})
WORK = (
    frozenset({"QueueFull", "Saturated", "NobodyLetIn", "SomeRequestsLost", "EngineSilent", "Nan"})
    | {"TransfersFail"}
    | SPECULATION
)
GPU_SIGNS = frozenset({"DriverSlow", "GpuThrottled", "GpuMemoryLeak", "GpuMemoryTaken", "MemoryUnbalanced", "GpuResetDue"})

POOL_SIGNS = frozenset({"PoolShrank", "FootprintTooSmall", "PinningFailed"})

LOST_DEVICES = frozenset({"DeviceFault", "DeviceLost", "DriverWedged", "DriverGone", "DriverMismatch"})
"""A driver mismatch lets a running server go on, but nothing of it starts: what ends then, ends for that."""


class Mute(msgspec.Struct, frozen=True):
    """While one of `causes` stands, `muted` are not told; None stands for all others."""

    causes: frozenset[str]
    muted: frozenset[str] | None
    why: str


TABLE = (
    Mute(frozenset({"UnitMissing"}), None, "without a unit nothing else can be so"),
    Mute(LOST_DEVICES - {"DriverMismatch"}, HANGS | CANARIES | ENDS | WORK | GPU_SIGNS, "a lost device explains it"),
    Mute(frozenset({"DriverMismatch"}), ENDS, "a driver mismatch explains it"),
    Mute(
        frozenset({"BudgetSpent", "NotCured", "RestartFailed"}),
        HANGS | (CANARIES - REFUSALS) | ENDS,
        "its message names it",
    ),
    Mute(frozenset({"PortTaken", "GpuMemoryTaken", "ShmFull", "HostMemoryTooSmall"}), ENDS, "the start lacks what this names"),
    Mute(frozenset({"KilledForMemory", "StartFailed"}), ENDS, "it names the cause of the death"),
    Mute(frozenset({"SameEarlyDeath", "DiedUnasked", "UnitFailed"}), frozenset({"ServerDied"}), "it tells of the same death"),
    Mute(frozenset({"OtherModelServed"}), CANARIES | SHAPES, "it is another server that answers"),
    Mute(frozenset({"GarbageAnswers", "GarbageFromTheStart"}), SPECULATION | SHAPES, "garbage has no shape and no speed"),
    Mute(HANGS | ENDS, WORK | CANARIES, "a server that does not serve has no speed and no answers"),
    Mute(ENDS | {"DyingNeverEnded", "KilledForMemory", "MemoryRunsOut"}, POOL_SIGNS, "what ends gives its memory back"),
    Mute(frozenset({"FileServerAway"}), HANGS | CANARIES | WORK, "who waits for a file server does nothing else"),
    Mute(frozenset({"HalfFails"}), frozenset({"TransfersFail"}), "its message names it"),
    Mute(frozenset({"QueueFull"}), frozenset({"Saturated"}), "a full queue is more than a long one"),
)


def muted(causes: Iterable[Cause], stood_down: dict[str, str]) -> dict[tuple[str, str], str]:
    """The causes that are not to be told now, each with why.

    Args:
        causes: all that stand.
        stood_down: servers of which nothing is to be told → why (stopped by a person).
    """
    by_server: dict[str, list[Cause]] = {}
    for cause in causes:
        by_server.setdefault(cause.server, []).append(cause)
    out: dict[tuple[str, str], str] = {}
    for server, group in by_server.items():
        if server in stood_down:
            out |= {cause.key: stood_down[server] for cause in group}
            continue
        standing = {cause.reason for cause in group if cause.over is None}
        for cause in group:
            if (why := _muted_by(cause, standing)) is not None:
                out[cause.key] = why
    return out


def _muted_by(cause: Cause, standing: set[str]) -> str | None:
    for mute in TABLE:
        if cause.reason in mute.causes:
            if mute.muted is None:
                return None
            continue
        found = sorted(mute.causes & standing)
        if found and (mute.muted is None or cause.reason in mute.muted):
            return f"{found[0]}: {mute.why}"
    return None
