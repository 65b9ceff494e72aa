"""The watchdog's own files on a host: unit, user, polkit rule, credentials; and whether its program can run as that user."""

import importlib.resources
import json
import os
import re
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

NAME = "sglang-watchdog"
USER = "sglang-watchdog"
UNIT = Path("/etc/systemd/system/sglang-watchdog.service")
SYSUSERS = Path("/etc/sysusers.d/sglang-watchdog.conf")
STACKS_SOCKET = "sglang-watchdog-stacks.socket"
STACKS_UNITS = (STACKS_SOCKET, "sglang-watchdog-stacks@.service")
RULE = Path("/etc/polkit-1/rules.d/50-sglang-watchdog.rules")
CREDENTIALS = Path("/etc/systemd/system/sglang-watchdog.service.d/50-credentials.conf")
PACKAGED = (Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"))
PIPX = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install"
"""How to install for all users: --global came with pipx 1.5; Debian 12 has 1.1, Ubuntu 24.04 has 1.4."""

HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What the service does not see: ProtectHome= and PrivateTmp= of its unit."""


def drop_in(unit: str) -> Path:
    """Where the drop-in for a server's unit lies."""
    return Path("/etc/systemd/system") / f"{unit}.d" / "50-sglang-watchdog.conf"


def shipped(name: str) -> str:
    """The text of a file of `units/`: in an installed package beside this module, in a checkout at its top."""
    packed = importlib.resources.files("watchdog.setup") / "units" / name
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / "units" / name).read_text(encoding="utf-8")


def program() -> Path:
    """The command of this installation: in its own environment, or else on the PATH."""
    own = Path(sys.prefix) / "bin" / NAME
    if own.exists():
        on_path = Path("/usr/bin") / NAME
        return on_path if on_path.exists() and on_path.resolve() == own.resolve() else own
    found = shutil.which(NAME)
    return Path(found) if found else own


def packaged() -> bool:
    """Whether a distribution's package brings unit and user along."""
    return any((folder / UNIT.name).exists() for folder in PACKAGED)


def unit(path: Path) -> str:
    """The service's unit, with the place of this installation's program."""
    text = shipped("sglang-watchdog.service")
    return re.sub(r"^ExecStart=\S+", lambda _: f"ExecStart={path}", text, flags=re.MULTILINE)


def stacks_unit(name: str, python: Path) -> str:
    """A unit of the stacks helper, with the place of this installation's interpreter."""
    return re.sub(r"^ExecStart=\S+", lambda _: f"ExecStart={python}", shipped(name), flags=re.MULTILINE)


def stacks_installed() -> bool:
    """Whether there is a stacks helper that could be enabled, or disabled."""
    return any((folder / STACKS_SOCKET).exists() for folder in (UNIT.parent, *PACKAGED))


def rule(units: Iterable[str]) -> str:
    """The polkit rule for these units, by their canonical names."""
    names = ", ".join(json.dumps(name) for name in sorted(set(units)))
    text, count = re.subn(
        r"^( *var units = )\[.*\];$", lambda m: f"{m[1]}[{names}];", shipped("sglang-watchdog.rules"), flags=re.MULTILINE
    )
    assert count == 1, "the shipped rule has one list of units"
    return text


def credentials(files: Mapping[str, str]) -> str:
    """The drop-in that hands keys to the service: name of the credential → file."""
    lines = "".join(f"LoadCredential={name}:{path.replace('%', '%%')}\n" for name, path in sorted(files.items()))
    return f"# Written by `sglang-watchdog setup`: files that only root can read (systemd.exec(5)).\n[Service]\n{lines}"


def known_credentials(path: Path = CREDENTIALS) -> dict[str, str]:
    """The credentials of an earlier run: name → file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    return {name: file.replace("%%", "%") for name, file in re.findall(r"^LoadCredential=([^:\n]+):(.+)$", text, re.MULTILINE)}


def unreachable(path: Path) -> str | None:
    """Why the service could not run a program at this place; None if it could."""
    seen = {path.absolute(), path.resolve(), Path(sys.executable).resolve(), Path(sys.base_prefix).resolve()}
    if not re.fullmatch(r"[\w/.+@~-]+", str(path), re.ASCII):
        return f"{path} has characters that cannot stand in ExecStart="
    for place in sorted(seen):
        for folder in HIDDEN:
            if place.is_relative_to(folder):
                return f"{place} lies below {folder}, which the service cannot see"
        for each in (place, *place.parents):
            try:
                mode = each.stat().st_mode
            except OSError as e:
                return f"{each} cannot be looked at ({e.strerror})"
            if not mode & stat.S_IXOTH:
                return f"{each} is closed to other users (mode {stat.S_IMODE(mode):o}), and the service runs as {USER}"
    return None


def code() -> list[Path]:
    """What this interpreter runs: itself, its library, and the folders of its modules with this package."""
    library = Path(sysconfig.get_config_var("LIBDIR") or "/") / (sysconfig.get_config_var("LDLIBRARY") or "none")
    modules = [path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))]
    modules += sys.path if sys.flags.safe_path else sys.path[1:]  # else the first is where the command lies, or was given
    places: tuple[str | Path, ...] = (
        sys.executable,
        Path(sys.prefix) / "pyvenv.cfg",
        library,
        Path(__file__).parents[1],
        *modules,
    )
    return [path for path in dict.fromkeys(Path(place) for place in places) if path.is_absolute() and path.exists()]


def changeable(places: Iterable[Path], trusted: frozenset[int] = frozenset((0,))) -> str | None:
    """Why another user than root could change what lies at one of these places; None if nobody could.

    Looked at are they, all that is in them, the folders above, and whatever is on the way where one of these is a link.

    Args:
        places: files and folders.
        trusted: users that may change them.
    """
    waiting = [(place, True) for place in places]
    seen: set[tuple[Path, bool]] = set()
    while waiting:
        path, inside = waiting.pop()
        if (path, True) in seen or (path, inside) in seen:
            continue
        seen.add((path, inside))
        try:
            found = path.lstat()
            if (why := _open_to_others(path, found, trusted)) is not None:
                return why
            if stat.S_ISLNK(found.st_mode):
                target = path.parent.resolve() / path.readlink()
                waiting.append((target.parent, False))  # which may have links, too
                # By its real name: links that lead in a circle come to an end so.
                real = target.resolve() if target.name == ".." else target.parent.resolve() / target.name
                waiting.append((real, inside))
            elif inside and stat.S_ISDIR(found.st_mode):
                waiting += [(each, True) for each in path.iterdir()]
        except (FileNotFoundError, NotADirectoryError, RuntimeError):  # a link that leads nowhere, or to itself
            continue
        except OSError as e:
            return f"{path} cannot be looked at ({e.strerror})"
        waiting.append((path.parent, False))
    return None


def _open_to_others(path: Path, found: os.stat_result, trusted: frozenset[int]) -> str | None:
    if found.st_uid not in trusted:
        return f"{path} belongs to the user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):  # its mode means nothing, and its folder is looked at
        return None
    # In a folder with the sticky bit nobody can replace what is root's.
    of_others = found.st_mode & stat.S_IWOTH and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX)
    of_group = found.st_mode & stat.S_IWGRP and found.st_gid != 0
    return f"{path} can be written to by others (mode {stat.S_IMODE(found.st_mode):o})" if of_others or of_group else None
