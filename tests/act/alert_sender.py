"""A process that raises alerts until it is killed: `python -m tests.act.alert_sender STATE URL COUNT`."""

import asyncio
import sys
from pathlib import Path

import structlog

from watchdog import config
from watchdog.act.alerts import Alerter
from watchdog.clock import BootClock
from watchdog.judge.verdict import Action, Intent, Severity


async def main(state: str, url: str, count: int) -> None:
    clock = BootClock()
    settings = config.Alerting(webhook_url=url, group_wait_s=0, per_hour=3600, limit_s=1)
    servers = [config.Server(name="kimi", unit="sglang-kimi.service")]
    alerter = Alerter(settings, servers, "act", state=Path(state), clock=clock, log=structlog.get_logger(), host="gpu01")
    running = asyncio.create_task(alerter.run())
    for n in range(count):
        alerter.tell(
            "kimi",
            clock.wall(clock.now()),
            Intent(action=Action.ALERT, reason=f"Odd{n}", severity=Severity.WARNING, message=f"Number {n}."),
        )
        await asyncio.sleep(0.02)
    sys.stdout.write("told\n")
    sys.stdout.flush()
    await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
