"""Is hicache worth it? A pool of hundreds of GB that is never read back is worth a sentence."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.cache_use import DAY_S, MARK_S, Use
from watchdog.judge.facts.life import Phase
from watchdog.judge.pool import both
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.sglang.version import at_least
from watchdog.wording import counted, span

REQUESTS_LEAST = 100
"""Fewer requests than this in a day say nothing about a cache."""
TURNS = 1.0
"""Tokens that left the GPU's cache, in times of what the host pool holds, with nothing ever read back."""
COUNTED_SINCE = "0.5.9"
"""From here on both counters of what comes back exist; that they are absent then means zero (docs/baseline.md)."""


def judge(f: Facts) -> Verdict:
    """The condition HostCacheUseful."""
    kind = "HostCacheUseful"
    life = f.life
    if life.phase() is not Phase.SERVING:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=f"The server is {life.phase().value}.")
    server = life.server
    if server is None or not server.args.get("enable_hierarchical_cache"):
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="NoHostPool", message="The hierarchical cache is off, as far as is known."
        )
    use = f.cache_use.use()
    if use is None:
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="NotCounted", message="Its counters have not been read for long enough."
        )
    over = f"in {span(use.span_s)}"
    if use.read_back > 0:
        share = use.read_back / use.prompt_tokens if use.prompt_tokens > 0 else 0.0
        message = f"{counted(use.read_back, 'token')} came back from the host pool {over}, {share:.1%} of all prompt tokens."
        return Verdict(type=kind, status=Status.TRUE, reason="ReadBack", message=message)
    both_counted = at_least(server.version, COUNTED_SINCE) is True
    # What the host pool still holds may yet come back. Once it was turned over as a whole, what it held never did.
    holds = use.holds or _by_ratio(f)
    turned = holds is not None and max(use.evicted, use.backed_up or 0.0) >= TURNS * holds and not use.ever
    if not both_counted or use.requests < REQUESTS_LEAST or (use.span_s < DAY_S - MARK_S and not turned):
        message = f"Nothing has come back from the host pool {over} ({counted(use.requests, 'request')}): too little to judge by."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="TooEarly", message=message)
    return _unused(f, kind, use, over)


def _by_ratio(f: Facts) -> float | None:
    """How many tokens the host pool holds by its ratio to the GPU's cache; None where its size was given otherwise."""
    server, ratio = f.life.server, f.life.number("hicache_ratio")
    if server is None or server.max_total_num_tokens is None or not ratio or f.life.number("hicache_size"):
        return None
    return ratio * server.max_total_num_tokens * (f.life.number("dp_size") or 1)


def _unused(f: Facts, kind: str, use: Use, over: str) -> Verdict:
    announced, expected = f.memory.pool.announced(f.life.server), f.memory.pool.expected(f.life.server).unit
    size = announced.total if announced is not None else expected
    what = f"{both(size)} are pinned for the hierarchical cache" if size else "The hierarchical cache is on"
    traffic = f"{counted(use.requests, 'request')} with {counted(use.prompt_tokens, 'prompt token')}"
    message = f"{what}, and nothing was read back from it {over} ({traffic})."
    went_in = max(use.backed_up or 0.0, use.evicted)
    fill = "" if use.fill is None else f", the pool is {use.fill:.0%} full"
    if went_in > 0:
        severity = Severity.WARNING
        advice = (
            f"{counted(went_in, 'token')} left the GPU's cache{fill}, and none came back: prompts do not return in time, "
            "or loading back fails; see the log for load_back lines."
        )
    else:
        severity = Severity.INFO
        advice = f"The GPU's own cache suffices (nothing was evicted{fill}): a smaller --hicache-ratio frees host memory."
    call = Call(want=Want.ALERT, reason="HostCacheUnused", message=message, severity=severity, advice=advice)
    return Verdict(type=kind, status=Status.FALSE, reason="HostCacheUnused", message=message, calls=(call,))
