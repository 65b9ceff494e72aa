"""Alerts: from intents to messages for people, on every channel, none lost (docs/alerts.md)."""

from watchdog.act.alerts.alerter import CHANNELS, Alerter, Counts, Result

__all__ = ["CHANNELS", "Alerter", "Counts", "Result"]
