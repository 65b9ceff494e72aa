"""Numbers and lengths of time as people read them: "1 canary", "3 canaries", "3 min 20 s"."""

import math
import re

SPANS = ((60, 1, "min", "s", 60), (3600, 60, "h", "min", 24), (86400, 3600, "d", "h", 10**9))
"""Seconds of the larger and of the smaller unit, their names, and how many of the larger are too many for it."""

NOT_RESTARTED = "not restarted: "
"""How the account of a restart begins that was never begun."""


def counted(number: float, one: str, many: str | None = None) -> str:
    """A number of things: "1 canary", "3 canaries".

    Args:
        number: how many; a whole number, whatever its type.
        one: the word for one thing.
        many: the word for several; None: `one` with an "s".
    """
    return f"{number:.0f} {one if round(number) == 1 else many or f'{one}s'}"


def span(seconds: float | None) -> str:
    """A length of time: "0.4 s", "12 s", "3 min 20 s", "5 h 12 min", "3 d 4 h"; "?" if unknown, or longer than can be said."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    big, small, name, below, _ = next(unit for unit in SPANS if whole < unit[0] * unit[4])
    rest = whole % big // small
    return f"{whole // big} {name}" + (f" {rest} {below}" if rest else "")


def gist(sentence: str) -> str:
    """What a sentence says, without its figures and details: equal for two that a reader need not see both."""
    head = re.split(r"[,;]", re.sub(r" ?\([^)]*\)", "", sentence))[0]
    return re.sub(r"\d[\d.]*( (s|min|h|d|%|GB)\b)?( \d+ (s|min|h)\b)?", "#", head)


def lasting(seconds: float) -> str:
    """For how long something has been so: "for 3 min 20 s", "just now"."""
    return "just now" if seconds < 1 else f"for {span(seconds)}"


def quoted(words: str, cap: int = 160) -> str:
    """Somebody else's words: in quotation marks, on one line, cut after `cap` characters."""
    words = " ".join(words.split())
    return f"“{words if len(words) <= cap else f'{words[: cap - 1].rstrip()}…'}”"


def ago(seconds: float) -> str:
    """How long ago: "just now", "12 s ago", "3 min 20 s ago"."""
    return "just now" if seconds < 1 else f"{span(round(seconds))} ago"
