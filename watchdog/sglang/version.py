"""Versions of SGLang as they name themselves ("0.5.9", "0.5.4.post3", "0.5.11rc1", "0.5.9.dev12+g1a2b3c4"), and their order."""

import re
from functools import lru_cache
from typing import NamedTuple

_VERSION = re.compile(
    r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?P<pre>(?:\.?(?:a|b|rc|dev)\d*)+)?(?:\.?post(?P<post>\d{1,6}))?"
    r"(?P<dev>\.dev\d*)?(?:\+\S*)?"
)


class Version(NamedTuple):
    """A version, comparable: a release candidate or development build comes before its release, a post release after it."""

    major: int
    minor: int
    patch: int
    post: int
    """0 for the release itself, n for its n-th post release, -1 for what came before it."""


@lru_cache(maxsize=64)
def parse_version(text: str | None) -> Version | None:
    """The version that `text` names; None where it names none ("0.0.0" of a build without tags included)."""
    match = _VERSION.fullmatch(text.strip()) if text is not None else None
    if match is None:
        return None
    post = int(match["post"] or 0)
    if match["pre"] and not post:
        post = -1
    version = Version(int(match[1]), int(match[2]), int(match[3] or 0), post)
    return None if version[:3] == (0, 0, 0) else version


def at_least(version: str | None, first: str) -> bool | None:
    """Whether `version` is `first` or later; None where that is unknown."""
    have, need = parse_version(version), parse_version(first)
    return None if have is None or need is None else have >= need


def is_new(version: str | None, last_old: str, first_new: str) -> bool | None:
    """Whether a change that came between two known versions is in `version`.

    None where the version is unknown, or lies between the two: nobody has read what it does.
    """
    have, old, new = parse_version(version), parse_version(last_old), parse_version(first_new)
    if have is None or old is None or new is None or old < have < new:
        return None
    return have >= new
