"""Where timelines lie between one daemon and the next: STATE/SERVER/timeline.json, written whole.

All of it blocks: for a worker.
"""

from pathlib import Path

import msgspec

from watchdog import durable, regular
from watchdog.web.timeline import VERSION, Kept

NAME = "timeline.json"
CAP = 16 << 20


class Version(msgspec.Struct):
    """The part that each version of the file has."""

    version: int


def take(home: Path) -> Kept | None:
    """What the daemon before us kept; None if there is nothing.

    Raises:
        OSError: the file cannot be read.
        ValueError: it cannot be used and was put aside; the text says so.
    """
    path = home / NAME
    try:
        data = regular.read(path, CAP + 1)
    except FileNotFoundError:
        return None
    except regular.NotRegularError as e:
        kept = durable.aside(path)
        raise ValueError(f"{path} cannot be used ({e.strerror}){f'; kept as {kept}' if kept else ''}") from e
    try:
        return _read(data)
    except (ValueError, RecursionError) as e:  # msgspec's and UnicodeDecodeError are ValueErrors
        kept = durable.aside(path)
        raise ValueError(f"{path} cannot be used ({e}){f'; kept as {kept}' if kept else ''}") from e


def _read(data: bytes) -> Kept:
    if len(data) > CAP:
        raise ValueError(f"larger than {CAP >> 20} MiB")
    if (version := msgspec.json.decode(data, type=Version).version) != VERSION:
        raise ValueError(f"has version {version}, this program knows {VERSION}")
    return msgspec.json.decode(data, type=Kept)


def put(home: Path, kept: Kept) -> None:
    """Replace what is kept.

    Raises:
        OSError: it could not be written.
    """
    durable.write(home / NAME, msgspec.json.encode(kept))
