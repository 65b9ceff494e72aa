"""Observations without API keys, passwords and what users asked: before they are kept, judged or told anywhere.

This is the one place through which all that comes from outside passes (watch.Watch.take): what the journal, the status, the page,
the state, the flight record, the alerts and the bundle tell is made of observations. What a bundle gathers by itself, in files
and from commands, passes act/redact.py on its own.
"""

from typing import Any, TypeVar

import msgspec

from watchdog import keyring
from watchdog.act import redact
from watchdog.observation import Acted, Kernel, Log, Metrics, Observation, Operator, Probe, Self, Server, decode, encode

K = TypeVar("K", bound=Observation)


def without_secrets(x: K) -> K:
    """The observation as it may be kept."""
    if isinstance(x, Log | Kernel):
        message = redact.secrets(redact.prompts(x.message))
        return x if message == x.message else msgspec.structs.replace(x, message=message)
    if isinstance(x, Probe) and x.outcome != "ok":
        body, detail = (None if text is None else redact.secrets(redact.prompts(text)) for text in (x.body, x.detail))
        if (body, detail) != (x.body, x.detail):
            x = msgspec.structs.replace(x, body=body, detail=detail)
    elif isinstance(x, Server | Self | Operator | Acted):  # the other kinds with free text in them
        x = _each(x)
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


def _each(x: K) -> K:
    """With each text in it cleaned; the names are those of our own fields, or of arguments that are cleaned by their names."""
    told = msgspec.to_builtins(x)
    clean = _texts(told)
    return x if clean == told else msgspec.convert(clean, type(x))


def _texts(content: Any) -> Any:
    if isinstance(content, str):
        return redact.secrets(content)
    if isinstance(content, dict):
        return {name: _texts(each) for name, each in content.items()}
    return [_texts(each) for each in content] if isinstance(content, list) else content
