"""How incident bundles are called: 2026-01-14T02-00-00Z-REASON, and with -2, -3 … behind it where there is one already."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

SUMMARY = "summary.md"
"""The page in each bundle that is for people."""

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)Z-([A-Za-z0-9_-]{1,64}?)(?:-\d{1,9})?", re.ASCII)
"""No dot and no slash: nothing that matches can lead elsewhere."""


class Named(NamedTuple):
    """What a bundle's name says: when the decision was taken (RFC 3339, UTC), and for what reason."""

    at: str
    reason: str


def folder_name(at: datetime, reason: str) -> str:
    """The name of the first bundle of this second and reason."""
    word = re.sub(r"[^A-Za-z0-9_-]", "", reason)[:64] or "Incident"
    return f"{at.astimezone(UTC):%Y-%m-%dT%H-%M-%SZ}-{word}"


def named(name: str) -> Named | None:
    """What a name says; None for what is no bundle's."""
    found = _NAME.fullmatch(name)
    return None if found is None else Named(f"{found[1]}T{found[2]}:{found[3]}:{found[4]}Z", found[5])
