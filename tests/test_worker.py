import asyncio
import subprocess
import sys
import threading
import time

import pytest

from watchdog.worker import BusyError, NoThreadError, Worker, unanswered


async def test_results_and_errors_come_back() -> None:
    worker = Worker("w")
    assert await worker.call(lambda: 7, 5) == 7
    with pytest.raises(ZeroDivisionError):
        await worker.call(lambda: 1 // 0, 5)
    assert not worker.busy


async def test_blocked_work_is_given_up_and_never_doubled() -> None:
    worker, gate = Worker("w"), threading.Event()
    with pytest.raises(TimeoutError):
        await worker.call(gate.wait, 0.05)
    with pytest.raises(BusyError):
        await worker.call(lambda: 1, 5)

    gate.set()
    while worker.busy:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert await worker.call(lambda: 1, 5) == 1


def test_a_blocked_thread_does_not_keep_the_process() -> None:
    code = """
import asyncio, time
from watchdog.worker import Worker
async def main():
    try:
        await Worker("w").call(lambda: time.sleep(60), 0.05)
    except TimeoutError:
        print("given up")
asyncio.run(main())
"""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "given up\n"
    assert time.monotonic() - begun < 15


async def test_a_thread_that_is_not_to_be_had_is_waited_for_and_never_raises_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """TasksMax= is reached: callers know a worker that is late, and no RuntimeError may end a loop of theirs."""
    start, refusals = threading.Thread.start, iter([True, True])

    def scarce(thread: threading.Thread) -> None:
        if next(refusals, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr("watchdog.worker.RETRY_S", 0.0)
    monkeypatch.setattr(threading.Thread, "start", scarce)
    worker = Worker("w")
    assert await worker.call(lambda: 7, None) == 7
    assert not worker.busy

    refusals = iter(lambda: True, None)
    with pytest.raises(NoThreadError) as caught:
        await worker.call(lambda: 7, 0.01)
    assert "TasksMax=" in unanswered(caught.value)
    assert not worker.busy
    refusals = iter([])
    assert await worker.call(lambda: 7, 5) == 7
