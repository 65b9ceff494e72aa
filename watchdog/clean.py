"""Observations without API keys, passwords and what users asked: before they are kept, judged or told anywhere."""

from typing import TypeVar

import msgspec

from watchdog import keyring
from watchdog.act import redact
from watchdog.observation import Log, Metrics, Observation, Probe, decode, encode

K = TypeVar("K", bound=Observation)


def without_secrets(x: K) -> K:
    """The observation as it may be kept."""
    if isinstance(x, Log):
        clean = redact.secrets(redact.prompts(x.message))
        return x if clean == x.message else msgspec.structs.replace(x, message=clean)
    if isinstance(x, Probe) and x.outcome != "ok":
        body, detail = (None if text is None else redact.secrets(redact.prompts(text)) for text in (x.body, x.detail))
        if (body, detail) != (x.body, x.detail):
            x = msgspec.structs.replace(x, body=body, detail=detail)
    return x if isinstance(x, Metrics) or not keyring.known() else _struck(x)


def _struck(x: K) -> K:
    """Without the known keys, wherever in it they stand."""
    text = encode(x).decode()
    clean = keyring.struck(text)
    if clean == text:
        return x
    found = decode(clean)
    assert isinstance(found, type(x))
    return found
