"""The webhook: each message once as JSON with POST, at least once; a repetition has the same id."""

from datetime import datetime

import msgspec

from watchdog.act.alerts import http, wording
from watchdog.act.alerts.notice import Message
from watchdog.config import Alerting


class Webhook:
    """Sends to `alert.webhook_url`."""

    name = "webhook"

    def __init__(self, settings: Alerting) -> None:
        self.settings = settings
        self._files = http.Files(self.name)

    async def send(self, message: Message, now: datetime) -> None:
        """Send once.

        Raises:
            SendError: it has not arrived.
        """
        s = self.settings
        await http.post(
            s.webhook_url,
            msgspec.json.encode(wording.payload(message, now)),
            files=self._files,
            limit_s=s.limit_s,
            headers_file=s.webhook_headers_file,
            ca_file=s.ca_file,
            proxy_url=s.proxy_url,
            more={"Idempotency-Key": message.id},
        )
