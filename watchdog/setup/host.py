"""What a host shows of its SGLang servers: their units, processes and launch arguments. Reads only."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from watchdog.observe.cgroup import Cgroups
from watchdog.observe.files import read
from watchdog.setup import containers
from watchdog.sglang.arguments import parse_argv, ranks_here
from watchdog.sglang.processes import role
from watchdog.systemd import Bus
from watchdog.units import GB

_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd)-(?P<id>[0-9a-f]{12,64})\.scope$")
_CLIENTS = frozenset(("docker", "podman", "nerdctl", "conmon"))
"""They start or hold a container. Their command lines have the server's in them, but they are not the server."""

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(?:service|scope)$")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One server as the host shows it.

    Attributes:
        unit: the canonical name of its unit; polkit and the journal know no aliases.
        properties: the unit's properties under systemd's own names.
        args: its launch arguments under SGLang's own names, as far as they can be told; may hold keys, so never print it.
        told_by: "process", "unit file", or "nothing" where no command line of SGLang was found.
        key_in: where its API key lies, for people; None where it asks for none.
        pinned: host memory that it pins, in bytes, as far as is known.
        client: the command that runs its container, if its unit starts one and the server is not seen in the unit's own cgroup.
        cgroup: where that command puts the container; None where the server is in the unit's own cgroup.
    """

    unit: str
    properties: dict[str, Any]
    args: dict[str, Any]
    told_by: str
    key_in: str | None = None
    pinned: int | None = None
    client: str | None = None
    cgroup: str | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A running SGLang server that was found by its process.

    Attributes:
        unit: the unit that its main process belongs to; None where it belongs to none.
        container: the id of its container, where it runs in one whose cgroup is a scope of its own.
    """

    pid: int
    unit: str | None
    container: str | None = None


def candidates(proc: Path = Path("/proc")) -> list[Candidate]:
    """The SGLang servers that run on this host, by their main processes."""
    found: dict[str, Candidate] = {}
    for pid, argv in _processes(proc):
        if role(" ".join(argv)) != "main":
            continue
        unit = unit_of((read(proc / str(pid) / "cgroup") or b"").decode("utf-8", "replace"))
        scope = _CONTAINER.search(unit or "")
        candidate = Candidate(pid=pid, unit=unit, container=scope["id"] if scope else None)
        found.setdefault(unit or f"pid {pid}", candidate)
    return [found[name] for name in sorted(found)]


def unit_of(cgroup: str) -> str | None:
    """The unit in the text of /proc/PID/cgroup: the outermost service, or else the innermost scope (a login or a container)."""
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number != "0" and names != "name=systemd":
            continue
        units = [part for part in path.split("/") if _UNIT.fullmatch(part) and not part.startswith("user@")]
        services = [unit for unit in units if unit.endswith(".service")]
        if services or units:
            return services[0] if services else units[-1]
    return None


async def find(bus: Bus, unit: str, proc: Path = Path("/proc")) -> Found | None:
    """The server of a unit; None where systemd does not know the unit.

    Raises:
        SystemdError: systemd could not be asked.
    """
    properties = await bus.properties(await bus.load(unit))
    if properties.get("LoadState") != "loaded":
        return None
    given = command(properties)
    place = containers.cgroup(" ".join(given)) if is_client(given) else None
    cgroup = place or properties.get("ControlGroup")
    pids = (Cgroups(proc).processes(cgroup) or []) if isinstance(cgroup, str) and cgroup else []
    argv = next((each for pid, each in _processes(proc, pids) if role(" ".join(each)) == "main"), None)
    told_by = "process" if argv is not None else "unit file" if role(" ".join(given)) == "main" else "nothing"
    args = parse_argv(argv if argv is not None else given) if told_by != "nothing" else {}
    return Found(
        unit=str(properties.get("Id") or unit),
        properties=properties,
        args=args,
        told_by=told_by,
        key_in=key_place(args, _raw_command(properties)),
        pinned=pinned(args, pids, proc),
        client=" ".join(given) if is_client(given) and (argv is None or place is not None) else None,
        cgroup=place,
    )


def is_client(argv: Sequence[str]) -> bool:
    """Whether a command line is that of a container's client or monitor."""
    return bool(argv) and argv[0].rpartition("/")[2] in _CLIENTS


def command(properties: Mapping[str, Any]) -> list[str]:
    """The command of ExecStart= with the variables of Environment= put in; what is not known stays as it is.

    $NAME as a word of its own becomes as many words as its value has, ${NAME} stays one (systemd.service(5), "Command lines").
    """
    known = dict(entry.split("=", 1) for entry in properties.get("Environment") or [] if isinstance(entry, str) and "=" in entry)
    words: list[str] = []
    for word in _raw_command(properties):
        if word.startswith("$") and word[1:] in known:
            words += _split(known[word[1:]])
        else:
            words.append(_VARIABLE.sub(lambda m: known.get(m[1] or m[2], m[0]), word))
    return words


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:  # a quote without its end
        return value.split()


def unknown(properties: Mapping[str, Any]) -> list[str]:
    """The variables of the command whose values the unit file itself does not have."""
    return sorted({m[1] or m[2] for word in command(properties) for m in _VARIABLE.finditer(word)})


def _raw_command(properties: Mapping[str, Any]) -> list[str]:
    """The words of the first ExecStart=, which D-Bus has as (path, argv, ignore, and times)."""
    commands = properties.get("ExecStart")
    first = commands[0] if isinstance(commands, list) and commands else None
    return [str(word) for word in first[1]] if isinstance(first, list | tuple) and len(first) > 1 else []


def key_place(args: Mapping[str, Any], raw: Sequence[str]) -> str | None:
    """Where the API key lies, without its value; None where the server has none."""
    if not args.get("api_key"):
        return None
    words = " ".join(raw)
    if re.search(r"--api-key[= ]\s*\$", words):
        return "in an environment variable of its unit"
    return "on its command line, where every user of this host can read it"


def pinned(args: Mapping[str, Any], pids: Sequence[int], proc: Path = Path("/proc")) -> int | None:
    """Host memory that a server pins: what --hicache-size asks for, or else what its processes hold; None if unknown."""
    if not args.get("enable_hierarchical_cache"):
        return 0 if args else None
    size = args.get("hicache_size")
    if isinstance(size, int | float) and not isinstance(size, bool) and size > 0:
        return int(size * GB) * ranks_here(args)
    held = 0
    for pid in pids:
        status = proc / str(pid) / "status"
        held += _kib(status, b"RssAnon") + _kib(status, b"RssShmem")
    return held or None


def _kib(path: Path, name: bytes) -> int:
    found = re.search(rb"^" + name + rb":\s*(\d{1,18}) kB$", read(path) or b"", re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def gpus(proc: Path = Path("/proc")) -> int:
    """How many GPUs NVIDIA's driver has; 0 without it."""
    folder = proc / "driver/nvidia/gpus"
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


def _processes(proc: Path, pids: Sequence[int] | None = None) -> Iterator[tuple[int, list[str]]]:
    """(pid, command line) of these processes, or of all.

    Those that are gone or have none, and the clients of containers, are left out.
    """
    if pids is None:
        pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    for pid in pids:
        text = read(proc / str(pid) / "cmdline")
        argv = [word.decode("utf-8", "replace") for word in text.rstrip(b"\0").split(b"\0")] if text else []
        if argv and not is_client(argv):
            yield pid, argv
