"""The findings of one server, of all areas. Pure."""

from collections.abc import Sequence

from watchdog.verify import api, gpus, host, log, memory, unit
from watchdog.verify.findings import Item, Report
from watchdog.verify.seen import Seen


def report(seen: Seen, deep: Sequence[Item] = (), deep_s: float = 0.0) -> Report:
    """What follows from what was seen.

    Args:
        seen: what was gathered.
        deep: the findings of a deep check, and `deep_s`: how long it took, in seconds.
        deep_s: see `deep`.
    """
    items = [item for part in (unit, api, log, memory, gpus, host) for item in part.check(seen)]
    took_s = round(seen.took_s + deep_s, 2)
    return Report(server=seen.server.name, unit=seen.server.unit, items=[*items, *deep], took_s=took_s)
