"""Apprise: Slack, Discord, ntfy, e-mail and a hundred more, through a process of its own with a deadline (extra `apprise`)."""

import asyncio
import json
import os
import sys
from datetime import datetime
from pathlib import Path

from watchdog.act.alerts import apprise_helper, http, wording
from watchdog.act.alerts.http import SendError
from watchdog.act.alerts.notice import Message
from watchdog.act.command import end
from watchdog.config import Alerting
from watchdog.judge.verdict import Severity

KINDS = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}
WHY = {
    apprise_helper.FAILED: "Apprise could not deliver to at least one address; try it with the command `apprise -vv`",
    apprise_helper.BAD_ADDRESS: "an address in apprise_urls_file is of no kind that Apprise knows",
    apprise_helper.NOT_INSTALLED: "Apprise is not installed: install sglang-watchdog[apprise]",
}


class Apprise:
    """Sends to all addresses in `alert.apprise_urls_file`.

    Attributes:
        python: the interpreter that has Apprise.
    """

    name = "apprise"

    def __init__(self, settings: Alerting, python: str = sys.executable) -> None:
        self.settings = settings
        self._files = http.Files(self.name)
        self.python = python

    async def send(self, message: Message, now: datetime) -> None:
        """Send once, to each address.

        Raises:
            SendError: at least one address was not reached; the next attempt goes to all of them again.
        """
        urls = await self._files.read(self.settings.apprise_urls_file, self._urls)
        kind = KINDS[message.severity] if message.firing or message.test else "success"
        job = {"urls": urls, "title": wording.title(message), "body": wording.body(message, now), "kind": kind}
        status = await self._run(json.dumps(job).encode())
        if status != apprise_helper.OK:
            raise SendError(WHY.get(status, f"the helper for Apprise ended with status {status}"))

    def _urls(self) -> list[str]:
        lines = http.read_file(self.settings.apprise_urls_file).splitlines()
        urls = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not urls:
            raise SendError(f"{self.settings.apprise_urls_file} has no address")
        return urls

    async def _run(self, job: bytes) -> int:
        proxy = self.settings.proxy_url
        proxies = {"http_proxy": proxy, "https_proxy": proxy, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy} if proxy else {}
        try:
            process = await asyncio.create_subprocess_exec(
                self.python,
                "-I",
                str(Path(apprise_helper.__file__)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": "/", **proxies},
                cwd="/",
                start_new_session=True,
            )
        except OSError as e:
            raise SendError(f"the helper for Apprise cannot be run: {e.strerror}") from None
        try:
            async with asyncio.timeout(self.settings.limit_s):
                await process.communicate(job)
        except TimeoutError:
            raise SendError(f"Apprise has not delivered within {self.settings.limit_s:g} s") from None
        finally:
            await end(process)
        assert process.returncode is not None
        return process.returncode
