"""The host pool's account: expected by arithmetic, announced by SGLang, seen in memory; and what they say together."""

from enum import StrEnum

import msgspec

from watchdog.judge.facts import Facts
from watchdog.judge.facts.memory import Place
from watchdog.judge.facts.pool import Announced
from watchdog.sglang.hostpool import HostPool, where_visible
from watchdog.units import format_gb as gb
from watchdog.units import format_gib as gib
from watchdog.wording import counted

LEAST = 0.9
"""The pool counts as seen where so much of it shows."""
MOST = 1.25
"""A place of the whole host that grew by more than so many pools was taken by others too: what it loses may be theirs."""
TELLING = 0.5
"""A place whose uncertainty is more than this share of the pool tells nothing."""
DIFFERENT = 0.01
"""Expected and announced differ if they are further apart than their errors and this share."""

KIND_OF = {"anon": ("unit", "ranks"), "shmem": ("unit", "ranks"), "hugetlb": ("hugetlb",), "driver": ("host",)}
ALL_KINDS = ("unit", "ranks", "hugetlb", "host")
EVERYWHERE: list[tuple[str, ...]] = [("unit", "ranks"), ("host",)]
"""Where one must have looked, at one of each group, before a pool of unknown kind is called missing."""


class Finding(StrEnum):
    """What the three amounts say together."""

    NONE = "none"
    """There is no pool, or it is not known whether there should be one."""
    SEEN = "seen"
    MISSING = "missing"
    """Memory shows less than it should, and all places where it could be were looked at."""
    SHRUNK = "shrunk"
    """It was there when the server was ready, and part of it is gone."""
    UNTOLD = "untold"
    """It cannot be told: the places were not read, or their uncertainty is as large as the pool."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Expected, announced and seen, side by side.

    Attributes:
        expected: what arithmetic says; its `unit` is None where that is unknown, with the reason.
        announced: what SGLang said; None where nothing was heard.
        wanted: bytes that memory must hold: what was announced, or else what is expected (None: unknown).
        differs: one sentence where announced and expected differ; None where they agree or one is unknown.
        places: where the pool could show.
        place: the one that explains it, or that comes nearest.
        finding: what they say together.
        kinds: the kinds of places where this version's pool shows.
        short: ranks that hold too little while the others hold their part: (name, bytes).
        why: one sentence, where nothing can be said.
    """

    expected: HostPool
    announced: Announced | None
    wanted: int | None
    differs: str | None
    places: tuple[Place, ...]
    place: Place | None
    finding: Finding
    kinds: tuple[str, ...] = ALL_KINDS
    short: tuple[tuple[str, float], ...] = ()
    why: str | None = None

    def words(self) -> str:
        """All that is known as one phrase: "358.16 GB (333.6 GiB) announced by 8 ranks, 358.17 GB expected, …"."""
        parts = []
        a, e, p = self.announced, self.expected, self.place
        if a is not None:
            silent = "" if a.complete else f" of {a.of_ranks} (the others counted alike)"
            who = counted(a.ranks, "rank")
            parts.append(f"{both(a.total)} announced by {who}{silent}")
        if e.unit is not None and (self.wanted or e.unit):
            parts.append(f"{both(e.unit) if not parts else gb(e.unit)} expected (within {gb(e.within)})")
        if p is not None:
            how = "more than before it" if p.grown else "all that is there"
            parts.append(f"{both(p.size)} seen as {p.title}, {how}")
        return ", ".join(parts)


def both(amount: float) -> str:
    """An amount in both spellings: "358.16 GB (333.6 GiB)"."""
    return f"{gb(amount)} ({gib(amount)})"


