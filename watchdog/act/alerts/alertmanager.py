"""Alertmanager: what stands is told again and again, what is over is told until it was heard (API v2, `POST /api/v2/alerts`).

Alertmanager itself groups, repeats and routes, so each cause is an alert of its own. It takes an alert for over at its `endsAt`,
so that one whose sender died does not stand for ever (api/v2/api.go, 0.25).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from watchdog.act.alerts import http
from watchdog.act.alerts.notice import Cause, Item
from watchdog.act.alerts.wording import plain
from watchdog.clock import rfc3339
from watchdog.config import Alerting

RESEND_S = 60.0
"""As Prometheus does (--rules.alert.resend-delay), and for the same time ahead: endsAt is four times this from now."""
ENDED_KEPT = timedelta(days=3)
ENDED_MAX = 500


class Known(msgspec.Struct, kw_only=True):
    """An alert that Alertmanager has, or may have, heard of.

    Attributes:
        ended: since when it is over; it is told until Alertmanager has heard of that.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts: datetime
    ended: datetime | None = None


class Alertmanager:
    """Keeps an Alertmanager in step with the causes that stand."""

    name = "alertmanager"

    def __init__(self, settings: Alerting, host: str, raw: bytes | None = None, now: datetime | None = None) -> None:
        """Take up what was kept; what a clock wrote that ran ahead is brought back to `now`.

        Raises:
            msgspec.DecodeError: it cannot be understood.
        """
        self.settings = settings
        self._files = http.Files(self.name)
        self.host = host
        self.known: dict[str, Known] = msgspec.json.decode(raw, type=dict[str, Known]) if raw else {}
        if now is not None:
            for known in self.known.values():
                known.starts, known.ended = min(known.starts, now), known.ended and min(known.ended, now)

    def shift(self, by: timedelta) -> None:
        """The wall clock was set: all moments are `by` later on it."""
        for known in self.known.values():
            known.starts, known.ended = known.starts + by, known.ended and known.ended + by

    def encoded(self) -> bytes:
        """The file's content."""
        return msgspec.json.encode(self.known)

    def follow(self, standing: Iterable[tuple[Cause, Item]], now: datetime) -> bool:
        """Take over what stands now; True if there is news for Alertmanager. To be saved before it is sent."""
        news = False
        seen: set[str] = set()
        for cause, item in standing:
            labels = self._labels(cause, item)
            key = " ".join(labels.values())
            seen.add(key)
            known = self.known.get(key)
            if known is None or known.ended is not None:
                self.known[key] = Known(labels=labels, annotations=_annotations(item), starts=item.since)
                news = True
            elif known.annotations != (annotations := _annotations(item)):
                known.annotations = annotations
                news = True
        for key, known in self.known.items():
            if key not in seen and known.ended is None:
                known.ended = now
                news = True
        self._forget(now)
        return news

    async def send(self, now: datetime) -> None:
        """Tell all that stands, and what is over and was not heard as such. Nothing is sent where there is nothing to tell.

        Raises:
            SendError: it has not been heard.
        """
        told = list(self.known.items())
        if not told:
            return
        ends = now + timedelta(seconds=4 * RESEND_S)
        alerts = [
            {
                "labels": known.labels,
                "annotations": known.annotations,
                "startsAt": rfc3339(known.starts),
                "endsAt": rfc3339(max(known.ended, known.starts) if known.ended else ends),
            }
            for _, known in told
        ]
        await self._post(alerts)
        for key, known in told:
            if known.ended is not None and self.known.get(key) is known:
                del self.known[key]

    async def test(self, now: datetime) -> None:
        """Send an alert that says that it is a test, and ends at once by itself.

        Raises:
            SendError: it has not been heard.
        """
        labels = {"alertname": "WatchdogTest", "severity": "info", "host": self.host, "job": "sglang-watchdog"}
        annotations = {"summary": f"Test of sglang-watchdog on {self.host}: nothing is wrong"}
        ends = rfc3339(now + timedelta(seconds=RESEND_S))
        await self._post([{"labels": labels, "annotations": annotations, "startsAt": rfc3339(now), "endsAt": ends}])

    async def _post(self, alerts: Sequence[Mapping[str, object]]) -> None:
        s = self.settings
        await http.post(
            f"{s.alertmanager_url.rstrip('/')}/api/v2/alerts",
            msgspec.json.encode(alerts),
            files=self._files,
            limit_s=s.limit_s,
            headers_file=s.alertmanager_headers_file,
            ca_file=s.ca_file,
            more={},
        )

    def _labels(self, cause: Cause, item: Item) -> dict[str, str]:
        severity = "info" if cause.on_its_way else str(item.severity)
        return {
            "alertname": item.reason,
            "severity": severity,
            "server": item.server,
            "unit": item.unit,
            "host": self.host,
            "job": "sglang-watchdog",
        }

    def _forget(self, now: datetime) -> None:
        """What is long over, or too much, is dropped: an Alertmanager that was away so long ends it by itself."""
        ended = sorted((known.ended, key) for key, known in self.known.items() if known.ended is not None)
        surplus = len(ended) - ENDED_MAX
        for number, (at, key) in enumerate(ended):
            if number < surplus or now - at > ENDED_KEPT:
                del self.known[key]


def _annotations(item: Item) -> dict[str, str]:
    words = {
        "summary": plain(item.message),
        "description": "\n".join([plain(item.message), *(f"Evidence: {plain(each)}" for each in item.evidence), item.did]),
        "advice": plain(item.advice or ""),
        "runbook_url": item.runbook or "",
    }
    return {name: text for name, text in words.items() if text}
