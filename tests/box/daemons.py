"""Stand-in servers and watchdogs in a box, for the tests of the daemon there."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.box.box import Box, wait_for
from watchdog.asking import ControlError, ask

COMMAND = str(Path(sys.executable).with_name("sglang-watchdog"))
SERVER = """[Unit]
Description=SGLang stand-in
{unit}
[Service]
ExecStart={command} standin --port {port} --served-model-name kimi-k2.5 --enable-metrics --sglang-version {version} \\
 --start-seconds {seconds} --time-scale 0.2 --watchdog-timeout 7200 --fault-dir /run/faults/{name} {arguments}
Restart=on-failure
RestartSec=1
TimeoutStopSec=20
KillMode=mixed
{service}
"""
WATCHDOG = """[Service]
Type=notify
NotifyAccess=main
ExecStart={command} run --config /etc/wd/{name}.toml
ExecReload=/bin/kill -HUP $MAINPID
WatchdogSec=30
Restart=always
RestartSec=0.2
StateDirectory={name}
RuntimeDirectory={name}
{service}
"""
HOST = """[sources]
gpu = "off"
deps = []
processes_interval_s = 2
"""
WATCHED = """[[servers]]
name = "{name}"
unit = "{name}.service"
base_url = "http://127.0.0.1:{port}"
{keys}
[servers.judge]
hang_s = 20
[servers.probe]
chat_interval_s = 3
chat_limit_s = 6
health_interval_s = 5
{probe}
[servers.restart]
backoff_s = 1
{restart}
"""


class Server:
    """A stand-in server as a unit of the box."""

    def __init__(
        self,
        name: str,
        port: int,
        *,
        version: str = "0.5.9",
        seconds: float = 1.0,
        arguments: str = "--traffic 0.5",
        unit: str = "",
        service: str = "",
        keys: str = "",
        probe: str = "",
        restart: str = "",
    ) -> None:
        self.name = name
        self.port = port
        self.unit = f"{name}.service"
        self.file = SERVER.format(
            command=COMMAND,
            name=name,
            port=port,
            version=version,
            seconds=seconds,
            arguments=arguments,
            unit=unit,
            service=service,
        )
        self.table = WATCHED.format(name=name, port=port, keys=keys, probe=probe, restart=restart)

    def install(self, box: Box) -> None:
        """Write its unit file; systemd is to be told."""
        box.write(f"/etc/systemd/system/{self.unit}", self.file)

    def fault(self, box: Box, *fault: str) -> None:
        """Order a fault."""
        box.run(COMMAND, "standin", "fault", *fault, "--fault-dir", f"/run/faults/{self.name}")


class Watchdog:
    """A daemon as a unit of the box, with what it says."""

    def __init__(self, box: Box, name: str, servers: list[Server], *, service: str = "", daemon: str = "tick_s = 1") -> None:
        self.box = box
        self.name = name
        self.unit = f"{name}.service"
        self.servers = servers
        self.write(f'[daemon]\nruntime_dir = "/run/{name}"\n{daemon}\n{HOST}' + "".join(s.table for s in servers))
        box.write(f"/etc/systemd/system/{self.unit}", WATCHDOG.format(command=COMMAND, name=name, service=service))

    def write(self, config: str) -> None:
        """Another configuration, to be read at the next start or reload."""
        self.config = config
        self.box.write(f"/etc/wd/{self.name}.toml", config)

    def entries(self, **fields: str) -> list[dict[str, str]]:
        """Its journal entries, oldest first, as far as they have these fields (`event="acted", server="a"`)."""
        wanted = [f"SGLANG_WATCHDOG_{name.upper()}={value}" for name, value in fields.items()]
        out = self.box.run("journalctl", "-o", "json", "--no-pager", f"_SYSTEMD_UNIT={self.unit}", *wanted, check=False).stdout
        entries = [json.loads(line) for line in out.splitlines()]
        return [
            {
                k.removeprefix("SGLANG_WATCHDOG_").lower(): v
                for k, v in e.items()
                if k == "MESSAGE" or k.startswith("SGLANG_WATCHDOG_")
            }
            for e in entries
        ]

    def until(self, limit: float, **fields: str) -> dict[str, str]:
        """Wait for an entry, and return the last such one."""
        try:
            return wait_for(lambda: self.entries(**fields), limit, f"{self.name}: entry {fields}")[-1]
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.told(fields.get('server'))}") from None

    def cured(self, limit: float, server: str) -> dict[str, str]:
        """Wait until a life is verified after an incident. (One that nothing ailed before is verified without a reason.)"""

        def verified() -> list[dict[str, str]]:
            return [e for e in self.entries(event="verified", server=server) if e.get("reason")]

        try:
            return wait_for(verified, limit, f"{self.name}: {server} is cured")[-1]
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.told(server)}") from None

    def told(self, server: str | None = None) -> str:
        """The end of what it said, for people."""
        of_server = [f"SGLANG_WATCHDOG_SERVER={server}"] if server else []
        return self.box.journal(f"_SYSTEMD_UNIT={self.unit}", *of_server, "-n", "120", "-o", "short-precise")

    def status(self) -> str:
        """The status line that systemd shows."""
        return self.box.show(self.unit, "StatusText")

    def ask(self, command: str, **request: Any) -> dict[str, Any]:
        """Ask the daemon over its control socket, which is reached through the files of the box's PID 1."""
        pid = (self.box.dir / "pid").read_text().strip()
        return ask(Path(f"/proc/{pid}/root/run/{self.name}"), {"command": command, **request})

    def view(self, server: str) -> dict[str, Any]:
        """What `status` tells of a server; empty while the daemon cannot be asked."""
        try:
            found: dict[str, Any] = self.ask("status", server=server)["servers"][0]
        except ControlError:
            return {}
        return found


def lives(box: Box, *units: str) -> dict[str, str]:
    """Unit → its present InvocationID."""
    return {unit: box.show(unit, "InvocationID") for unit in units}


def pause(seconds: float) -> None:
    """Let the world go on: only where nothing can be waited for, such as for something that must not happen."""
    time.sleep(seconds)
