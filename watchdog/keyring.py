"""The keys that this process knows: they are struck out of every text from outside, whatever stands around them."""

import json
import threading

from watchdog.observation import STRUCK

LEAST = 6
"""A shorter key is not struck out: it would be found in words that have nothing to do with it."""
LEAST_PLAIN = 16
"""Nor is a plain word or number shorter than this ("active", "123456"): it would be found in what has nothing to do with it, in
words that the judges read and in longer numbers. Where it is named, its form tells it (act/secret_forms.py)."""
MOST = 64
"""So many keys are remembered; the oldest is forgotten when a key was renewed so often."""

_lock = threading.Lock()
_known: dict[str, None] = {}
_forms: tuple[str, ...] = ()


def telling(key: str) -> bool:
    """Whether a text that has this key in it can only mean the key."""
    plain = key.isalpha() or key.isdecimal()
    return len(key) >= (LEAST_PLAIN if plain else LEAST)


def remember(key: str) -> None:
    """From now on strike this key out, if it is `telling`. May be called in any thread; the same key costs nothing."""
    global _forms  # noqa: PLW0603  # texts are struck in every part of the program, and all must know the same keys
    key = key.strip()
    if key in _known or not telling(key):
        return
    with _lock:
        _known[key] = None
        while len(_known) > MOST:
            del _known[next(iter(_known))]
        # A JSON text has quotes and backslashes of a key escaped. The longest comes first, since one may hold another.
        _forms = tuple(sorted({form for each in _known for form in (each, json.dumps(each)[1:-1])}, key=len, reverse=True))


def forget() -> None:
    """Know no key any more."""
    global _forms  # noqa: PLW0603  # see `remember`
    with _lock:
        _known.clear()
        _forms = ()


def known() -> bool:
    """Whether any key is known."""
    return bool(_forms)


def struck(text: str) -> str:
    """The text without the known keys."""
    for form in _forms:
        if form in text:
            text = text.replace(form, STRUCK)
    return text
