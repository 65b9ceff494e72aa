"""Bytes, and their two spellings that people mix up: GB (10^9) and GiB (2^30). Everything inside the daemon is in bytes.

SGLang prints both under the name "GB": lines about GPU memory and the KV cache divide by 2^30, lines about the host pool
(`Allocating … GB host memory`) by 10^9 (mem_cache/memory_pool.py, memory_pool_host.py). 10.42 "GB" of the one are 11.19 of
the other.
"""

from decimal import Decimal, InvalidOperation

GB = 10**9
GIB = 2**30


def from_gb(amount: str | float) -> int:
    """Bytes of an amount in GB (10^9), to the nearest byte.

    Raises:
        ValueError: no finite number.
    """
    return _bytes(amount, GB)


def from_gib(amount: str | float) -> int:
    """Bytes of an amount in GiB (2^30), to the nearest byte.

    Raises:
        ValueError: no finite number.
    """
    return _bytes(amount, GIB)


def format_gb(amount: float, digits: int = 2) -> str:
    """`358_158_155_520` → "358.16 GB"."""
    return f"{amount / GB:.{digits}f} GB"


def format_gib(amount: float, digits: int = 1) -> str:
    """`358_158_155_520` → "333.6 GiB"."""
    return f"{amount / GIB:.{digits}f} GiB"


def _bytes(amount: str | float, unit: int) -> int:
    try:
        return round(Decimal(str(amount)) * unit)
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"not an amount of memory: {str(amount)[:40]!r}") from error
