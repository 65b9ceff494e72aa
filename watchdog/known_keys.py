"""Which keys the configuration names: they are read before anything is observed, so that none is told by its own server."""

import contextlib

from watchdog import config, keyring
from watchdog.act.alerts.http import SendError, read_file, read_headers
from watchdog.observe.access import AccessError, read_key

SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie")


def learn(whole: config.Config) -> None:
    """Read them all. Blocking. One that cannot be read is told by whoever needs it, and learnt when it is read then."""
    for server in whole.servers:
        if server.api_key_file:
            with contextlib.suppress(AccessError):
                read_key(server.api_key_file)
    for name in (whole.alert.webhook_headers_file, whole.alert.alertmanager_headers_file):
        with contextlib.suppress(SendError):
            for header, value in read_headers(name).items():
                if any(word in header.lower() for word in SECRET_HEADERS):
                    keyring.remember(value)
                    keyring.remember(value.rpartition(" ")[2])  # without its scheme, such as Bearer
    if whole.alert.apprise_urls_file:
        with contextlib.suppress(SendError):
            for line in read_file(whole.alert.apprise_urls_file).splitlines():
                if "://" in line and not line.startswith("#"):
                    keyring.remember(line)
