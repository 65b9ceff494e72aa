"""The configuration: its keys (`keys`), and how a file is read and checked (`reading`)."""

from watchdog.config.keys import (
    Alerting,
    Config,
    Daemon,
    Judging,
    Metrics,
    Mode,
    Probing,
    Recording,
    Restarting,
    Section,
    Server,
    Sources,
    Web,
)
from watchdog.config.reading import ConfigError, Fault, load, parse, read

__all__ = [
    "Alerting",
    "Config",
    "ConfigError",
    "Daemon",
    "Fault",
    "Judging",
    "Metrics",
    "Mode",
    "Probing",
    "Recording",
    "Restarting",
    "Section",
    "Server",
    "Sources",
    "Web",
    "load",
    "parse",
    "read",
]
