"""The findings of one server, of all areas. Pure."""

from collections.abc import Sequence

from watchdog.verify import api, gpus, host, log, memory, unit
from watchdog.verify.findings import Item, Report, Verdict, unknown
from watchdog.verify.seen import Seen

READINESS = ("journal", "readiness")
AWAITED = {"API", "memory", ("unit", "state"), ("unit", "processes"), ("unit", "port"), READINESS}
"""Areas, and single findings, that come only with the end of a start."""
WAIT = "wait for the start: `sglang-watchdog wait`"


def report(seen: Seen, deep: Sequence[Item] = (), deep_s: float = 0.0) -> Report:
    """What follows from what was seen.

    Args:
        seen: what was gathered.
        deep: the findings of a deep check, and `deep_s`: how long it took, in seconds.
        deep_s: see `deep`.
    """
    begins = starting(seen)
    items = [item for part in (unit, api, log, memory, gpus, host) for item in part.check(seen)]
    if begins:
        items = [_not_yet(item) for item in items]
    took_s = round(seen.took_s + deep_s, 2)
    return Report(server=seen.server.name, unit=seen.server.unit, items=[*items, *deep], took_s=took_s, starting=begins)


def starting(seen: Seen) -> bool:
    """Whether this life is on its way: it runs and logs, and neither its readiness, nor work, nor a fatal line was seen yet.

    The first line comes after its imports, so a young life need not have logged anything.
    """
    if seen.unit is None or not seen.unit.up or seen.unit.waits_for_restart or not seen.server.endpoint:
        return False
    answered = any(probe.outcome == "ok" for name, probe in seen.probes.items() if name in ("health", "chat"))
    life = seen.life
    if answered or life is None or life.ready or life.fatal or life.dropped or life.decodes:
        return False
    young = seen.age_s is not None and seen.age_s < seen.server.judge.start_silence_s
    return seen.unit.active_state == "activating" or life.lines > 0 or young


def _not_yet(item: Item) -> Item:
    """What a start has not come to yet is no fault."""
    name = (item.area, item.item)
    if item.area not in AWAITED and name not in AWAITED:
        return item
    if item.verdict not in (Verdict.BAD, Verdict.ODD) and not (name == READINESS and item.verdict is Verdict.UNKNOWN):
        return item
    return unknown(item.area, item.item, item.expected, f"{item.seen} (yet)", WAIT)
