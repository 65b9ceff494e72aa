"""Servers in containers: what can be watched, and what has to change first."""

import json
import re
import shutil
import subprocess
from typing import NamedTuple

ASK_LIMIT_S = 5.0
TOOLS = ("docker", "podman")
_DETACH = re.compile(r"(?:--detach|-[itqP]*d)(?:=(?:[Tt]rue|TRUE|[tT1]))?|-[itqP]*d[a-zA-Z].*")
"""Not --detach-keys, which is for the foreground. Short options share a word; the last of them may have a value: -dp 80:80."""

_SLICE = re.compile(r"[A-Za-z0-9:_.\\]+(?:-[A-Za-z0-9:_.\\]+)*\.slice")


class Container(NamedTuple):
    """What docker or podman says of a container; None: it did not say."""

    tool: str
    name: str | None
    log_driver: str | None


def look(container: str) -> Container | None:
    """Ask docker, then podman; None if neither knows it."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            continue
        try:
            done = subprocess.run(
                [tool, "inspect", "--type", "container", container],
                capture_output=True,
                text=True,
                check=False,
                timeout=ASK_LIMIT_S,
                stdin=subprocess.DEVNULL,
            )
            found = json.loads(done.stdout)[0] if done.returncode == 0 else None
        except (OSError, ValueError, IndexError, KeyError, TypeError, subprocess.TimeoutExpired):
            continue
        if isinstance(found, dict):
            return told(tool, found)
    return None


def told(tool: str, found: dict[str, object]) -> Container:
    """The part of `inspect` that matters here (docker and podman agree on it)."""
    name = found.get("Name")
    host = found.get("HostConfig")
    log = host.get("LogConfig") if isinstance(host, dict) else None
    driver = log.get("Type") if isinstance(log, dict) else None
    return Container(tool, name.lstrip("/") if isinstance(name, str) else None, driver if isinstance(driver, str) else None)


def advice(container: str, unit: str, known: Container | None) -> str:
    """What a person can do about a server whose container has a scope of its own."""
    name = (known.name if known else None) or container[:12]
    said = [
        f"The server in the container {name} runs in {unit}. systemd cannot restart a scope: only a service can be watched.",
        "Run the container as a service whose cgroup holds its processes, and its output in that service's journal:",
        f"with podman as a quadlet (podman-systemd.unit(5), {name}.container), whose unit is {name}.service.",
        f"with docker as `docker run` in the foreground in a service's ExecStart=, with --cgroup-parent=sglang-{name}.slice.",
    ]
    if known is not None and known.log_driver not in ("journald", "passthrough"):
        said.append(f"Its log driver is {known.log_driver or 'unknown'}: the watchdog reads the journal, so it must be journald.")
    return "\n".join(said)


def cgroup(client: str) -> str | None:
    """The cgroup in which a container is put by --cgroup-parent=a-b.slice: "/a.slice/a-b.slice"; None without it.

    docker 20.10 and 26.1 with systemd's cgroup driver: the container is a scope in that slice, which is its alone.
    """
    slice_ = option(client, "--cgroup-parent")
    if slice_ is None or not _SLICE.fullmatch(slice_):
        return None
    parts = slice_.removesuffix(".slice").split("-")
    return "".join(f"/{'-'.join(parts[:n])}.slice" for n in range(1, len(parts) + 1))


def outside(unit: str, client: str) -> str | None:
    """Why a unit that starts a container cannot be watched as it is; None where its processes and lines can be found.

    podman 4.3 and 5.4 with crun and runc: with --cgroups=split the container's cgroup is one of the unit's, by default it is a
    scope in machine.slice. docker's containers are always in scopes, by default in system.slice; in the foreground it hands their
    output to the unit, else they have it in docker.service.
    """
    tool = client.split(maxsplit=1)[0].rpartition("/")[2]
    if tool == "podman":
        if option(client, "--cgroups") in ("split", "disabled"):
            return None
        cure = (
            "add --cgroups=split, --sdnotify=conmon and -d to its `podman run`, with Type=notify, NotifyAccess=all and "
            "Delegate=yes, or make a quadlet of it (podman-systemd.unit(5)), which has all that"
        )
    elif cgroup(client) is not None and not _is_detached(client):
        return None
    else:
        slice_ = f"{unit.removesuffix('.service')}.slice".replace("@", "-")
        cure = f"let it be `{tool} run` in the foreground (without -d) with --cgroup-parent={slice_}, a slice of its own"
    return (
        f"{unit} starts a container whose processes are in a scope of their own, not in the unit: the watchdog would not see "
        f"them. What helps: {cure}"
    )


def option(client: str, name: str) -> str | None:
    """The value of an option on a command line, with "=" or as the next word; None where it is not given."""
    words = client.split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _is_detached(client: str) -> bool:
    return any(_DETACH.fullmatch(word) for word in client.split())


def twice(client: str) -> str | None:
    """What is to be said of a `podman run` in the foreground with the journald driver; None where each line comes once."""
    words = client.split() or [""]
    if words[0].rpartition("/")[2] != "podman" or "run" not in words or _is_detached(client):
        return None
    if option(client, "--log-driver") not in (None, "journald"):
        return None
    return (
        "each of its lines comes twice, from conmon and from podman, which runs in the foreground: add --log-driver=passthrough "
        "to its `podman run`, or -d with --sdnotify=conmon and Type=notify"
    )
