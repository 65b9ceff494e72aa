"""`setup` from beginning to end: look, propose, ask, write, check."""

import grp
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.act import stacks
from watchdog.setup import configuration, containers, dropin, host, service
from watchdog.setup.configuration import Wish
from watchdog.setup.host import Found
from watchdog.setup.plan import File, Manifest, changes
from watchdog.stacks import python
from watchdog.systemd import BOOTED, Bus, BusUnavailableError, SystemdError, running

BUS_LIMIT_S = 5.0
RUN_LIMIT_S = 120.0
CONFIG = Path("/etc/sglang-watchdog/sglang-watchdog.toml")


class SetupError(Exception):
    """It cannot go on; the message says why and what helps."""


class Wanted(msgspec.Struct, kw_only=True):
    """What a person asked for.

    Attributes:
        units: the servers' units; none: those of the configuration, else the only one that runs.
        urls: addresses by unit. names: short names by unit. keys: files with API keys by unit. Where no units are asked for,
            what stands under "" belongs to the only one that is found.
        mode: of the daemon.
        server_drop_ins: whether the servers' units get drop-ins.
        start: whether the service is enabled and started.
        replace: whether files that a person wrote or changed are replaced.
        stacks: whether the stacks helper is installed too.
    """

    units: list[str] = []
    urls: dict[str, str] = {}
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    mode: config.Mode = "act"
    server_drop_ins: bool = True
    start: bool = True
    replace: bool = False
    stacks: bool = False


class Proposal(msgspec.Struct, kw_only=True):
    """What would be done."""

    found: list[Found]
    files: list[File]
    remarks: list[str]


async def propose(wanted: Wanted, manifest: Manifest) -> Proposal:
    """Look at the host and say what to write. Changes nothing.

    Raises:
        SetupError: there is no server, or it cannot be watched.
    """
    wishes = _known(manifest)
    units = wanted.units or list(wishes) or [_only_one()]
    _belongs(wanted, units)
    units += [unit for unit in wishes if unit not in units]
    async with running(Bus()) as bus:
        if not await bus.until_connected(BUS_LIMIT_S):
            why = str(BusUnavailableError(bus.trouble or "no connection"))
            raise SetupError(why if BOOTED.is_dir() else f"systemd is not the init of this host: {why}")
        found = {}
        for unit in units:
            one = await _find(bus, unit)
            known = wishes.get(unit) or wishes.get(one.unit) or Wish()
            asked = {k: v for k, v in (("url", _of(wanted.urls, unit)), ("name", _of(wanted.names, unit))) if v}
            if key := _of(wanted.keys, unit):
                asked["key"] = _credential(one, key)
            wishes[one.unit] = msgspec.structs.replace(known, **asked)
            found[one.unit] = one
    return _proposal(wanted, list(found.values()), wishes, manifest)


def full(unit: str) -> str:
    """A unit's full name.

    Raises:
        SetupError: it is no service, which alone can be watched.
    """
    name = unit if "." in unit else f"{unit}.service"
    if name.endswith(".scope"):
        raise SetupError(f"{name} is a scope, which systemd cannot restart: run the server as a service")
    if not name.endswith(".service") or "/" in name:
        raise SetupError(f'{name!r} is no service unit, such as "sglang-kimi.service"')
    return name


def _of(table: dict[str, str], unit: str) -> str | None:
    return table.get(unit) or table.get(unit.removesuffix(".service")) or table.get("")


def _belongs(wanted: Wanted, units: list[str]) -> None:
    """Whether each value belongs to a unit that is set up.

    Raises:
        SetupError: one belongs to none, or could belong to several.
    """
    for option, table in (("--url", wanted.urls), ("--name", wanted.names), ("--key-file", wanted.keys)):
        for unit, value in table.items():
            if unit == "" and len(units) != 1:
                raise SetupError(f"{option} {value}: say for which unit of {', '.join(units)}: {option} UNIT={value}")
            if unit and unit not in units:
                raise SetupError(
                    f"{option} {unit}={value}: {unit} is not set up here, but {', '.join(units)}: name it with --unit"
                )


def _known(manifest: Manifest) -> dict[str, Wish]:
    """The servers of a configuration that we wrote and nobody changed: they stay in it."""
    if not manifest.is_ours(CONFIG):
        return {}
    try:
        servers = config.load(CONFIG).servers
    except config.ConfigError:
        return {}
    return {s.unit: Wish(name=s.name, url=s.base_url if s.endpoint else None, key=s.api_key_file or None) for s in servers}


