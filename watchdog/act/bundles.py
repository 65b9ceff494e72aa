"""Where incident bundles lie: STATE/SERVER/incidents/2026-01-14T02-00-00Z-REASON/, within a size and an age."""

import contextlib
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from watchdog.act import redact
from watchdog.act.bundle_names import SUMMARY, named

FOLLOWED = 600
"""Characters of one line of what followed."""
PARTIAL = ".partial"
"""The end of a folder's name while it is being written; what is left of one after a crash of ours is removed."""


def write(home: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Write a bundle under a name of its own; whole, or not at all. Blocking.

    Args:
        home: the folder of the bundles.
        name: the wished name; a number is added where there is one already.
        files: name → content.

    Returns:
        The bundle's folder.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = home / (name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    try:
        for file, content in files.items():
            path = partial / file
            path.touch(mode=0o600)
            path.write_bytes(content)
        final = home / name
        number = 2
        while final.exists():
            final = home / f"{name}-{number}"
            number += 1
        return partial.rename(final)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def follow(bundle: Path, lines: list[str]) -> None:
    """Append what followed to the end of a bundle's summary. Blocking.

    Raises:
        OSError: the summary is gone, or the disk is full.
    """
    with (bundle / SUMMARY).open("r+", encoding="utf-8") as file:  # never begun anew where it was taken away
        file.seek(0, 2)
        file.write("".join(f"* {redact.line(' '.join(line.split()), FOLLOWED)}\n" for line in lines))


def prune(home: Path, now: datetime | None, max_bytes: int, max_days: float) -> list[str]:
    """Remove the oldest bundles until the rest is within its limits, and what a crash left half written. Blocking.

    Only folders with a bundle's name are touched.

    Args:
        home: the folder of the bundles.
        now: the time; None where the wall clock is not sure (clock.Clock.sure): then nothing is too old.
        max_bytes: so much is kept, whatever its age.
        max_days: so long it is kept.

    Returns:
        The names of those that were removed.
    """
    bundles: list[tuple[datetime, Path, int]] = []
    removed: list[str] = []
    with contextlib.suppress(OSError):
        for folder in home.iterdir():
            found = named(folder.name.removesuffix(PARTIAL))
            if folder.is_symlink() or not folder.is_dir() or found is None:
                continue
            if folder.name.endswith(PARTIAL):
                shutil.rmtree(folder, ignore_errors=True)
                continue
            with contextlib.suppress(ValueError, OSError):
                bundles.append((datetime.fromisoformat(found.at), folder, size(folder)))
    bundles.sort(key=lambda bundle: (bundle[0], bundle[1].name), reverse=True)
    total = 0
    for made, folder, length in bundles:
        total += length
        if total > max_bytes or (now is not None and now - made > timedelta(days=max_days)):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
    return removed


def size(folder: Path) -> int:
    """Bytes of the files in a bundle.

    Raises:
        OSError: it went away.
    """
    return sum(path.lstat().st_size for path in folder.iterdir())
