"""The keys that this process knows: they are struck out of every text from outside, whatever stands around them."""

import json
import threading

from watchdog.observation import STRUCK

LEAST = 6
"""A shorter key is not struck out: it would be found in words that have nothing to do with it."""
MOST = 64
"""So many keys are remembered; the oldest is forgotten when a key was renewed so often."""

_lock = threading.Lock()
_known: dict[str, None] = {}
_forms: tuple[str, ...] = ()


def remember(key: str) -> None:
    """From now on strike this key out. May be called in any thread; the same key costs nothing."""
    global _forms  # noqa: PLW0603  # texts are struck in every part of the program, and all must know the same keys
    key = key.strip()
    if len(key) < LEAST or key in _known:
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
