"""What a check finds, and what the findings of one server come to."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """From well to ill, and unknown, which is neither."""

    OK = "ok"
    ODD = "odd"
    """It works, but a person would want to change it."""
    BAD = "bad"
    UNKNOWN = "unknown"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    Attributes:
        area: "API", "journal", "memory", "unit", "GPU", "host" or "deep".
        item: what was looked at.
        expected: what should be so.
        seen: what is so.
        verdict: how the two compare.
        cure: what helps, as an order; empty where nothing needs to be done.
    """

    area: str
    item: str
    expected: str
    seen: str
    verdict: Verdict
    cure: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one server.

    Attributes:
        took_s: how long it took to gather them, in seconds.
        starting: whether the server is still starting, so that there is more to be told later.
    """

    server: str
    unit: str
    items: Sequence[Item]
    took_s: float = 0.0
    starting: bool = False

    def count(self, verdict: Verdict) -> int:
        """How many findings have a verdict."""
        return sum(item.verdict is verdict for item in self.items)

    @property
    def verdict(self) -> Verdict:
        """Bad if anything is bad, else unknown if anything is, else odd, else ok."""
        for each in (Verdict.BAD, Verdict.UNKNOWN, Verdict.ODD):
            if self.count(each):
                return each
        return Verdict.OK if self.items else Verdict.UNKNOWN

    @property
    def conclusion(self) -> str:
        """One sentence."""
        first = next((item for item in self.items if item.verdict is self.verdict), None)
        detail = f"{first.item}: {first.seen}" if first is not None else "nothing was looked at"
        more = self.count(self.verdict) - 1
        others = f" (and {more} more)" if more > 0 else ""
        match self.verdict:
            case Verdict.OK:
                return f"{self.server} is well: all {len(self.items)} checks agree"
            case Verdict.ODD:
                return f"{self.server} works, with something to mend: {detail}{others}"
            case Verdict.BAD:
                return f"{self.server} is not well{', while it starts' if self.starting else ''}: {detail}{others}"
        if self.starting:
            return f"{self.server} is still starting: `sglang-watchdog wait --server {self.server}`, then ask again"
        return f"{self.server} cannot be judged as a whole: {detail}{others}"


def ok(area: str, item: str, expected: str, seen: str) -> Item:
    """It is as it should be."""
    return Item(area=area, item=item, expected=expected, seen=seen, verdict=Verdict.OK)


def odd(area: str, item: str, expected: str, seen: str, cure: str) -> Item:
    """It works, but should be changed."""
    return Item(area=area, item=item, expected=expected, seen=seen, verdict=Verdict.ODD, cure=cure)


def bad(area: str, item: str, expected: str, seen: str, cure: str) -> Item:
    """It is wrong."""
    return Item(area=area, item=item, expected=expected, seen=seen, verdict=Verdict.BAD, cure=cure)


def unknown(area: str, item: str, expected: str, seen: str, cure: str = "") -> Item:
    """It could not be told; `seen` says why."""
    return Item(area=area, item=item, expected=expected, seen=seen, verdict=Verdict.UNKNOWN, cure=cure)
