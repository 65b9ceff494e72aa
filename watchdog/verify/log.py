"""What the journal says of this life: readiness, KV cache, host pools, speculation, and lines that tell of trouble. Pure."""

from watchdog.sglang import hostpool
from watchdog.sglang.hostpool import Kv
from watchdog.units import format_gb, format_gib
from watchdog.verify.findings import Item, bad, odd, ok, unknown
from watchdog.verify.life import Life
from watchdog.verify.seen import Seen
from watchdog.wording import counted

AREA = "journal"
PRINTED = 0.005e9
"""A line about a host pool is rounded to 0.01 GB."""


def check(seen: Seen) -> list[Item]:
    """The findings of the journal."""
    life = seen.life
    if life is None:
        return [unknown(AREA, "journal", "the lines of this life", seen.no_journal or "not read in time", _access_cure(seen))]
    items = [readiness(seen, life), kv_cache(seen, life)]
    if seen.hicache is not False or life.pools:
        items.append(host_pool(seen, life))
    if seen.args.get("speculative_algorithm"):
        items.append(speculation(seen, life))
    return [*items, fatal(life), trouble(life)]


def _access_cure(seen: Seen) -> str:
    return "" if seen.no_journal else "look at systemd-journald, and ask again"


def readiness(seen: Seen, life: Life) -> Item:
    """The line that SGLang prints when its own warm-up was answered."""
    expected = "“fired up and ready to roll” in this life"
    if life.ready:
        return ok(AREA, "readiness", expected, "seen")
    if life.lines == 0:
        cure = "check journal_namespace, and that the unit's output goes to the journal (StandardOutput=)"
        return unknown(AREA, "readiness", expected, "the journal has no line of this life", cure)
    if life.dropped:
        cure = "raise LogRateLimitBurst= of the unit, so that no line is lost"
        return unknown(AREA, "readiness", expected, f"not seen, but journald dropped {counted(life.dropped, 'line')}", cure)
    chat = seen.probes.get("chat")
    if chat is not None and chat.outcome == "ok":
        return odd(
            AREA, "readiness", expected, "not seen, though it answers", "the journal may have been vacuumed since the start"
        )
    return bad(
        AREA, "readiness", expected, f"not seen in {counted(life.lines, 'line')}", "wait for the start: `sglang-watchdog wait`"
    )


def kv_cache(seen: Seen, life: Life) -> Item:
    """Each rank tells of its KV cache, all of the same size."""
    ranks = seen.ranks
    expected = f"the same on {counted(ranks, 'rank')}" if ranks else "the same on each rank"
    if not life.kv:
        return unknown(AREA, "KV cache", expected, "no rank told of it" if life.lines else "the journal has no line of this life")
    sizes = set(life.kv.values())
    shown = f"{_kv(next(iter(life.kv.values())))} on {counted(len(life.kv), 'rank')}"
    if len({kv.tokens for kv in sizes}) > 1:
        tokens = sorted(kv.tokens for kv in sizes)
        return odd(
            AREA,
            "KV cache",
            expected,
            f"{tokens[0]} to {counted(tokens[-1], 'token')}",
            "something else holds memory of some GPUs",
        )
    if ranks is not None and len(life.kv) != ranks:
        return unknown(AREA, "KV cache", expected, shown, "the missing lines may be lost: compare with the processes")
    if life.draft and seen.args.get("speculative_algorithm"):
        shown += f"; draft {format_gib(next(iter(life.draft.values())).size, 2)} on {len(life.draft)}"
    return ok(AREA, "KV cache", expected, shown)


def _kv(kv: Kv) -> str:
    return f"{counted(kv.tokens, 'token')}, {format_gib(kv.size, 2)} ({format_gb(kv.size)})"


