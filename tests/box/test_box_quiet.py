"""Looking at units that are not there must not make systemd and us talk for ever."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.box.box import Box
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observe.deps import DepsSource
from watchdog.observe.source import Source, Target
from watchdog.observe.unit import UnitSource
from watchdog.systemd import Bus, running


@pytest.fixture
async def bus(box: Box) -> AsyncIterator[Bus]:
    pid = (box.dir / "pid").read_text().strip()
    async with running(Bus(f"unix:path=/proc/{pid}/root/run/dbus/system_bus_socket")) as bus:
        assert await bus.until_connected(10)
        yield bus


@pytest.mark.parametrize("missing", ["deps", "unit", "stopped"])
async def test_a_unit_that_is_not_there_is_looked_at_now_and_then(box: Box, bus: Bus, missing: str) -> None:
    source: Source
    if missing == "deps":
        source = DepsSource(["never-installed.service", "nor-this.service"], BootClock(), bus)
    else:
        name = "never-there.service"
        if missing == "stopped":
            name = "was-there.service"
            await asyncio.to_thread(box.unit, name, "[Service]\nExecStart=/bin/sleep infinity\n")
            await asyncio.to_thread(box.run, "systemctl", "start", name)
            await asyncio.to_thread(box.run, "systemctl", "stop", name)
        source = UnitSource(Target(config.Server(name="box", unit=name)), BootClock(), bus)
    looks = 0
    ask = bus.list_units if missing == "deps" else bus.state

    async def counted(*args: object) -> object:
        nonlocal looks
        looks += 1
        return await ask(*args)  # type: ignore[arg-type]

    setattr(bus, "list_units" if missing == "deps" else "state", counted)
    task = asyncio.create_task(source.run(lambda _: None, lambda: None))
    await asyncio.sleep(2.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert 1 <= looks <= 4