def account(f: Facts) -> Account:
    """The account of the present life."""
    m, server = f.memory, f.life.server
    where = where_visible(server.version, server.args, server.env) if server is not None else None
    kinds = KIND_OF[where] if where is not None else None
    expected = m.pool.expected(server)
    announced = m.pool.announced(server)
    wanted = expected.held or expected.unit
    if announced is not None:
        rounded_up = expected.held / expected.unit if expected.held and expected.unit else 1.0
        wanted = round(announced.total * rounded_up)
    differs = _differs(expected, announced)
    if not wanted:
        nothing = expected.reason or "No host pool is expected, and none was announced."
        return Account(
            expected=expected,
            announced=announced,
            wanted=wanted,
            differs=differs,
            places=(),
            place=None,
            finding=Finding.NONE,
            why=nothing,
        )
    count = announced.of_ranks if announced is not None else f.rank_count()
    places = tuple(m.places(wanted, count))
    finding, place, why = _find(places, wanted, kinds)
    short: tuple[tuple[str, float], ...] = ()
    even = announced is None or announced.per_rank is not None
    if finding in (Finding.SEEN, Finding.MISSING) and place is not None and place.kind in ("unit", "ranks") and even:
        short = tuple(m.short_ranks(wanted / count, LEAST))
        finding = Finding.MISSING if short else finding
        short = short if len(short) < count else ()
    return Account(
        expected=expected,
        announced=announced,
        wanted=wanted,
        differs=differs,
        places=places,
        place=place,
        finding=finding,
        kinds=kinds or ALL_KINDS,
        short=short,
        why=why,
    )


def _differs(expected: HostPool, announced: Announced | None) -> str | None:
    if announced is None or expected.unit is None:
        return None
    apart = announced.total - expected.unit
    if abs(apart) <= expected.within + announced.within + DIFFERENT * expected.unit:
        return None
    more = "more" if apart > 0 else "less"
    return (
        f"SGLang announced {both(announced.total)}, {gb(abs(apart))} {more} than the {both(expected.unit)} "
        "that follow from its arguments and its KV cache"
    )


def _find(places: tuple[Place, ...], wanted: int, kinds: tuple[str, ...] | None) -> tuple[Finding, Place | None, str | None]:
    if not places:
        return Finding.UNTOLD, None, "Memory has not been read since the server was ready."
    telling = [p for p in places if p.unsure <= TELLING * wanted]
    # The host's huge pages are everybody's: without a level from before, they say nothing of a pool that may lie elsewhere.
    telling = [p for p in telling if p.kind != "hugetlb" or p.grown or kinds is not None]
    own = [p for p in telling if kinds is None or p.kind in kinds]
    shrunk = [p for p in own if _held(p, wanted) and p.lost > max((1 - LEAST) * wanted, p.unsure)]
    # Without a level from before, a place holds other things too: that much could be lost and it would still be large enough.
    if not any(not p.grown for p in shrunk) and (place := _explaining(own, wanted)) is not None:
        return Finding.SEEN, place, None
    if shrunk:
        return Finding.SHRUNK, max(shrunk, key=lambda p: p.lost), None
    # Where huge pages do not suffice, SGLang takes small ones (mmap_allocator.py, 0.5.13 and later), with a line in its log.
    small = [p for p in telling if p.grown and p.kind in KIND_OF["shmem"]] if kinds == KIND_OF["hugetlb"] else []
    if (place := _explaining(small, wanted)) is not None:
        return Finding.SEEN, place, None
    # Another program may have taken as much of the host meanwhile: where the place is known and was read, it alone counts.
    if not own and (place := _explaining(telling, wanted)) is not None:
        return Finding.SEEN, place, None
    if not telling:
        unsure = min(p.unsure for p in places)
        why = f"A pool of {gb(wanted)} is too small to be told from what else changes (within {gb(unsure)})."
        return Finding.UNTOLD, None, why
    looked = {p.kind for p in telling}
    if all(looked & set(group) for group in ([kinds] if kinds is not None else EVERYWHERE)):
        return Finding.MISSING, max(own or telling, key=lambda p: p.size), None
    return Finding.UNTOLD, max(telling, key=lambda p: p.size), "The place where this version's pool shows could not be read."


def _held(p: Place, wanted: int) -> bool:
    """Whether the pool was there when the server was ready: what a place then lost may be the pool's only if the place had it."""
    if p.kind == "host" or p.at_ready is None or p.at_ready + p.unsure < LEAST * wanted:
        return False
    # What is not this unit's alone, and took much more than the pool, is others' too.
    return p.kind != "hugetlb" or not p.grown or p.at_ready <= MOST * wanted


def _explaining(places: list[Place], wanted: int) -> Place | None:
    """The place that explains the pool best; None if none holds enough."""
    enough = [p for p in places if p.size + p.unsure >= LEAST * wanted]
    return min(enough, key=lambda p: (not p.grown, p.kind == "host", abs(p.size - wanted)), default=None)
