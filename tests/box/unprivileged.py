"""Runs as ExecStart= of the shipped unit, in the place of the daemon, and writes down what it may do and what not."""

import asyncio
import json
import os
import sys
from pathlib import Path

from watchdog.act.attempt import Terms
from watchdog.act.notify import Notifier
from watchdog.act.restart import restart
from watchdog.act.rights import rights
from watchdog.clock import BootClock
from watchdog.systemd import Bus, SystemdError, running


async def main(unit: str, other: str) -> dict[str, object]:
    notifier = Notifier()
    found: dict[str, object] = {"interval_s": notifier.interval_s, "uid": os.getuid(), "notify": notifier.ready("it was here")}
    async with running(Bus()) as bus:
        await bus.until_connected(10)
        for name in (unit, other):
            may = await rights(bus, name)
            outcome = await restart(bus, name, BootClock(), Terms(stop_s=30))
            found[name] = {"restart": may.restart, "kill": may.kill, "result": outcome.result, "message": outcome.message}
        for what, call in (
            ("reset", bus.reset_failed(unit)),
            ("kill", bus.kill(unit, "main", 18)),
            ("foreign", bus.kill(other, "main", 18)),
        ):
            try:
                await call
                found[what] = "allowed"
            except SystemdError as e:
                found[what] = str(e)
    return found


def sandbox() -> dict[str, object]:
    """What the unit's sandbox shows and hides."""
    try:
        Path("/etc/written").write_text("")
        wrote = True
    except OSError:
        wrote = False
    return {
        "wrote": wrote,
        "meminfo": Path("/proc/meminfo").read_text().startswith("MemTotal"),
        "cgroup": Path("/sys/fs/cgroup/cgroup.controllers").exists(),
    }


result = asyncio.run(main(*sys.argv[1:])) | sandbox()
Path(os.environ["STATE_DIRECTORY"], "result.json").write_text(json.dumps(result))