def host_pool(seen: Seen, life: Life) -> Item:
    """The announced host pools against what the arguments make of them."""
    ranks = seen.ranks
    told = len({pool.rank for pool in life.pools})
    announced = sum(pool.size for pool in life.pools)
    shown = f"{format_gb(announced)} ({format_gib(announced, 2)}) from {told} {'rank' if told == 1 else 'ranks'}"
    wanted = _expected(seen, life)
    expected = (
        f"{format_gb(wanted.unit)} ({format_gib(wanted.unit, 2)}) in all" if wanted.unit else "an announcement of each rank"
    )
    if not life.pools:
        if life.lines == 0 or not life.kv or seen.hicache is None:
            return unknown(AREA, "host pool", expected, "no announcement seen, and no other line of the start")
        return bad(
            AREA,
            "host pool",
            expected,
            "no rank announced one, though --enable-hierarchical-cache is on",
            "look at the start's warnings",
        )
    if ranks is not None and told != ranks:
        return unknown(AREA, "host pool", expected, f"{shown} of {ranks}", "lines may be lost: compare with the memory below")
    if wanted.unit is None:
        return ok(AREA, "host pool", f"an announcement of each rank ({wanted.reason})" if wanted.reason else expected, shown)
    if abs(announced - wanted.unit) > wanted.within + PRINTED * len(life.pools) + 0.01 * wanted.unit:
        cure = "compare --hicache-ratio, --hicache-size and --page-size with what you meant"
        return odd(AREA, "host pool", expected, shown, cure)
    return ok(AREA, "host pool", expected, shown)


def _expected(seen: Seen, life: Life) -> hostpool.HostPool:
    kv = next(iter(life.kv.values()), None)
    draft = next(iter(life.draft.values()), None) if seen.args.get("speculative_algorithm") else None
    return hostpool.expected(seen.args, seen.version, kv, draft=draft, ratio=life.ratio)


def speculation(seen: Seen, life: Life) -> Item:
    """Speculation that was asked for must show in the work."""
    name = seen.args["speculative_algorithm"]
    expected = f"{name} at work"
    cure = "compare the --speculative arguments with the log of the start, and the draft model with the target"
    accepted = life.accepted
    if life.decodes and not life.accepting:
        return bad(AREA, "speculation", expected, f"{life.decodes} decode lines without an accept length", cure)
    if accepted is None and seen.metrics is not None and seen.metrics.ok:
        accepted = seen.metrics.values.get("spec_accept_length") or None
    if accepted is not None and accepted <= 1.0:
        return bad(AREA, "speculation", expected, f"accept length {accepted:.2f}: no draft token is accepted", cure)
    if accepted is not None:
        return ok(AREA, "speculation", expected, f"accept length {accepted:.2f}")
    if life.draft:
        return ok(
            AREA,
            "speculation",
            expected,
            f"the draft model is loaded on {counted(len(life.draft), 'rank')}; no traffic to measure yet",
        )
    return unknown(
        AREA, "speculation", expected, "no decode line and no draft model seen", "send it some requests, and ask again"
    )


def fatal(life: Life) -> Item:
    """Lines after which no server lives."""
    expected = "none in this life"
    if life.fatal:
        return bad(AREA, "fatal lines", expected, f"{len(life.fatal)}, the last: {life.fatal[-1]}", "read the journal around it")
    if life.lines == 0:
        return unknown(AREA, "fatal lines", expected, "the journal has no line of this life")
    if life.dropped:
        return odd(
            AREA,
            "fatal lines",
            expected,
            f"none in {counted(life.lines, 'line')}; dropped by journald: {life.dropped}",
            "raise LogRateLimitBurst=",
        )
    return ok(AREA, "fatal lines", expected, f"none in {counted(life.lines, 'line')} of its beginning and end")


def trouble(life: Life) -> Item:
    """Lines that tell of trouble without an end."""
    expected = "none in this life"
    if life.trouble:
        what, line = next(iter(life.trouble.items()))
        more = f" (and {len(life.trouble) - 1} other sorts)" if len(life.trouble) > 1 else ""
        return odd(AREA, "trouble", expected, f"{what}: {line}{more}", "read the journal around it")
    if life.lines == 0:
        return unknown(AREA, "trouble", expected, "the journal has no line of this life")
    return ok(AREA, "trouble", expected, "none")