def _only_one() -> str:
    """The unit of the only server that runs.

    Raises:
        SetupError: there are none or several, or it cannot be watched; the message lists them.
    """
    seen = host.candidates()
    if not seen:
        raise SetupError("no SGLang server runs here; name its unit with --unit sglang-….service")
    if len(seen) == 1 and seen[0].unit is not None and seen[0].unit.endswith(".service"):
        return seen[0].unit
    lines = ["name the servers' units with --unit; these servers run here:"]
    for each in seen:
        if each.container is not None and each.unit is not None:
            lines.append(containers.advice(each.container, each.unit, containers.look(each.container)))
        elif each.unit is None or not each.unit.endswith(".service"):
            lines.append(f"pid {each.pid} was started by hand ({each.unit or 'no unit'}): make it a service unit first")
        else:
            lines.append(f"--unit {each.unit} (pid {each.pid})")
    raise SetupError("\n  ".join(lines))


async def _find(bus: Bus, unit: str) -> Found:
    try:
        one = await host.find(bus, unit)
    except SystemdError as e:
        raise SetupError(f"systemd does not tell of {unit}: {e}") from e
    if one is None:
        running_now = [c.unit for c in host.candidates() if c.unit]
        raise SetupError(f"systemd knows no {unit}; SGLang servers run in: {', '.join(running_now) or 'no unit'}")
    if one.client is not None and (why := containers.outside(one.unit, one.client)) is not None:
        raise SetupError(why)
    return one


def _credential(found: Found, path: str) -> str:
    if not Path(path).is_absolute() or not Path(path).is_file():
        raise SetupError(f"--key-file {path}: is no file with an absolute path")
    return f"{configuration.name_of(found.unit)}-key"


def _proposal(wanted: Wanted, found: list[Found], wishes: dict[str, Wish], manifest: Manifest) -> Proposal:
    names = [wishes[f.unit].name or configuration.name_of(f.unit) for f in found]
    for unit, name in zip([f.unit for f in found], names, strict=True):
        if names.count(name) > 1:
            wishes[unit] = msgspec.structs.replace(wishes[unit], name=unit.removesuffix(".service").replace("@", "-"))
    text = configuration.head(wanted.mode, host.gpus()) + "".join(configuration.table(f, wishes[f.unit]) for f in found)
    config.parse(tomllib.loads(text), "the proposal")
    units = [f.unit for f in found]
    strange = [f.unit for f in found if f.told_by == "nothing"]
    remarks = [f"{unit}: its command line was not recognised as SGLang's; check the configuration" for unit in strange]
    remarks += [
        f"{f.unit}: its API key lies {f.key_in}; put it in a file for root alone and give it with --key-file {f.unit}=FILE"
        for f in found
        if f.key_in is not None and not wishes[f.unit].key and not configuration.is_worker(f.args)
    ]
    remarks += [f"{f.unit}: {said}" for f in found if (said := configuration.misfit(f.args)) is not None]
    remarks += [f"{f.unit}: {said}" for f in found if (said := containers.twice(" ".join(host.command(f.properties))))]
    remarks += _stacks_remarks(wanted)
    files = _service_files(wanted)
    files.append(File(path=CONFIG, text=text, why="the configuration", mode=0o640, group=_group()))
    state = manifest.state(files[-1])
    if state in ("not ours", "changed by a person") and not wanted.replace:
        units += _units_of(CONFIG)
        missing = [configuration.table(f, wishes[f.unit]) for f in found if f.unit not in _units_of(CONFIG)]
        if missing:
            remarks.append(f"{CONFIG} stays as it is; add these lines to it yourself:\n" + "".join(missing))
    files.append(File(path=service.RULE, text=service.rule(units), why="lets it restart these units, and nothing else"))
    keys = {wishes[f.unit].key or "": path for f in found if (path := _of(wanted.keys, f.unit))}
    if keys:
        keys = {**service.known_credentials(), **keys}
        files.append(File(path=service.CREDENTIALS, text=service.credentials(keys), why="hands API keys to the service"))
    if wanted.server_drop_ins:
        files += [file for f in found if (file := server_drop_in(f)) is not None]
    return Proposal(found=found, files=files, remarks=remarks)


def _stacks_remarks(wanted: Wanted) -> list[str]:
    """The stacks helper is a person's choice: it has rights that the watchdog has not."""
    if not wanted.stacks:
        if stacks.SOCKET.exists():
            return []
        return [
            "optional: --stacks installs a helper that may read the servers' processes (not stop or change them), so that an "
            "incident's evidence shows in which functions a hung server waits"
        ]
    try:
        python.program()
    except python.NoStacksError as e:
        return [f"the stacks helper will tell the kernel's stacks only: {e}; `{service.PIPX} py-spy` brings it"]
    return []


