"""systemd credentials of the daemon, for commands: what the service gets by name, root finds at its source."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.setup import service

if TYPE_CHECKING:
    from watchdog.config import Config

HANDED = Path("/run/credentials")
"""Where systemd lays the credentials of running services: a folder for each unit (systemd.exec(5), "Credentials")."""
BOOTED = Path("/run/systemd/system")
BUS_LIMIT_S = 2.0
ALERT_FILES = ("webhook_headers_file", "alertmanager_headers_file", "apprise_urls_file")
UNIT = f"{service.NAME}.service"


def resolved(whole: "Config") -> "Config":
    """The configuration with a path in place of the bare name of each credential that can be found; the others stay."""
    import msgspec  # noqa: PLC0415  # loaded only by commands that ask a server

    of_alerts = {field: getattr(whole.alert, field) for field in ALERT_FILES}
    named = {s.api_key_file for s in whole.servers} | set(of_alerts.values())
    wanted = {name for name in named if name and "/" not in name}
    if not wanted or os.environ.get("CREDENTIALS_DIRECTORY"):
        return whole
    paths = {name: str(HANDED / UNIT / name) for name in wanted if os.access(HANDED / UNIT / name, os.R_OK)}
    if wanted - paths.keys():
        paths = {**service.known_credentials(), **_configured(), **paths}
    servers = [msgspec.structs.replace(s, api_key_file=paths.get(s.api_key_file, s.api_key_file)) for s in whole.servers]
    alert = msgspec.structs.replace(whole.alert, **{field: paths.get(name, name) for field, name in of_alerts.items()})
    return msgspec.structs.replace(whole, servers=servers, alert=alert)


def _configured() -> dict[str, str]:
    """LoadCredential= of the daemon's unit: name → file; nothing where systemd cannot be asked."""
    import asyncio  # noqa: PLC0415

    return asyncio.run(_asked()) if BOOTED.is_dir() else {}


async def _asked() -> dict[str, str]:
    from watchdog.systemd import Bus, SystemdError, running  # noqa: PLC0415

    async with running(Bus(call_limit_s=BUS_LIMIT_S)) as bus:
        if not await bus.until_connected(BUS_LIMIT_S):
            return {}
        try:
            found = (await bus.properties(await bus.load(UNIT))).get("LoadCredential")
        except SystemdError:
            return {}
    pairs = found if isinstance(found, list) else []
    # A source that is no path names a credential of the system, which only the service gets.
    return {str(name): str(source) for name, source in pairs if str(source).startswith("/")}
