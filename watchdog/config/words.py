"""Types and values of the configuration in plain English, for error messages and for the reference."""

import json
import math
import re
import typing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SECRET = re.compile(r"(key|token|secret|password|webhook_url)$")


def bare(kind: Any) -> Any:
    """The type below its annotations."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def notes(kind: Any) -> list[Meta]:
    """The annotations of a type: bounds, form and meaning."""
    return [m for m in getattr(kind, "__metadata__", ()) if isinstance(m, Meta)]


def meaning(kind: Any) -> str:
    """What a key is for: the description that its type carries."""
    return next((m.description for m in notes(kind) if m.description), "")


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a key takes, where it takes only some; else nothing."""
    inner = bare(kind)
    options = typing.get_args(inner) if typing.get_origin(inner) is not Literal else (inner,)
    return next((typing.get_args(o) for o in options if typing.get_origin(o) is Literal), ())


def bounds(kind: Any) -> tuple[float | None, bool, float | None]:
    """The least value, whether it is itself allowed, and the greatest value."""
    low = next((m.ge for m in notes(kind) if m.ge is not None), None)
    above = next((m.gt for m in notes(kind) if m.gt is not None), None)
    high = next((m.le for m in notes(kind) if m.le is not None), None)
    return (low, True, high) if above is None else (above, False, high)


def expected(kind: Any) -> str:
    """What a key takes, such as "a whole number from 1 to 256"."""
    if words := choices(kind):
        quoted = [f'"{word}"' for word in words]
        return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    inner = bare(kind)
    if inner is bool:
        return "true or false"
    if inner in (int, float):
        low, inclusive, high = bounds(kind)
        number = "a whole number" if inner is int else "a number"
        if low is None or high is None:
            return number
        return f"{number} {'from' if inclusive else 'above'} {shown(low)} {'to' if inclusive else 'and at most'} {shown(high)}"
    if typing.get_origin(inner) is list:
        return 'a list of texts, such as ["one", "two"]'
    return next((m.title for m in notes(kind) if m.title), 'text in quotes, such as "some text"')


def shown(value: Any, key: str = "") -> str:
    """A value as it stands in the file, at most 60 characters; what may be a secret is left out."""
    if isinstance(value, str) and SECRET.search(key):
        return '"…"'
    if isinstance(value, dict):
        return "{ … }"
    if isinstance(value, str):
        value = re.sub(r"//[^/@]*@", "//…@", value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    plain = isinstance(value, str | bool | list)
    try:
        return printable(json.dumps(value, ensure_ascii=False, default=str) if plain else str(value))
    except ValueError:  # a hexadecimal number of more than 4300 decimal digits: int has no text for it
        return "…"


def printable(text: str) -> str:
    """Text on one line of at most 60 characters, without control characters."""
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:60]) + text[60:61]
    return text if len(text) <= 60 else f"{text[:59]}…"


def sort_of(value: Any) -> str:
    """What sort of value stands in a file: "text", "a number" …."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a table"
    return "a date or a time"


def wrong(value: Any, kind: Any) -> str:
    """What is wrong with `value`, given that it is no `kind`."""
    inner = bare(kind)
    if choices(kind) and isinstance(value, str):
        return "is not one of the choices"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if inner in (int, float) and number:
        low, _, high = bounds(kind)
        if high is not None and value > high:
            return "is too large"
        if low is not None and value <= low:
            return "is too small"
        return "is not a number" if math.isnan(value) else "is not a whole number"
    if inner is str and isinstance(value, str):
        return "has not the form that is needed"
    if typing.get_origin(inner) is list and isinstance(value, list):
        return "has entries that are not text"
    return f"is {sort_of(value)}"


def section_of(kind: Any, base: type[msgspec.Struct]) -> Any:
    """The section that a type stands for: itself, or that of the tables in its list; None for a plain value."""
    inner = bare(kind)
    if typing.get_origin(inner) is list:
        inner = bare(typing.get_args(inner)[0])
    return inner if isinstance(inner, type) and issubclass(inner, base) else None
