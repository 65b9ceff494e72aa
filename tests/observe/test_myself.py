import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from watchdog.clock import BootClock, FakeClock
from watchdog.observation import Self
from watchdog.observe import myself
from watchdog.observe.myself import Loopback, SelfSource, Senses


async def until(what: Callable[[], object], limit_s: float = 5.0) -> None:
    async with asyncio.timeout(limit_s):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0.02)  # what it closed is closed in the next turns of the loop


async def test_a_quiet_daemon() -> None:
    seen: list[Self] = []
    beats: list[int] = []
    senses = Senses(journal_ok=True, bus_ok=False, dropped=3, may_restart=True, shutting_down=False)
    task = asyncio.create_task(SelfSource(BootClock(), lambda: senses, 0.05, 0.01).run(seen.append, lambda: beats.append(1)))  # type: ignore[arg-type]
    await until(lambda: len(seen) >= 2)
    await end(task)
    for each in seen:
        assert (each.journal_ok, each.bus_ok, each.nvml_ok, each.dropped) == (True, False, None, 3)
        assert (each.may_restart, each.shutting_down, each.control_probe, each.paused_s) == (True, False, "ok", 0.0)
        assert each.loop_lag_s is not None and 0 <= each.loop_lag_s < 1
    assert len(beats) > 2


async def test_a_suspended_machine_is_told_at_once_and_is_no_lag() -> None:
    clock, seen = FakeClock(), list[Self]()
    source = SelfSource(clock, Senses, 3600, 0.01)
    task = asyncio.create_task(source.run(seen.append, lambda: None))  # type: ignore[arg-type]
    await until(lambda: len(seen) == 1)
    clock.suspend(540)
    await until(lambda: len(seen) == 2)
    clock.advance(3)  # a shorter gap waits for the next turn
    await asyncio.sleep(0.1)
    assert len(seen) == 2
    source.look_now()
    await until(lambda: len(seen) == 3)
    await end(task)
    assert seen[1].paused_s == pytest.approx(540, abs=1) and seen[1].loop_lag_s == 0.0
    assert seen[2].paused_s == pytest.approx(3, abs=0.1) and seen[2].loop_lag_s == pytest.approx(3, abs=0.1)


async def test_a_control_probe_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(myself, "CONTROL_LIMIT_S", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with Loopback() as loopback:
        assert await loopback.ask()
        assert loopback._server is not None
        host, port = loopback._address
        loopback._server.close()
        assert not await loopback.ask()
        loopback._server = await asyncio.start_server(silent, host, port)
        assert not await loopback.ask()
    await asyncio.sleep(0.02)


STOPPED = """
import asyncio
from watchdog.clock import BootClock
from watchdog.observe import myself
myself.LONG_GAP_S = myself.GAP_S
async def main():
    source = myself.SelfSource(BootClock(), myself.Senses, 3600, 0.05)
    await source.run(lambda seen: print(seen.paused_s, flush=True), lambda: None)
asyncio.run(main())
"""


def test_a_stopped_daemon_knows_how_long_it_did_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert float(process.stdout.readline()) == 0.0
        time.sleep(0.2)
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        assert 1.0 < float(process.stdout.readline()) < 10.0
        process.kill()
