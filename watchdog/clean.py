"""Observations without API keys, passwords and what users asked: before they are kept, judged or told anywhere.

This is the one place through which all that comes from outside passes (watch.Watch.take): what the journal, the status, the page,
the state, the flight record, the alerts and the bundle tell is made of observations. What a bundle gathers by itself, in files
and from commands, passes act/redact.py on its own.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from watchdog import keyring
from watchdog.act import redact
from watchdog.observation import Acted, Answer, Kernel, Log, Metrics, Observation, Operator, Probe, Proc, Procs, Self, Server

K = TypeVar("K", bound=msgspec.Struct)
X = TypeVar("X", bound=Observation)

FREE: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Probe: ("answer", "body", "detail", "earlier", "fresh", "served", "adapters"),
    Answer: ("text", "reasoning", "model"),
    Metrics: ("error",),
    Server: ("version", "args", "env", "memory_usage"),
    Procs: ("procs",),
    Proc: ("name",),
    Self: ("fallen",),
    Operator: ("reason",),
    Acted: ("detail",),
}
"""The fields with text from outside (a log line has its own way). In no other field is anything struck: a number, a state or a
name of ours would not be what it was."""


def without_secrets(x: X) -> X:
    """The observation as it may be kept."""
    if isinstance(x, Log | Kernel):
        message = _quoted(x.message)
        return x if message == x.message else msgspec.structs.replace(x, message=message)
    if isinstance(x, Server | Self | Operator | Acted):
        return _each(x, redact.secrets)
    if isinstance(x, Probe) and x.outcome != "ok":
        x = _each(x, _quoted, ("body", "detail"))
    return _each(x, keyring.struck) if keyring.known() else x


def _quoted(text: str) -> str:
    return redact.secrets(redact.prompts(text))


def _each(x: K, clean: Callable[[str], str], fields: tuple[str, ...] | None = None) -> K:
    """With each text in its free fields cleaned."""
    changes = {}
    for name in FREE.get(type(x), ()) if fields is None else fields:
        told = getattr(x, name)
        cleaned = _texts(told, clean)
        if cleaned != told:
            changes[name] = cleaned
    return msgspec.structs.replace(x, **changes) if changes else x


def _texts(content: Any, clean: Callable[[str], str]) -> Any:
    """Each text in it cleaned; names are those of our own fields, or of arguments that are cleaned by their names."""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, dict):
        return {name: _texts(each, clean) for name, each in content.items()}
    if isinstance(content, list):
        return [_texts(each, clean) for each in content]
    return _each(content, clean) if isinstance(content, msgspec.Struct) else content
