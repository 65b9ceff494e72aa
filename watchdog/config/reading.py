"""Reading and checking a configuration file.

All faults are reported at once, each where the person wrote it, with its value, what is wrong and what mends it. Keys of the
sections [probe], [metrics], [judge] and [restart] hold for every server; a server's own tables override single keys of them.
"""

import difflib
import ipaddress
import math
import re
import stat
import tomllib
import typing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from watchdog.config import profile
from watchdog.config.keys import Config, Probing, Restarting, Section, Server, Web
from watchdog.config.words import bare, choices, expected, printable, section_of, shown, sort_of, wrong

MAX_BYTES = 1 << 20
RUNTIME_DIR_BYTES = 107 - len("/control.sock")
RESERVED = ("alerts",)
"""Folders of the state directory that belong to no server."""
OURSELVES = "sglang-watchdog.service"
LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")
UNIT = re.compile(
    r"[A-Za-z0-9:_.\\@-]+(?<!@)\.(service|socket|target|mount|automount|swap|device|path|timer|slice|scope)", re.ASCII
)
"""The full name of a unit (systemd.unit(5)); a template is none."""
HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", re.ASCII)
SHARED_SECTIONS = ("probe", "metrics", "judge", "restart")


class Fault(msgspec.Struct, frozen=True):
    """One fault of a configuration.

    Attributes:
        key: where it is, such as "probe.chat_limit_s" or "servers[kimi].unit"; "" for the file as a whole.
        value: what stands there; "" where nothing does.
        problem: what is wrong with it; continues the sentence that the key (or the name of the file) begins.
        cure: what mends it, as an order.
    """

    key: str
    value: str
    problem: str
    cure: str

    def __str__(self) -> str:
        place = f"{self.key} = {self.value}: " if self.value else f"{self.key}: " if self.key else ""
        return f"{place}{self.problem}; {self.cure}"


class ConfigError(Exception):
    """A configuration that cannot be used; `faults` has every reason, `source` names the file."""

    def __init__(self, faults: list[Fault], source: str) -> None:
        super().__init__(f"{source}: " + " | ".join(map(str, faults)))
        self.faults = faults
        self.source = source


