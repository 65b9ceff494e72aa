"""The way to the daemon: where its socket and its state lie, and asking it."""

import os
import tomllib
from pathlib import Path
from typing import Any

from watchdog import regular
from watchdog.asking import REQUEST_LIMIT_S, ControlError, ask
from watchdog.cli.exits import CANNOT, CommandError

MAX_BYTES = 1 << 20
RUNTIME_DIR = "/run/sglang-watchdog"
STATE_DIR = "/var/lib/sglang-watchdog"
"""Where both lie unless the configuration says otherwise; systemd's RuntimeDirectory= and StateDirectory= say the same."""


def folder(config: str, key: str, default: str) -> Path:
    """A folder from the section [daemon] of the configuration.

    Only that one key is read, so that a daemon which runs with an older configuration can still be asked while the file has
    faults, and so that asking is quick.
    """
    try:
        daemon = tomllib.loads(regular.read(Path(config), MAX_BYTES).decode("utf-8-sig")).get("daemon")
    except (OSError, ValueError):
        return Path(default)
    value = daemon.get(key) if isinstance(daemon, dict) else None
    return Path(value) if isinstance(value, str) and value else Path(default)


def runtime_dir(config: str) -> Path:
    """Where the control socket lies."""
    return folder(config, "runtime_dir", RUNTIME_DIR)


def state_dir(config: str) -> Path:
    """Where state, records and bundles lie."""
    return folder(config, "state_dir", STATE_DIR)


def kept(config: str, server: str | None) -> list[Path]:
    """The folders of all servers in the state folder, or that of one, in the order of their names.

    A name is compared and never put into a path or a pattern: it is what somebody typed.

    Raises:
        OSError: the state folder is not there, or cannot be read.
    """
    with os.scandir(state_dir(config)) as entries:
        return sorted(Path(entry.path) for entry in entries if server in (None, entry.name) and entry.is_dir())


def unreadable(folder: Path, e: OSError) -> CommandError:
    """What to say of something in the state folder that cannot be read."""
    cures = {PermissionError: "run this as root or as the daemon's user", FileNotFoundError: "has the daemon ever run?"}
    cure = cures.get(type(e))
    return CommandError(f"{e.filename or folder} cannot be read ({e.strerror}){f': {cure}' if cure else ''}", CANNOT)


def asked(config: str, request: dict[str, Any], limit_s: float = REQUEST_LIMIT_S) -> dict[str, Any]:
    """The daemon's answer.

    Raises:
        CommandError: it cannot be asked, or says that the request is wrong.
    """
    try:
        return ask(runtime_dir(config), {k: v for k, v in request.items() if v is not None}, limit_s)
    except ControlError as e:
        raise CommandError(str(e), CANNOT) from e
