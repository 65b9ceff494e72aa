"""Options that several commands have."""

import argparse

DEFAULT_CONFIG = "/etc/sglang-watchdog/sglang-watchdog.toml"


def config_option(p: argparse.ArgumentParser) -> None:
    """`--config FILE`."""
    p.add_argument("--config", metavar="FILE", default=DEFAULT_CONFIG, help="the configuration file (default: %(default)s)")


def json_option(p: argparse.ArgumentParser) -> None:
    """`--json`."""
    p.add_argument("--json", action="store_true", help="print one JSON object instead of text")
