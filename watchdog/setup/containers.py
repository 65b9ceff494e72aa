"""Servers in containers: what can be watched, and what has to change first."""

import json
import shutil
import subprocess
from typing import NamedTuple

ASK_LIMIT_S = 5.0
TOOLS = ("docker", "podman")


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
        "docker keeps containers in scopes of their own, whatever starts them: there their processes and memory cannot be seen.",
    ]
    if known is not None and known.log_driver not in ("journald", "passthrough"):
        said.append(f"Its log driver is {known.log_driver or 'unknown'}: the watchdog reads the journal, so it must be journald.")
    return "\n".join(said)
