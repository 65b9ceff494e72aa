"""The events of a replay as a timeline for people: one line for each decision, and for each condition that turned."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from watchdog.wording import counted

ALWAYS = ("restart", "withhold", "plan_restart")


def timeline(events: Iterable[dict[str, Any]], started: str) -> Iterator[str]:
    """Lines of text for the lines of `replay`; `started` is the header's moment (RFC 3339), "" if it is not known.

    Told are all intents, and of conditions those that turn False, or turn True after they were not: what is merely unknown, and
    what holds from the beginning, would bury them.
    """
    zero = _moment(started)
    before: dict[str, str] = {}
    for e in events:
        if e["event"] == "intent":
            yield from _intent(e, zero)
        elif e["event"] == "condition":
            was, before[e["type"]] = before.get(e["type"]), e["status"]
            if e["status"] == "False" and was != "False":
                yield f"{_at(e['t'], zero)}    {e['type']} fails ({e['reason']}): {e['message']}"
            elif e["status"] != "False" and was == "False":
                word = "holds again" if e["status"] == "True" else "is unknown"
                yield f"{_at(e['t'], zero)}    {e['type']} {word} ({e['reason']}): {e['message']}"
        elif e["event"] == "end":
            told = [counted(e[f"{thing}s"], thing) for thing in ("restart", "alert", "observation")]
            counts = f"{told[0]}, {told[1]}; {told[2]}"
            skipped = f", {counted(e['skipped'], 'line')} skipped" if e["skipped"] else ""
            yield f"{_at(e['t'], zero)} -- end: {counts}{skipped}"


def _intent(e: dict[str, Any], zero: datetime | None) -> Iterator[str]:
    word = e["action"].replace("_", " ")
    shown = word.upper() if e["action"] in ALWAYS else word
    yield f"{_at(e['t'], zero)} >> {shown} {e['reason']}: {e['message']}"
    if e["advice"]:
        yield f"{' ' * len(_at(e['t'], zero))}    advice: {e['advice']}"


def _moment(started: str) -> datetime | None:
    try:
        return datetime.fromisoformat(started)
    except ValueError:
        return None


def _at(t: float, zero: datetime | None) -> str:
    if zero is None:
        return f"{t:9.0f} s"
    return f"{zero + timedelta(seconds=t):%Y-%m-%d %H:%M:%S} {f'+{t:.0f} s':>9}"
