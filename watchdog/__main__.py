"""`python -m watchdog`: the same as the command `sglang-watchdog`."""

from watchdog.cli import entry

entry()
