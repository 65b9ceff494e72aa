"""`setup` from beginning to end: look, propose, ask, write, check."""

import grp
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from watchdog import config
from watchdog.act import stacks
from watchdog.setup import configuration, containers, dropin, host, kept, service
from watchdog.setup.configuration import Wish
from watchdog.setup.host import Found
from watchdog.setup.kept import Standing
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
        mode: of the daemon; None: as before, or else "act".
        server_drop_ins: whether the units that are named (or else all) get drop-ins; None: as before, or else they do.
        start: whether the service is enabled and started.
        replace: whether files that a person wrote or changed are replaced.
        stacks: whether the stacks helper is installed too.
    """

    units: list[str] = []
    urls: dict[str, str] = {}
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    mode: config.Mode | None = None
    server_drop_ins: bool | None = None
    start: bool = True
    replace: bool = False
    stacks: bool = False


class Proposal(msgspec.Struct, kw_only=True):
    """What would be done.

    Attributes:
        found: all servers that are set up.
        named: the units of those that were asked for; all, where none was.
    """

    found: list[Found]
    files: list[File]
    remarks: list[str]
    named: list[str] = []


async def propose(wanted: Wanted, manifest: Manifest) -> Proposal:
    """Look at the host and say what to write. Changes nothing.

    Raises:
        SetupError: there is no server, or it cannot be watched.
    """
    standing = kept.read(CONFIG)
    renews = manifest.is_ours(CONFIG) or wanted.replace
    if renews and standing.fault is not None and not (wanted.replace and (wanted.mode or standing.mode)):
        raise SetupError(f"{standing.fault}; mend it, or say --replace and --mode for a new one")
    units = wanted.units or (list(standing.wishes) if renews else []) or [_only_one()]
    _belongs(wanted, units)
    named = list(units)
    units = list(dict.fromkeys([*units, *(standing.wishes if renews else ())]))
    async with running(Bus()) as bus:
        if not await bus.until_connected(BUS_LIMIT_S):
            why = str(BusUnavailableError(bus.trouble or "no connection"))
            raise SetupError(why if BOOTED.is_dir() else f"systemd is not the init of this host: {why}")
        found = {unit: await _find(bus, unit) for unit in units}
    return _proposal(wanted, found, named, standing, manifest)


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


def _proposal(wanted: Wanted, by_name: dict[str, Found], named: list[str], standing: Standing, manifest: Manifest) -> Proposal:
    """What to write.

    Args:
        wanted: what a person asked for.
        by_name: the servers, by their units as a person or the configuration names them, which may be aliases.
        named: those of these names that this run is about.
        standing: the configuration that stands.
        manifest: what was written before.
    """
    found = list({f.unit: f for f in by_name.values()}.values())
    about = list(dict.fromkeys(by_name[unit].unit for unit in named))
    known = _known(wanted, by_name, standing)
    remarks = [f"{f.unit}: {said}" for f in found for said in _remarks(f, known.wishes[f.unit])]
    remarks += _stacks_remarks(wanted)
    files = _service_files(wanted)
    renewed, said = _configuration(wanted, found, known, standing, manifest)
    files += renewed
    remarks += said
    # Those of a configuration that stays, too.
    units = {f.unit for f in found} | standing.wishes.keys() - by_name.keys()
    files.append(File(path=service.RULE, text=service.rule(units), why="lets it restart these units, and nothing else"))
    if known.key_files:
        keys = {**service.known_credentials(), **known.key_files}
        files.append(File(path=service.CREDENTIALS, text=service.credentials(keys), why="hands API keys to the service"))
    for f in found:
        asked = wanted.server_drop_ins if f.unit in about else None
        if asked is None and f.unit in manifest.left:
            remarks.append(f"{f.unit} gets no drop-in, as before; --server-drop-in changes that")
        elif asked is not False and (file := server_drop_in(f)) is not None:
            files.append(file)
            remarks += [f"{f.unit}: {why}" for why in [dropin.misfit(f.properties)] if why is not None]
    return Proposal(found=found, files=files, remarks=remarks, named=about)


class _Known(NamedTuple):
    """By unit what is known of its server and what of it was asked for now; files with keys by the names of their credentials."""

    wishes: dict[str, Wish]
    asked: dict[str, dict[str, str]]
    key_files: dict[str, str]


def _known(wanted: Wanted, by_name: dict[str, Found], standing: Standing) -> _Known:
    wishes = dict(standing.wishes)
    asked: dict[str, dict[str, str]] = {}
    for name, f in by_name.items():
        known = wishes.pop(name, None) or wishes.pop(f.unit, None) or Wish()
        now = {"url": _of(wanted.urls, name), "name": _of(wanted.names, name)}
        asked.setdefault(f.unit, {}).update({key: value for key, value in now.items() if value})
        wishes[f.unit] = msgspec.structs.replace(known, **asked[f.unit])
    for unit, short in kept.names([*asked], wishes).items():
        wishes[unit] = msgspec.structs.replace(wishes[unit], name=short)
    files = {}
    for name, f in by_name.items():
        if path := _of(wanted.keys, name):
            if not Path(path).is_absolute() or not Path(path).is_file():
                raise SetupError(f"--key-file {path}: is no file with an absolute path")
            key = kept.credential(f.unit, wishes, service.known_credentials())
            wishes[f.unit] = msgspec.structs.replace(wishes[f.unit], key=key)
            asked[f.unit]["key"] = key
            files[key] = path
    return _Known(wishes, asked, files)


def _configuration(
    wanted: Wanted, found: list[Found], known: _Known, standing: Standing, manifest: Manifest
) -> tuple[list[File], list[str]]:
    """The configuration, unless it would lose what a person wrote in it, and what is to be said of it."""
    seen, gpus = host.gpus(), max(host.gpus(), standing.gpus)
    text = configuration.head(wanted.mode or standing.mode or "act", gpus)
    tables = standing.tables if manifest.is_ours(CONFIG) else {}
    text += "".join(kept.table(f, known.wishes[f.unit], tables.get(f.unit)) for f in found)
    config.parse(tomllib.loads(text), "the proposal")
    file = File(path=CONFIG, text=text, why="the configuration", mode=0o640, group=_group())
    theirs = manifest.state(file) in ("not ours", "changed by a person")
    keys = {"url": "base_url", "name": "name", "key": "api_key_file"}
    lost = []
    if theirs and wanted.replace:
        changed = [f"{unit}.{keys[key]}" for unit, values in known.asked.items() for key in values]
        lost = kept.lost(standing, tomllib.loads(text), [*changed, *(["daemon.mode"] if wanted.mode else [])])
    if not lost and (wanted.replace or not theirs):
        fewer = f"the driver has {seen} GPUs now; {gpus} stay expected, as before: change that in {CONFIG} if it is wrong"
        return [file], [fewer] if seen < gpus else []
    lines = [f'[daemon]\nmode = "{wanted.mode}"\n'] if wanted.mode not in (None, standing.mode) else []
    for f in found:
        before = standing.wishes.get(f.unit)
        if before is None:
            lines.append(configuration.table(f, known.wishes[f.unit]))
            continue
        now = [f"{keys[k]} = {configuration.quoted(v)}\n" for k, v in known.asked[f.unit].items() if getattr(before, k) != v]
        lines += [f"# in the table of {f.unit}\n", *now] if now else []
    remarks = [f"{CONFIG} stays as it is: a new one would lose {', '.join(lost)}; move it away if that is meant"] if lost else []
    if lines:
        remarks.append(f"{CONFIG} stays as it is; put these lines into it yourself:\n" + "".join(lines))
    return [] if lost else [file], remarks


def _remarks(found: Found, wish: Wish) -> list[str]:
    """What is to be said of a server."""
    said = []
    if found.told_by == "nothing":
        said.append("its command line was not recognised as SGLang's; check the configuration")
    if found.told_by == "unit file" and wish.url is None and (unknown := host.unknown(found.properties)):
        said.append(
            f"it does not run, and its unit file does not say what {', '.join(unknown)} in its command is: check its address in "
            "the configuration, or give it with --url"
        )
    if found.key_in is not None and not wish.key and not configuration.is_worker(found.args):
        said.append(
            f"its API key lies {found.key_in}; put it in a file for root alone and give it with --key-file {found.unit}=FILE"
        )
    said += [misfit] if (misfit := configuration.misfit(found.args)) is not None else []
    said += [twice] if (twice := containers.twice(" ".join(host.command(found.properties)))) else []
    return said


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
    if wanted.stacks and (why := service.changeable(service.code())) is not None:
        raise SetupError(
            "the stacks helper would run with rights over the servers' processes what another user than root could change: "
            f"{why}. Make all of this installation root's alone (`chown -R root:root` and `chmod -R go-w` on its folder), or "
            f"install it anew as root: `{service.PIPX} .` in its checkout, or an environment below /opt. Or leave out --stacks"
        )
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
        own = dropin.settings(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        own = {}
    lines = dropin.lines(found.properties, found.pinned, own)
    if not lines:
        return None
    return File(path=path, text=dropin.text(lines, found.unit), why=f"for {found.unit}, at its next start")


def _group() -> int | None:
    try:
        return grp.getgrnam(service.USER).gr_gid
    except KeyError:
        return None


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
        if wanted.server_drop_ins is not None:
            manifest.leave(proposal.named, leave=not wanted.server_drop_ins)
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