def _service_files(wanted: Wanted) -> list[File]:
    program = service.program()
    closed = service.unreachable(program)
    if closed is not None:
        raise SetupError(
            f"the service could not run this installation: {closed}. Install it for all users: "
            f"`{service.PIPX} .` in its checkout, or an environment below /opt "
            "(`python3 -m venv /opt/sglang-watchdog`, then pip)"
        )
    if service.packaged():
        return []
    return [
        File(path=service.SYSUSERS, text=service.shipped("sglang-watchdog.sysusers"), why=f"the user {service.USER}"),
        File(path=service.UNIT, text=service.unit(program), why="the service"),
        *(
            File(path=service.UNIT.with_name(name), text=service.stacks_unit(name, Path(sys.executable)), why="the stacks helper")
            for name in service.STACKS_UNITS
            if wanted.stacks
        ),
    ]


def server_drop_in(found: Found) -> File | None:
    """The drop-in for a server's unit; None where the unit has all that it should."""
    path = service.drop_in(found.unit)
    try:
        own = dropin.keys(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        own = frozenset()
    lines = dropin.lines(found.properties, found.pinned, own)
    if not lines:
        return None
    return File(path=path, text=dropin.text(lines, found.unit), why=f"for {found.unit}, at its next start")


def _group() -> int | None:
    try:
        return grp.getgrnam(service.USER).gr_gid
    except KeyError:
        return None


def _units_of(path: Path) -> list[str]:
    try:
        return [s.unit for s in config.load(path).servers]
    except config.ConfigError:
        return []


def apply(proposal: Proposal, wanted: Wanted, manifest: Manifest, say: Callable[[str], None]) -> None:
    """Write it, and make systemd take it up.

    Raises:
        SetupError: a step failed; what was written is in the manifest and can be undone.
    """
    write, _ = changes(proposal.files, manifest, replace=wanted.replace)
    try:
        # The user first: the configuration belongs to its group.
        for file in sorted(write, key=lambda f: f.path != service.SYSUSERS):
            manifest.write(msgspec.structs.replace(file, group=_group()) if file.path == CONFIG else file)
            say(f"wrote {file.path}")
            if file.path == service.SYSUSERS:
                _command("systemd-sysusers", str(service.SYSUSERS))
    except OSError as e:
        raise SetupError(f"{e.filename or 'a file'} could not be written: {e.strerror}") from e
    _command("systemctl", "daemon-reload")
    if wanted.stacks:
        _command("systemctl", "enable", "--now", service.STACKS_SOCKET)
        say(f"{service.STACKS_SOCKET} is enabled and listens")
    if wanted.start:
        _command("systemctl", "enable", "sglang-watchdog.service")
        _command("systemctl", "restart", "sglang-watchdog.service")
        say("sglang-watchdog.service is enabled and runs")


def undo(manifest: Manifest, say: Callable[[str], None]) -> None:
    """Take back what was written.

    Raises:
        SetupError: a step failed.
    """
    if service.packaged() or service.UNIT.exists():
        _command("systemctl", "disable", "--now", "sglang-watchdog.service")
    if service.stacks_installed():
        _command("systemctl", "disable", "--now", service.STACKS_SOCKET)
    try:
        for line in manifest.undo():
            say(line)
    except OSError as e:
        raise SetupError(f"{e.filename or 'a file'} could not be put back: {e.strerror}") from e
    _command("systemctl", "daemon-reload")


def check(units: list[str]) -> list[str]:
    """What the watchdog's user may not do though it should: a sentence each; none if all is well.

    Asked as that user, by calls that change nothing (watchdog/act/rights.py).
    """
    words = ["runuser", "-u", service.USER, "--", sys.executable, "-m", "watchdog.setup.permissions", str(CONFIG), *units]
    if shutil.which("runuser") is None:
        return ["its permissions could not be checked: there is no runuser(1)"]
    try:
        done = _run(words)
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return [f"its permissions could not be checked: `{' '.join(words)}` gave no answer"]
    wrong = [] if said["config"] else [f"the user {service.USER} cannot read {CONFIG}"]
    if not said["journal"]:
        wrong.append(f"the user {service.USER} cannot read the system's journal: it must be in the group systemd-journal")
    for unit, may in said["units"].items():
        missing = [verb for verb in ("restart", "kill") if may[verb] is not True]
        if missing:
            wrong.append(f"polkit does not let it {' and '.join(missing)} {unit}: see {service.RULE}, and `journalctl -u polkit`")
    return wrong


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S, stdin=subprocess.DEVNULL, cwd="/"
    )


def _command(*words: str) -> None:
    try:
        done = _run(words)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SetupError(f"`{' '.join(words)}` could not be run: {e}") from e
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()[:500]}")
