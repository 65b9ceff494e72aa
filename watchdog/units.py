"""Bytes, and their two spellings that people mix up: GB (10^9) and GiB (2^30). Everything inside the daemon is in bytes.

SGLang prints both under the name "GB": lines about GPU memory and the KV cache divide by 2^30, lines about the host pool
(`Allocating … GB host memory`) by 10^9 (mem_cache/memory_pool.py, memory_pool_host.py). 10.42 "GB" of the one are 11.19 of
the other.
"""

from decimal import Decimal, InvalidOperation

GB = 10**9
GIB = 2**30
LEAST_DIGITS = 9
"""A byte is 0.000000001 GB."""


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
    """`358_158_155_520` → "358.16 GB"; what would be shown as nothing gets the digits that it needs: "0.0004 GB"."""
    return f"{_figure(amount / GB, digits)} GB"


def format_gib(amount: float, digits: int = 1) -> str:
    """`358_158_155_520` → "333.6 GiB"; likewise."""
    return f"{_figure(amount / GIB, digits)} GiB"


def _figure(amount: float, digits: int) -> str:
    while 0 < abs(amount) < 0.5 * 10.0**-digits and digits < LEAST_DIGITS:
        digits += 1
    return f"{amount:.{digits}f}"


def _bytes(amount: str | float, unit: int) -> int:
    try:
        return round(Decimal(str(amount)) * unit)
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"not an amount of memory: {str(amount)[:40]!r}") from error
