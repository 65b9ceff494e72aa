"""Alerts: from intents to messages for people, on every channel, none lost (docs/alerts.md)."""

from watchdog.act.alerts.alerter import Alerter
from watchdog.act.alerts.channel import CHANNELS, Counts, Result

__all__ = ["CHANNELS", "Alerter", "Counts", "Result"]
