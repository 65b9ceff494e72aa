"""The host pool of a rank: real memory, touched when it is allocated, of the kind that the version uses."""

import mmap
import os
from collections.abc import Callable

PARTS = 8
"""The pool is made of so many mappings, so that a part of it can be given back."""
MAP_HUGETLB = 0x40000
HUGE = 2 * 2**20

BLOCK = b"\1" * 2**20


class HostPool:
    """Memory that a rank holds from its start to its end.

    Kinds: "anon" private anonymous memory (SGLang 0.5.4 to 0.5.12: torch.empty), "shared" MAP_SHARED|MAP_ANONYMOUS (since
    0.5.13), "memfd" a memfd (its storage backend shm), "huge" huge pages, where there are enough of them, or else "shared",
    "none" nothing.
    """

    def __init__(self, kind: str, name: str, say: Callable[[str], None]) -> None:
        """Prepare; `say` writes a line to the server's log."""
        self._kind = kind
        self._name = name
        self._say = say
        self._parts: list[mmap.mmap] = []

    def allocate(self, size: int, pause: Callable[[float], None]) -> None:
        """Allocate and touch `size` bytes more; `pause(share)` is called after each part with the part's share of the whole.

        Raises:
            OSError: no memory of that kind.
        """
        if self._kind == "none" or size == 0:
            pause(1.0)
            return
        for _ in range(PARTS):
            part = self._map(max(size // PARTS, mmap.PAGESIZE))
            for begin in range(0, len(part), len(BLOCK)):
                part[begin : begin + len(BLOCK)] = BLOCK[: len(part) - begin]
            self._parts.append(part)
            pause(1 / PARTS)

    def shrink(self, fraction: float) -> None:
        """Give back a part of the memory (0…1), rounded down to whole mappings."""
        for _ in range(int(len(self._parts) * min(max(fraction, 0.0), 1.0))):
            self._parts.pop().close()

    def _map(self, size: int) -> mmap.mmap:
        if self._kind == "anon":
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if self._kind == "huge":
            whole = -(-size // HUGE) * HUGE
            try:
                return mmap.mmap(-1, whole, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
            except OSError as error:
                # As alloc_mmap() does it (mem_cache/storage/mmap/mmap_allocator.py, 0.5.23).
                ignored = "SGLANG_HUGEPAGE_SIZE=2MB will be ignored."
                self._say(f"Hugepage mmap via libc failed ({error}); falling back to plain mmap. {ignored}")
        if self._kind == "memfd":
            fd = os.memfd_create(f"sglang_host_pool_{self._name}")
            try:
                os.ftruncate(fd, size)
                return mmap.mmap(fd, size, flags=mmap.MAP_SHARED)
            finally:
                os.close(fd)
        return mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
