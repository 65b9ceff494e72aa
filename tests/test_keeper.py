"""What must survive the daemon is written down, or waits: no disk and no host may end the one who writes."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from watchdog import keeper
from watchdog.clock import FakeClock
from watchdog.config import Recording
from watchdog.keeper import Keeper
from watchdog.observation import Header, Log
from watchdog.recorder import Recorder
from watchdog.replay import Record


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("watchdog.worker.RETRY_S", 0.0, raising=False)
    monkeypatch.setattr(keeper, "DISK_LIMIT_S", 0.01)
    monkeypatch.setattr(threading.Thread, "start", refused)
    return monkeypatch


def written(folder: Path) -> list[float]:
    (file,) = folder.glob("*.jsonl")
    return [x.t for x in Record(file)]


async def test_what_no_thread_could_write_waits_for_one(tmp_path: Path, no_threads: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path, Header(server="kimi"), Recording(), FakeClock())
    log = SimpleNamespace(error=lambda _event, message: said.append(message))
    server = SimpleNamespace(watch=SimpleNamespace(recorder=recorder, log=log))
    at_work = Keeper(FakeClock(), lambda: [server])  # type: ignore[list-item]
    for t in (1.0, 2.0):
        recorder.take(Log(t=t, message="a line"))
        await at_work.flush()
    assert len(said) == 1
    assert "no thread is to be had (TasksMax=" in said[0]

    no_threads.undo()
    await at_work.flush()
    assert written(tmp_path) == [1.0, 2.0]
    assert (recorder.dropped, recorder.trouble) == (0, None)
