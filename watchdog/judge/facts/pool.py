"""The host pool of hicache in one life: what it should be, what SGLang announced, and since when."""

import msgspec

from watchdog.observation import Server
from watchdog.sglang import arguments, hostpool
from watchdog.sglang.hostpool import HostPool, Kv
from watchdog.sglang.loglines import Line
from watchdog.sglang.version import at_least
from watchdog.units import GB, GIB

LINE_ERROR = GB // 200
"""An announcement is printed to 0.01 GB, so each line may be off by half of that."""


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """What SGLang said that it allocates (`Allocating … GB host memory`), all pools of all ranks.

    Attributes:
        total: bytes of all lines; what silent ranks must have asked for is added, where the others asked for the same.
        ranks: how many ranks were heard of.
        of_ranks: how many there are.
        per_rank: bytes of one rank, all its pools; None where ranks differ.
        within: how far `total` may be off, since the lines round.
    """

    total: int
    ranks: int
    of_ranks: int
    per_rank: int | None
    within: int

    @property
    def complete(self) -> bool:
        """Whether every rank was heard of."""
        return self.ranks >= self.of_ranks


class Pool:
    """Folds the lines of a start that tell of KV caches and host pools."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.lines: dict[str, list[float]] = {}
        """Rank → bytes of each pool that it announced."""
        self.announced_at: float | None = None
        """When the first of them was written."""
        self.ratio: float | None = None
        """The ratio that the server chose itself."""
        self._caches: dict[str, list[tuple[str, Kv]]] = {}
        self._expected: tuple[Server | None, int, HostPool] | None = None
        self._changes = 0

    def announce(self, t: float, line: Line) -> None:
        """Take in a line that announces a host pool."""
        size = line.fields.get("bytes")
        if size:
            self.lines.setdefault(line.rank or "all", []).append(size)
            self.announced_at = t if self.announced_at is None else min(t, self.announced_at)

    def see_kv(self, line: Line) -> None:
        """Take in a line that tells of a KV cache on the GPU."""
        kv = hostpool.kv_of(line.fields)
        if kv is not None:
            self._caches.setdefault(line.rank or "all", []).append((line.text.get("label", ""), kv))
            self._changes += 1

    def see_sizing(self, line: Line) -> None:
        """Take in a line by which the server says how it sizes the pool itself (0.5.21 on)."""
        if line.message.startswith("HiCache auto-sizing") and "ratio" in line.fields:
            self.ratio = line.fields["ratio"]
            self._changes += 1

    def announced(self, server: Server | None) -> Announced | None:
        """All that was announced; None if nothing was."""
        if not self.lines:
            return None
        sums = {rank: sum(sizes) for rank, sizes in self.lines.items()}
        count = sum(len(sizes) for sizes in self.lines.values())
        total, ranks = sum(sums.values()), len(sums)
        of_ranks = max(ranks, arguments.ranks_here(server.args) if server is not None else 1)
        mean = total / ranks
        per_rank = round(mean) if all(abs(s - mean) <= 2 * LINE_ERROR for s in sums.values()) else None
        if per_rank is not None and ranks < of_ranks:
            total = mean * of_ranks
            count = count * of_ranks // ranks
        return Announced(total=round(total), ranks=ranks, of_ranks=of_ranks, per_rank=per_rank, within=count * LINE_ERROR)

    def expected(self, server: Server | None) -> HostPool:
        """What arithmetic says (`sglang.hostpool`); computed anew only where something new was learnt."""
        known = self._expected
        if known is None or known[0] is not server or known[1] != self._changes:
            known = self._expected = (server, self._changes, self._calculate(server))
        return known[2]

    def kv(self, server: Server | None) -> tuple[Kv | None, Kv | None, str | None]:
        """(the target's KV cache of one rank, the draft's, why they are unknown)."""
        caches = next(iter(self._caches.values()), [])
        drafted = bool(server is not None and server.args.get("speculative_algorithm"))
        if not caches and drafted and not at_least(server.version if server else None, "0.5.11"):
            # Only from then on has the draft a host pool of its own, so that both caches together are the measure.
            return None, None, "The KV cache in /server_info holds the draft model's too, and the start was not seen."
        if not caches:
            return _kv_of_info(server), None, None
        odd = [label for label, _ in caches if label and "draft" not in label.lower()]
        if odd or len(caches) > (2 if drafted else 1):
            return None, None, "The model has KV caches of several kinds; only the log tells of their host pools."
        return caches[0][1], caches[1][1] if len(caches) > 1 else None, None

    def _calculate(self, server: Server | None) -> HostPool:
        if server is None:
            return HostPool(reason="The launch arguments are not known yet.")
        target, draft, why = self.kv(server)
        if why is not None and server.args.get("enable_hierarchical_cache"):
            return HostPool(reason=why)
        return hostpool.expected(server.args, server.version, target, draft=draft, ratio=self.ratio)


def _kv_of_info(server: Server | None) -> Kv | None:
    """The target's KV cache as /server_info tells it (GiB to 0.01), for a life whose start was not seen."""
    usage = server.memory_usage if server is not None else None
    size, tokens = (usage or {}).get("kvcache"), server.max_total_num_tokens if server is not None else None
    if not isinstance(size, int | float) or isinstance(size, bool) or not size > 0 or not tokens or tokens <= 0:
        return None
    return Kv(tokens=tokens, size=round(size * GIB))