def load(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: with every fault that was found; also for a file that cannot be read or is no TOML.
    """
    return parse(read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """The tables of a configuration file (TOML 1.0, UTF-8, at most 1 MiB), unchecked.

    Raises:
        ConfigError: it cannot be read or is no TOML.
    """
    raw = b""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # before it is opened: opening a FIFO waits for a writer
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
            raise _unreadable(path, f"is {kind}, not a file", "name the configuration file with --config")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise _unreadable(path, "is larger than 1 MiB", "name the configuration file with --config")
        text = raw.decode("utf-8-sig")
    except OSError as e:
        raise _unreadable(path, f"cannot be read ({e.strerror})", "name another file with --config, or make it readable") from e
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise _unreadable(path, f"is not UTF-8 text (line {line})", "save it as UTF-8") from e
    return _table(path, text)


def _table(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise _unreadable(path, *toml_fault(str(e))) from e
    except RecursionError as e:
        raise _unreadable(path, "is nested too deeply", "close the brackets of its lists; none needs more than two levels") from e
    except ValueError as e:  # int() lets no more than 4300 digits through, and tomllib does not catch it
        raise _unreadable(path, "has a number or a date that cannot be read", "write numbers with few digits, such as 30") from e


def _unreadable(path: Path, problem: str, cure: str) -> ConfigError:
    return ConfigError([Fault("", "", problem, cure)], str(path))


def toml_fault(said: str) -> tuple[str, str]:
    """Problem and cure of a TOML error as tomllib words it."""
    found = re.search(r" \(at (line \d+, column \d+|end of document)\)$", said)
    place = found[1] if found else "somewhere"
    said = said[: found.start()] if found else said
    if twice := re.match(r"Cannot declare \('?(.*?)'?,?\) twice", said):
        name = twice[1].replace("', '", ".")
        return f"has the table [{name}] twice ({place})", "put its keys under one heading"
    if said.startswith("Cannot overwrite a value"):
        return f"gives a key a second time ({place})", "remove one of the two"
    if said.startswith("Invalid value"):
        return f"has a value that TOML does not know ({place})", 'put text in quotes ("…"), write true and false in small letters'
    if said.startswith(r"Illegal character '\n'"):
        return f"has a text that does not end where its line does ({place})", 'close it with a "'
    return f"is no valid TOML ({place}: {said[:1].lower()}{said[1:]})", "write one key = value a line"


def parse(table: dict[str, Any], source: str = "configuration", *, need_servers: bool = True) -> Config:
    """Check a parsed configuration and lay the shared sections under each server.

    Raises:
        ConfigError: with every fault that was found.
    """
    faults: list[Fault] = []
    config: Config = _convert(Config, table, "", faults)
    _check_budgets(config.restart, table, "", faults)
    _check_profile(config.probe, "", faults)
    _check_template(config.probe, "", faults)
    _check_alert_addresses(config, faults)
    _check_runtime_dir(config.daemon.runtime_dir, faults)
    _check_deps(config.sources.deps, faults)
    _check_web(config.web, config.servers, faults)
    if need_servers and not table.get("servers"):
        faults.append(Fault("servers", "", "no server is configured", "add a [[servers]] table with name and unit"))
    _check_servers(config.servers, faults)
    if faults:
        raise ConfigError(faults, source)
    tables = table.get("servers", [])
    servers = [_laid_over(config, server, own) for server, own in zip(config.servers, tables, strict=True)]
    for server, own in zip(servers, tables, strict=True):
        _check_budgets(server.restart, own, f"servers[{server.name}].", faults)
    if faults:
        raise ConfigError(faults, source)
    return msgspec.structs.replace(config, servers=servers)


def _laid_over(config: Config, server: Server, own: dict[str, Any]) -> Server:
    """The server with the shared sections, and its own keys over them."""
    sections = {}
    for name in SHARED_SECTIONS:
        mine = getattr(server, name)
        sections[name] = msgspec.structs.replace(getattr(config, name), **{key: getattr(mine, key) for key in own.get(name, {})})
    return msgspec.structs.replace(server, **sections)


def _convert(kind: type[Section], table: Any, where: str, faults: list[Fault]) -> Any:
    """`table` as a `kind`; every fault in it and below it is appended.

    Keys with a fault get their default ("" where they have none), so that what depends on other keys can still be checked.
    """
    if not isinstance(table, dict):
        heading = re.sub(r"\[.*?\]", "", where)
        heading = f"[[{heading}]]" if where.endswith("]") else f"[{heading}]"
        faults.append(Fault(where, shown(table), wrong(table, kind), f"write it as a table: {heading}"))
        return None
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{where}.{printable(key)}" if where else printable(key)
        if key not in fields:
            faults.append(_unknown(kind, key, value, name))
            continue
        before = len(faults)
        declared = fields[key].type
        section = section_of(declared, Section)
        if section is None:
            converted = _convert_value(declared, value, name, faults)
        elif typing.get_origin(bare(declared)) is list:
            converted = _convert_list(section, value, name, faults)
        else:
            converted = _convert(section, value, name, faults)
        if converted is not None or len(faults) == before:
            values[key] = converted
    for f in fields.values():
        if f.required and f.encode_name not in table:
            faults.append(Fault(f"{where}.{f.encode_name}", "", "is missing", f"add {f.encode_name}: {expected(f.type)}"))
        if f.required:
            values.setdefault(f.encode_name, "")
    return kind(**values)


def _convert_list(kind: type[Section], value: Any, name: str, faults: list[Fault]) -> list[Any]:
    if not isinstance(value, list):
        faults.append(Fault(name, "", wrong(value, list), f"begin each one with [[{name}]], in double brackets"))
        return []
    entries = [_convert(kind, item, f"{name}[{_label(item, i)}]", faults) for i, item in enumerate(value)]
    return [entry for entry in entries if entry is not None]


def _label(table: Any, index: int) -> str:
    """How messages call an entry of a list: by its name, or "#1" for the first."""
    name = table.get("name") if isinstance(table, dict) else None
    return printable(name) if isinstance(name, str) and name else f"#{index + 1}"


def _convert_value(kind: Any, value: Any, name: str, faults: list[Fault]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        cure = f"write {expected(kind)}"
        if isinstance(value, dict) and (bad := _bad_entries(kind, value)):
            cure = "write text in quotes, a number, true or false"
            faults.extend(Fault(f"{name}.{printable(key)}", shown(value[key], key), _misfit(value[key]), cure) for key in bad)
            return None
        near = difflib.get_close_matches(value, choices(kind), n=1) if isinstance(value, str) else []
        if near:
            cure += f'; did you mean "{near[0]}"?'
        said = repr(value) if isinstance(value, float) and bare(kind) is int else shown(value, name)
        faults.append(Fault(name, said, wrong(value, kind), cure))
        return None


def _bad_entries(kind: Any, table: dict[str, Any]) -> list[str]:
    """The keys of a table whose values are of no sort that it takes."""
    found = []
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, kind)
        except msgspec.ValidationError:
            found.append(key)
    return found


def _misfit(value: Any) -> str:
    return "is too large" if isinstance(value, int) else f"is {sort_of(value)}"


def _unknown(kind: type[Section], key: str, value: Any, name: str) -> Fault:
    """The fault of a key that does not exist: misspelt, in the wrong table, or unheard of."""
    fields = msgspec.structs.fields(kind)
    homes = [f.encode_name for f in msgspec.structs.fields(Config) if key in _keys_of(section_of(f.type, Section))]
    near = difflib.get_close_matches(key, [f.encode_name for f in fields], n=1)
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value)):
        tables = [f.encode_name for f in fields if section_of(f.type, Section)]
        near = difflib.get_close_matches(key, tables, n=1)
        cure = f"did you mean {_heading(near[0])}?" if near else "remove it; docs/configuration.md lists every table"
        return Fault(name, "", "there is no such table", cure)
    if homes:
        cure = f"it belongs in {' or '.join(map(_heading, homes))}"
    elif near:
        cure = f"did you mean {near[0]}?"
    else:
        cure = "remove it; docs/configuration.md lists every key"
    return Fault(name, shown(value, key), "there is no such key here", cure)


def _heading(table: str) -> str:
    return "[[servers]]" if table == "servers" else f"[{table}]"


def _keys_of(section: Any) -> set[str]:
    return {f.encode_name for f in msgspec.structs.fields(section)} if section else set()


def _check_budgets(restart: Restarting, written: dict[str, Any], where: str, faults: list[Fault]) -> None:
    """The two windows of the restart budget must fit each other. Faults are told of a key that was `written`."""
    own = written.get("restart")
    prefix = f"{where}restart."
    if not isinstance(own, dict) or any(fault.key.startswith(f"{prefix}budget") for fault in faults):
        return
    for short, long, most in (("budget_s", "budget_long_s", "no longer than"), ("budget", "budget_long", "at most")):
        small, great = getattr(restart, short), getattr(restart, long)
        if small <= great or not {short, long} & own.keys():
            continue
        key, value, cure = (
            (long, great, f"raise it, or lower {short}") if long in own else (short, small, f"lower it, or raise {long}")
        )
        problem = f"{short} ({shown(small)}) must be {most} {long} ({shown(great)})"
        faults.append(Fault(prefix + key, shown(value), problem, cure))


def _check_profile(probe: Probing, where: str, faults: list[Fault]) -> None:
    try:
        if probe.profile:
            profile.named(probe.profile)
    except profile.ProfileError as e:
        near = difflib.get_close_matches(probe.profile, profile.names(), n=1)
        known = f'did you mean "{near[0]}"?' if near else f"choose one of {', '.join(profile.names())}, or write an absolute path"
        cure = "mend it: docs/canary.md says what a profile has" if probe.profile.startswith("/") else known
        faults.append(Fault(f"{where}probe.profile", shown(probe.profile), str(e), cure))


def _check_template(probe: Probing, where: str, faults: list[Fault]) -> None:
    """What is sent as JSON, which knows neither nan nor inf."""
    for key, value in (probe.chat_template_kwargs or {}).items():
        if isinstance(value, float) and not math.isfinite(value):
            name = f"{where}probe.chat_template_kwargs.{printable(key)}"
            faults.append(Fault(name, shown(value), "is not a number", "write a finite number, or remove it"))


def _check_deps(units: list[str], faults: list[Fault]) -> None:
    for unit in units:
        if not UNIT.fullmatch(unit):
            cure = 'write its full name, such as "nvidia-fabricmanager.service"'
            faults.append(Fault("sources.deps", shown(unit), "is no full name of a unit", cure))


def _check_web(web: Web, servers: list[Server], faults: list[Fault]) -> None:
    """What is listened on: an address or a name, and a port that no server has."""
    if web.host and not _is_host(web.host):
        faults.append(Fault("web.host", shown(web.host), "is no address and no host name", 'write it like "127.0.0.1"'))
    if not web.enabled or not web.port:
        return
    own = ("localhost" if web.host in LOOPBACK else web.host, web.port)
    for i, server in enumerate(servers):
        if _address(server) == own:
            problem = f"is the port of servers[{_label({'name': server.name}, i)}] too"
            faults.append(Fault("web.port", shown(web.port), problem, "give the page a port of its own"))


def _is_host(host: str) -> bool:
    if ":" not in host and not re.fullmatch(r"[0-9.]+", host):
        return HOST_NAME.fullmatch(host) is not None
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_runtime_dir(value: str, faults: list[Fault]) -> None:
    """A socket lies in it, whose path the kernel limits (unix(7): 107 bytes)."""
    size = len(value.encode("utf-8", "replace"))
    if size > RUNTIME_DIR_BYTES:
        problem = f"is too long for the socket in it ({size} bytes, {RUNTIME_DIR_BYTES} at most)"
        faults.append(Fault("daemon.runtime_dir", shown(value), problem, 'choose a shorter path, such as "/run/sglang-watchdog"'))


def _check_alert_addresses(config: Config, faults: list[Fault]) -> None:
    for key, example in (
        ("webhook_url", "https://alerts.example.org/path"),
        ("alertmanager_url", "https://alerts.example.org/path"),
        ("runbook_url", "https://wiki.example.org/runbook"),
    ):
        value = getattr(config.alert, key)
        if value:
            _check_url(f"alert.{key}", value, example, faults)


def _check_servers(servers: list[Server], faults: list[Fault]) -> None:
    """What no single key of a server can tell, and its address."""
    labels = [_label({"name": server.name}, i) for i, server in enumerate(servers)]
    for key in ("name", "unit"):
        seen: set[str] = set()
        for label, server in zip(labels, servers, strict=True):
            value = getattr(server, key)
            if value and value in seen:
                faults.append(Fault(f"servers[{label}].{key}", shown(value), "another server has it", "give each its own"))
            seen.add(value)
    addresses: dict[tuple[str, int | None], str] = {}
    for label, server in zip(labels, servers, strict=True):
        if server.name in RESERVED:
            faults.append(Fault(f"servers[{label}].name", shown(server.name), "is a folder of the watchdog's", "choose another"))
        if server.unit == OURSELVES:
            faults.append(Fault(f"servers[{label}].unit", shown(server.unit), "is the watchdog itself", "name the server's unit"))
        address = _address(server)
        if address is not None and (other := addresses.setdefault(address, label)) != label:
            problem = f"servers[{other}] has the same address: the fault of one would be taken for that of the other"
            faults.append(Fault(f"servers[{label}].base_url", shown(server.base_url), problem, "give each server its own port"))
        _check_base_url(f"servers[{label}].base_url", server.base_url, faults)
        _check_profile(server.probe, f"servers[{label}].", faults)
        _check_template(server.probe, f"servers[{label}].", faults)
        if server.ca_file and not server.base_url.startswith("https://"):
            cure = "remove it, or begin base_url with https://"
            faults.append(Fault(f"servers[{label}].ca_file", shown(server.ca_file), "has no meaning for an http server", cure))


def _address(server: Server) -> tuple[str, int | None] | None:
    """Host and port that a server is asked at; None where it is not asked, or its base_url has a fault of its own."""
    try:
        parts = urlsplit(server.base_url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return ("localhost" if host in LOOPBACK else host, port) if server.endpoint and host else None


def _check_base_url(key: str, value: str, faults: list[Fault]) -> None:
    example = "http://127.0.0.1:30000"
    if not _check_url(key, value, example, faults):
        return
    parts = urlsplit(value)
    if parts.path.rstrip("/") == "/v1":
        faults.append(Fault(key, shown(value), "ends with /v1", "leave /v1 out: it is added where it is needed"))
    elif parts.path.rstrip("/") or parts.query or parts.fragment:
        faults.append(Fault(key, shown(value), "has a path behind the port", f'write host and port alone, such as "{example}"'))


def _check_url(key: str, value: str, example: str, faults: list[Fault]) -> bool:
    """Whether `value` is an http address without a password in it."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    said = shown(value, key)
    if parts.scheme not in ("http", "https") or not host or parts.port == 0 or re.search(r"[\s\x00-\x1f\x7f]", value):
        faults.append(Fault(key, said, "is no http address", f'write it like "{example}"'))
        return False
    if parts.username is not None:
        faults.append(Fault(key, said, "has a password in it", "keep secrets in the file that the reference names for them"))
        return False
    return True
