"""`check-config`: all faults of a configuration at once, and what it names that is not there."""

import argparse
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchdog.cli import screen
from watchdog.cli.exits import OK, USAGE, CommandError
from watchdog.cli.options import DEFAULT_CONFIG, command, file_name, json_option

if TYPE_CHECKING:
    from watchdog import config

BUS_LIMIT_S = 2.0
BOOTED = Path("/run/systemd/system")
"""Where it is there, systemd is the init of this host (sd_booted(3))."""


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "check-config",
        "all faults of a configuration at once",
        "Check a configuration file: every fault with its key, its value, what is wrong and what mends it. Then look for what it "
        "names: folders that cannot be written and files that cannot be read from here, units that systemd does not know, and a "
        "page that others can reach. These are warnings: the daemon may see more than you, or less.\n\n"
        "Exit status: 0 it can be used, 78 it cannot.",
        "sglang-watchdog check-config ./sglang-watchdog.toml && systemctl reload sglang-watchdog",
    )
    p.add_argument(
        "file",
        nargs="?",
        type=file_name,
        metavar="FILE",
        help=f"the configuration file (default: --config, or {DEFAULT_CONFIG})",
    )
    p.add_argument("--config", type=file_name, metavar="FILE", help=argparse.SUPPRESS)
    json_option(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print faults and warnings."""
    from watchdog import config  # noqa: PLC0415  # loaded for this command only

    if args.file and args.config:
        raise CommandError(f"name one file: {args.file} or --config {args.config}")
    path = args.file or args.config or DEFAULT_CONFIG
    faults: list[config.Fault] = []
    warnings: list[config.Fault] = []
    try:
        whole = config.load(Path(path))
    except config.ConfigError as e:
        faults = e.faults
    except ValueError as e:  # a path with a zero byte in it
        faults = [config.Fault("", "", f"cannot be read ({e})", "name another file")]
    else:
        warnings = [*unusable_folders(whole), *missing_files(whole), *open_page(whole), *unknown_units(whole)]
    if args.json:
        screen.print_json({"file": path, "usable": not faults, "faults": _plain(faults), "warnings": _plain(warnings)})
    else:
        _print(path, faults, warnings)
    return USAGE if faults else OK


def _plain(faults: "list[config.Fault]") -> list[dict[str, str]]:
    return [{"key": f.key, "value": f.value, "problem": f.problem, "cure": f.cure} for f in faults]


def _print(path: str, faults: "list[config.Fault]", warnings: "list[config.Fault]") -> None:
    on = screen.colours()
    for kind, word, found in (("bad", "fault", faults), ("odd", "warning", warnings)):
        for each in found:
            said = str(each) if each.key else f"{path} {each}"
            print(f"{screen.paint(word, kind, on)}: {screen.plain(said)}")
    if faults:
        count = f"{len(faults)} {'fault' if len(faults) == 1 else 'faults'}"
        print(f"{screen.plain(path)} cannot be used: {count}")
    else:
        more = f", with {len(warnings)} {'warning' if len(warnings) == 1 else 'warnings'}" if warnings else ""
        print(f"{screen.plain(path)} can be used{more}")


def unusable_folders(whole: "config.Config") -> "list[config.Fault]":
    """Folders that are not there, or cannot be written from here. Those that systemd makes at the start may be missing."""
    from watchdog import config  # noqa: PLC0415

    found = []
    for key, parent, setting in (("state_dir", "/var/lib", "StateDirectory="), ("runtime_dir", "/run", "RuntimeDirectory=")):
        value = getattr(whole.daemon, key)
        wrong = _unusable(Path(value), by_systemd=str(Path(value).parent) == parent, setting=setting)
        if wrong is not None:
            found.append(config.Fault(f"daemon.{key}", f'"{value}"', *wrong))
    if Path(whole.daemon.runtime_dir) == Path(whole.daemon.state_dir):
        problem = "is the state_dir too, and what systemd or a boot clears away of the one would be lost in the other"
        found.append(config.Fault("daemon.runtime_dir", f'"{whole.daemon.runtime_dir}"', problem, "give each its own"))
    return found


def _unusable(folder: Path, *, by_systemd: bool, setting: str) -> tuple[str, str] | None:
    """Problem and cure of a folder; None if it can be used."""
    try:
        if folder.is_dir():
            if os.access(folder, os.W_OK | os.X_OK):
                return None
            return "cannot be written from here", "make it writable for the watchdog's user, or run this as that user to be sure"
        above = next(each for each in folder.parents if each.exists())
        if folder.exists() or not above.is_dir():
            return (
                f"{'is' if folder.exists() else f'lies below {above}, which is'} no folder",
                "name another, or remove what is there",
            )
        missing = (
            None if by_systemd else ("is not there", f"make it for the watchdog's user, or have its unit make it with {setting}")
        )
    except OSError as e:
        return f"cannot be used ({e.strerror})", "name another folder"
    return missing


def missing_files(whole: "config.Config") -> "list[config.Fault]":
    """Files that the configuration names and that cannot be used from here."""
    from watchdog import config  # noqa: PLC0415
    from watchdog.cli.credentials import resolved  # noqa: PLC0415
    from watchdog.observe.access import AccessError, read_key, tls  # noqa: PLC0415

    found = []
    for server, meant in zip(resolved(whole).servers, whole.servers, strict=True):
        where = f"servers[{server.name}]"
        # A credential is root's: that others cannot read its source is as it should be.
        credential = "/" not in meant.api_key_file and not os.environ.get("CREDENTIALS_DIRECTORY")
        if server.api_key_file and (os.geteuid() == 0 and BOOTED.is_dir() if credential else True):
            try:
                read_key(server.api_key_file)
            except AccessError as e:
                found.append(config.Fault(f"{where}.api_key_file", "", *_problem_and_cure(str(e))))
        try:
            tls(server)
        except AccessError as e:
            found.append(config.Fault(f"{where}.ca_file", server.ca_file, *_problem_and_cure(str(e))))
    for key in ("webhook_headers_file", "alertmanager_headers_file", "apprise_urls_file", "ca_file"):
        name = getattr(whole.alert, key)
        if "/" in name and (said := _unusable_for_alerts(key, name)):
            found.append(config.Fault(f"alert.{key}", "", *_problem_and_cure(said)))
    return found


def _unusable_for_alerts(key: str, name: str) -> str:
    """Why a channel cannot use a file; "" if it can."""
    from watchdog import certificates  # noqa: PLC0415
    from watchdog.act.alerts import http  # noqa: PLC0415

    try:
        if key == "ca_file":
            certificates.trusting(name)
        elif key == "apprise_urls_file":
            http.read_file(name)
        else:
            http.read_headers(name)
    except http.SendError as e:
        return str(e)
    except OSError as e:
        return f"the CA file {name} cannot be used: {e.strerror or e}; it must be PEM and readable"
    return ""


def open_page(whole: "config.Config") -> "list[config.Fault]":
    """A status page that others than this host can reach: it asks nobody for a password."""
    from watchdog import config  # noqa: PLC0415

    host = whole.web.host
    if not whole.web.enabled or _loopback(host):
        return []
    cure = 'write host = "127.0.0.1" and put a reverse proxy before it, or have a firewall say who may come'
    return [config.Fault("web.host", f'"{host}"', "is no loopback address, and the page asks nobody for a password", cure)]


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def _problem_and_cure(said: str) -> tuple[str, str]:
    problem, _, cure = said.partition("; ")
    return problem, cure or "see docs/configuration.md"


def unknown_units(whole: "config.Config") -> "list[config.Fault]":
    """Units that systemd does not know, or that have another journal namespace; nothing where systemd cannot be asked."""
    import asyncio  # noqa: PLC0415

    return asyncio.run(_unknown_units(whole)) if BOOTED.is_dir() else []


async def _unknown_units(whole: "config.Config") -> "list[config.Fault]":
    from watchdog import config  # noqa: PLC0415
    from watchdog.systemd import Bus, SystemdError, running  # noqa: PLC0415

    found = []
    async with running(Bus(call_limit_s=BUS_LIMIT_S)) as bus:
        if not await bus.until_connected(BUS_LIMIT_S):
            return []
        for server in whole.servers:
            where = f"servers[{server.name}]"
            try:
                raw = await bus.properties(await bus.load(server.unit))
            except SystemdError:
                continue
            if raw.get("LoadState") == "not-found":
                cure = "check its spelling, or install the unit and run systemctl daemon-reload"
                found.append(config.Fault(f"{where}.unit", server.unit, "systemd knows no such unit", cure))
                continue
            names = raw.get("Id")
            if isinstance(names, str) and names != server.unit:
                found.append(config.Fault(f"{where}.unit", server.unit, f"is an alias of {names}", f'write unit = "{names}"'))
            namespace = raw.get("LogNamespace")
            if isinstance(namespace, str) and namespace != server.journal_namespace:
                problem = f"the unit's LogNamespace= is {namespace!r}" if namespace else "the unit has no LogNamespace="
                cure = f'write journal_namespace = "{namespace}"'
                found.append(config.Fault(f"{where}.journal_namespace", f'"{server.journal_namespace}"', problem, cure))
    return found
