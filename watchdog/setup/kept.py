"""What a configuration that stands already says: a later `setup` keeps it, unless its command line says otherwise."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from watchdog import config
from watchdog.setup import configuration
from watchdog.setup.configuration import Wish
from watchdog.setup.host import Found

_TABLE = "\n# Taken from "


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration as it stands; all is empty where there is none.

    Attributes:
        mode: of the daemon; None where it cannot be told.
        gpus: how many it expects.
        wishes: by unit, what it says of the servers that a host does not show.
        tables: by unit, the text of a server's table; only where setup wrote it.
        raw: its tables as TOML has them.
        fault: why it cannot be used; None where it can.
    """

    mode: config.Mode | None = None
    gpus: int = 0
    wishes: dict[str, Wish] = {}
    tables: dict[str, str] = {}
    raw: dict[str, Any] = {}
    fault: str | None = None


def read(path: Path) -> Standing:
    """Read it."""
    if not path.exists():
        return Standing()
    raw: dict[str, Any] = {}
    try:
        raw = config.read(path)
        whole = config.parse(raw, str(path))
    except config.ConfigError as e:
        daemon = raw.get("daemon")
        mode = daemon.get("mode") if isinstance(daemon, dict) else None
        return Standing(mode=mode if mode in ("observe", "alert", "act") else None, raw=raw, fault=str(e))
    wishes = {
        s.unit: Wish(
            name=s.name,
            url=s.base_url if s.endpoint else None,
            key=s.api_key_file or None,
            stop_s=int(-(-s.restart.stop_limit_s // 1)),
        )
        for s in whole.servers
    }
    tables = {}
    for text in path.read_text(encoding="utf-8-sig").split(_TABLE)[1:]:
        if unit := re.search(r'^unit = "([^"\\]+)"$', text, re.MULTILINE):
            tables[unit[1]] = _TABLE + text
    return Standing(mode=whole.daemon.mode, gpus=whole.sources.gpus_expected, wishes=wishes, tables=tables, raw=raw)


def table(found: Found, wish: Wish, earlier: str | None) -> str:
    """The table of one server; the earlier one, where that was taken from the process and the server does not run now."""
    if earlier is None or found.told_by == "process" or "process" not in earlier.splitlines()[1]:
        return configuration.table(found, wish)
    for key, value in (("api_key_file", wish.key), ("base_url", wish.url), ("name", wish.name)):
        if value is None:
            continue
        line = f"{key} = {configuration.quoted(value)}\n"
        place = re.search(rf"^{key} = .*\n", earlier, re.MULTILINE)
        after = re.search(r"^unit = .*\n", earlier, re.MULTILINE)
        start, end = place.span() if place else (after.end(), after.end()) if after else (len(earlier), len(earlier))
        earlier = earlier[:start] + line + earlier[end:]
    return earlier


def lost(standing: Standing, fresh: Mapping[str, Any], asked: Sequence[str]) -> list[str]:
    """The settings of a configuration that a fresh one would not have.

    Args:
        standing: the one that stands.
        fresh: the tables of the one that would replace it.
        asked: what is to become another, such as "daemon.mode" or "a.service.name".
    """
    if standing.fault is not None:
        return []
    old, new = (dict(_flat(_effective(raw))) for raw in (standing.raw, fresh))
    return [name for name, _ in _flat(standing.raw) if name not in asked and old.get(name) != new.get(name)]


def _effective(raw: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(config.parse(dict(raw)))
    return found


def _flat(tables: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if key == "servers" and not above:
            for server in value:
                yield from _flat(server, f"{server['unit']}.")
        elif isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def names(units: Sequence[str], wishes: Mapping[str, Wish]) -> dict[str, str]:
    """A name for each of these units' servers: one that is known stays, newcomers that would share one get longer ones."""
    known = {unit: name for unit in units if (name := wishes[unit].name) is not None}
    taken = {wish.name for wish in wishes.values()}
    short = {unit: configuration.name_of(unit) for unit in units if unit not in known}
    for unit, name in short.items():
        wanted = name
        if name in taken or list(short.values()).count(name) > 1:
            wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", unit.removesuffix(".service")).strip("-._")[:60] or name
        known[unit] = _free(wanted, "", taken)
        taken.add(known[unit])
    return known


def credential(unit: str, wishes: Mapping[str, Wish], ours: Mapping[str, str]) -> str:
    """The name of the credential with a server's key; no other server's.

    Args:
        unit: the server's unit.
        wishes: of all servers.
        ours: the credentials of an earlier run.
    """
    others = {wish.key for each, wish in wishes.items() if each != unit}
    key, name = wishes[unit].key, wishes[unit].name or configuration.name_of(unit)
    return key if key is not None and key in ours and key not in others else _free(name, "-key", others)


def _free(name: str, end: str, taken: set[str | None]) -> str:
    numbered = (f"{name}-{n}{end}" for n in itertools.count(2))
    return next(each for each in itertools.chain([f"{name}{end}"], numbered) if each not in taken)
