"""journald's own limit on lines (journald.conf(5)): reads its configuration files as systemd does."""

import re
from collections.abc import Iterable
from pathlib import Path

DEFAULT_INTERVAL_S = 30.0
DEFAULT_BURST = 10_000
FOLDERS = ("/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd")
"""Later ones win; a file of the same name in a later folder takes the place of the earlier one (systemd.syntax(7))."""

_UNITS = {"us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600}
_LONGER = {"second": 1, "seconds": 1, "minute": 60, "minutes": 60, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)")


def limit(texts: Iterable[str]) -> tuple[float | None, int | None]:
    """(interval in seconds, burst) after all files, the defaults where none says anything; None for a value that is none."""
    interval: float | None = DEFAULT_INTERVAL_S
    burst: int | None = DEFAULT_BURST
    for text in texts:
        for line in text.splitlines():
            key, equals, value = line.strip().partition("=")
            key, value = key.strip(), value.strip()
            if not equals:
                continue
            if key in ("RateLimitIntervalSec", "RateLimitInterval"):
                interval = seconds(value) if value else DEFAULT_INTERVAL_S
            elif key == "RateLimitBurst":
                burst = int(value) if value.isdecimal() else None if value else DEFAULT_BURST
    return interval, burst


def seconds(text: str) -> float | None:
    """A span as systemd writes it: "30s", "1min 30s", "5" (systemd.time(7)); None if it is none."""
    total, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        factor = (_UNITS | _LONGER).get(part[2]) if part else None
        if part is None or factor is None:
            return None
        total += float(part[1]) * factor
        position = part.end()
    return total if text else None


def read(namespace: str = "", root: Path = Path("/")) -> tuple[float | None, int | None]:
    """The limit of the journald that takes a unit's lines, of a journal namespace where it has one. Blocking."""
    name = f"journald@{namespace}.conf" if namespace else "journald.conf"
    main: Path | None = None
    extra: dict[str, Path] = {}
    for folder in FOLDERS:
        base = root / folder.lstrip("/")
        if (base / name).is_file():
            main = base / name
        try:
            extra |= {path.name: path for path in (base / f"{name}.d").glob("*.conf")}
        except OSError:
            continue
    files = ([main] if main is not None else []) + [extra[key] for key in sorted(extra)]
    texts = []
    for path in files:
        try:
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None, None
    return limit(texts)
