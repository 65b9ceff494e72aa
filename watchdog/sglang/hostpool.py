"""How much host memory HiCache (`--enable-hierarchical-cache`) takes, and where that memory shows.

Sources: mem_cache/memory_pool_host.py, hiradix_cache.py and their successors, 0.4.6 to 0.5.23. Each scheduler rank has a pool
of its own; with an MLA model every rank holds a full replica. The server logs what it asks for (mark host-pool, to 0.01 GB):
where such lines were seen, their sum is better than this arithmetic, which is for the time before, and for comparing. Pools
beside the main one of hybrid models (Mamba, sparse-attention indexers) are not in it: only the log tells of them.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from watchdog.sglang.arguments import DEFAULTS, ranks_here
from watchdog.sglang.version import at_least, is_new
from watchdog.units import GB, GIB

Place = Literal["anon", "shmem", "hugetlb", "driver"]


class Kv(msgspec.Struct, frozen=True):
    """The KV cache of one rank on its GPU, from the log line `KV Cache is allocated` (K and V together).

    Attributes:
        tokens: how many tokens it holds (`#tokens`).
        size: its bytes.
        within: how far `size` may be off, in bytes: half of the last printed digit of each number in it (0.005 GiB).
    """

    tokens: int
    size: int
    within: int = GIB // 200

    @property
    def per_token(self) -> float:
        """Bytes of one token."""
        return self.size / self.tokens


def kv_of(fields: Mapping[str, float]) -> Kv | None:
    """The KV cache that a line with the mark kv-cache tells of (`Line.fields`); None where numbers are missing."""
    sizes = [fields[name] for name in ("kv_bytes", "k_bytes", "v_bytes") if name in fields]
    tokens = fields.get("tokens", 0)
    if not sizes or tokens <= 0:
        return None
    return Kv(tokens=int(tokens), size=round(sum(sizes)), within=len(sizes) * (GIB // 200))


class HostPool(msgspec.Struct, frozen=True, kw_only=True):
    """What a server's host pools should be. None is unknown, and `reason` then says why.

    Attributes:
        tokens: tokens of one rank's pool.
        target: bytes of one rank's pool for the target model.
        draft: bytes of one rank's pool for the draft model; 0 where it has none.
        per_rank: bytes that one rank asks for, both together.
        unit: bytes that all ranks on this host ask for.
        held: bytes that all ranks on this host hold: up to 0.5.3 CUDA rounds each pool up to a power of two, later versions hold
            what they ask for. None where the version is unknown.
        within: how far `unit` may be off, in bytes, because log lines round.
        reason: one sentence, where something is unknown, or why there is no pool.
    """

    tokens: int | None = None
    target: int | None = None
    draft: int | None = None
    per_rank: int | None = None
    unit: int | None = None
    held: int | None = None
    within: int = 0
    reason: str | None = None


def expected(
    args: Mapping[str, Any],
    version: str | None,
    kv: Kv | None,
    *,
    draft: Kv | None = None,
    ratio: float | None = None,
) -> HostPool:
    """The host pools that a server with these arguments should have.

    Args:
        args: launch arguments under SGLang's own names.
        version: SGLang's version.
        kv: the target model's KV cache on one GPU; None where its log line has not been seen.
        draft: the draft model's KV cache on one GPU; None where the server has no draft model.
        ratio: the ratio that the server chose itself (`HiCache auto-sizing`), where it said so.
    """
    if not args.get("enable_hierarchical_cache", False):
        return HostPool(tokens=0, target=0, draft=0, per_rank=0, unit=0, held=0, reason="The hierarchical cache is off.")
    why = _incalculable(args, version, ratio)
    if why is not None:
        return HostPool(reason=why)
    if kv is None or kv.tokens <= 0:
        return HostPool(reason="The size of the KV cache on the GPU is not known yet.")
    rounded_up = is_new(version, "0.5.4.post3", "0.5.5.post3")
    page = int(_positive(args.get("page_size")) or DEFAULTS["page_size"])
    size = _positive(args.get("hicache_size"))
    if size is not None:
        wanted = int(size * GB // kv.per_token)
    else:
        wanted = int(kv.tokens * (ratio or _positive(args.get("hicache_ratio")) or DEFAULTS["hicache_ratio"]))
    # Which way an unknown version rounds makes one page of difference: it is counted in `within`.
    tokens = wanted - wanted % page if rounded_up is False else (wanted // page + 1) * page
    target = round(tokens * kv.per_token)
    ranks = ranks_here(args)
    error = kv.within * tokens / kv.tokens if size is None else 0.0
    if rounded_up is None:
        error += page * kv.per_token
    has_draft_pool = False if draft is None else is_new(version, "0.5.10.post1", "0.5.11")
    if has_draft_pool is None:
        return HostPool(
            tokens=tokens,
            target=target,
            within=round(error * ranks),
            reason="Whether the draft model has a host pool of its own depends on the version (0.5.11 on), which is unknown.",
        )
    drafted = 0
    if has_draft_pool and draft is not None and draft.tokens > 0:
        drafted = round(tokens * draft.per_token)
        error += draft.within * tokens / draft.tokens
    per_rank = target + drafted
    registered = is_new(version, "0.5.3.post3", "0.5.4.post3")
    held = None
    if registered is not None:
        held = (per_rank if registered else _power_of_two(target) + _power_of_two(drafted)) * ranks
    return HostPool(
        tokens=tokens,
        target=target,
        draft=drafted,
        per_rank=per_rank,
        unit=per_rank * ranks,
        held=held,
        within=round(error * ranks),
    )


def _incalculable(args: Mapping[str, Any], version: str | None, ratio: float | None) -> str | None:
    """Why the arithmetic does not hold for these arguments; None where it does."""
    if args.get("hicache_host_memory_mode") == "buffer_only":
        return "The host pool is only a staging buffer (--hicache-host-memory-mode buffer_only)."
    if args.get("enable_linker_mla_dedup"):
        return "Only one rank has a real host pool (--enable-linker-mla-dedup)."
    given = _positive(args.get("hicache_ratio")) or _positive(args.get("hicache_size"))
    if given is None and ratio is None and at_least(version, "0.5.21") is not False:
        return "The server sizes the host pool itself (no --hicache-ratio and no --hicache-size, 0.5.21 on)."
    return None


def _positive(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _power_of_two(size: int) -> int:
    """What torch's caching host allocator takes for a block (CachingHostAllocator.h: PowerOf2Ceil)."""
    return 1 << (size - 1).bit_length() if size > 0 else 0


def where_visible(
    version: str | None,
    args: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Place | None:
    """Where the pool's memory shows, once it is touched (which is at the end of its allocation, for ever).

    Returns:
        "anon": private anonymous memory (RssAnon, the cgroup's anon). "shmem": shared anonymous memory (RssShmem, the cgroup's
        shmem, the host's Shmem; not in /dev/shm). "hugetlb": huge pages (in neither, nor in memory.current). "driver": CUDA's own
        mapping, in none of them. None: unknown. Never in VmPin, VmLck, Mlocked: the driver pins without mlock(2).
    """
    settings = env or {}
    if (args or {}).get("hicache_storage_backend") == "mooncake":
        return None
    shared = is_new(version, "0.5.12.post1", "0.5.13.post1")
    if shared is None:
        return None
    if shared:
        if settings.get("SGLANG_HUGEPAGE_SIZE"):
            return "hugetlb"
        threads = settings.get("SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS", "0")
        if at_least(version, "0.5.23") and threads.isdecimal() and int(threads) > 0:
            return "anon"
        return "shmem"
    registered = is_new(version, "0.5.3.post3", "0.5.4.post3")
    return None if registered is None else "anon" if registered else "driver"
