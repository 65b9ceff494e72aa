"""Lengths of time as people write them on the command line."""

import argparse
import re

FACTORS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
FORM = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?(?:min|[smhd]))+", re.ASCII)
PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(min|[smhd])", re.ASCII)
LONGEST_S = 365 * 86400
EXPECTED = "write a number and its unit (s, m, h or d), such as 30s, 30m, 2h, 1d or 1h30m"


def seconds(text: str) -> float:
    """A length of time in seconds: "30s", "30m" (or "30min"), "2h", "1d", "1h30m"; more than 0, a year at most.

    Raises:
        argparse.ArgumentTypeError: it is none; the message says how it is written.
    """
    word = text.strip().lower()
    if not FORM.fullmatch(word):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no length of time; {EXPECTED}")
    total = sum(float(number) * FACTORS[unit] for number, unit in PART.findall(word))
    if not 0 < total <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be more than nothing and at most a year (365d)")
    return total


def limit(text: str) -> float:
    """A limit in seconds: a length of time as `seconds` has it, or a plain number of seconds.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    return seconds(f"{text.strip()}s" if re.fullmatch(r"\s*\d{1,9}(\.\d{1,6})?\s*", text, re.ASCII) else text)
