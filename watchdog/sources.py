"""Runs sources: each as a task that is started anew when it falls, with its signs of life kept."""

import asyncio
import traceback
from collections import deque
from pathlib import Path

from watchdog.clock import Clock
from watchdog.log import get
from watchdog.observation import Observation
from watchdog.observe.source import Emit, Source

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
STEADY_S = 300.0
OFTEN = 3
OFTEN_S = 600.0
"""A source that fell so often within so many seconds does not see what it should, whatever it sees in between."""


class Run:
    """One source under supervision.

    Attributes:
        source: what is run.
        beat_at: its last sign of life, on the daemon's clock.
        falls: how often it fell.
        error: why it fell last; None once it observes again.
        why: why it fell last, also once it observes again; "" if it never did.
    """

    def __init__(self, source: Source, clock: Clock, emit: Emit, whose: str = "") -> None:
        self.source = source
        self.falls = 0
        self.error: str | None = None
        self.why = ""
        self._fell: deque[float] = deque(maxlen=OFTEN)
        self._clock = clock
        self._emit: Emit | None = emit
        self._rests = False
        self._log = get(server=whose or None, source=source.name)
        self.beat_at = clock.now()

    def beat(self) -> None:
        """The source gives a sign of life."""
        self.beat_at = self._clock.now()

    def alive(self, now: float) -> bool:
        """Whether its last sign of life is young enough, with room for a busy machine.

        One that fell and is to be started again is alive: what is wrong is known and told, and no new daemon would know more.
        """
        return self._rests or now - self.beat_at <= 2 * self.source.period_s + 10.0

    def falls_often(self, now: float) -> bool:
        """Whether it falls again and again of late."""
        return len(self._fell) == OFTEN and now - self._fell[0] <= OFTEN_S

    def silence(self) -> None:
        """Another takes its place: whatever it still says counts no more."""
        self._emit = None

    async def run(self) -> None:
        """Run the source for ever; what it raises is told, and it is started anew after a pause that grows."""
        pause: float | None = None
        while True:
            self.beat()
            begun = self._clock.now()
            try:
                await self.source.run(self._taken, self.beat)
                self.error = "it ended by itself"
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self.error = "something that it waited for was cancelled"
            except Exception as e:  # noqa: BLE001  # one source must not take the others along
                self.error = _said(e)
            self.why = self.error
            self.falls += 1
            self._fell.append(self._clock.now())
            steady = self._clock.now() - begun > STEADY_S
            pause = FIRST_PAUSE_S if steady or pause is None else min(pause * 2, LONGEST_PAUSE_S)
            self._log.warning(
                "source-failed",
                message=f"source {self.source.name} fell: {self.error}; tried again in {pause:.0f} s",
                source=self.source.name,
            )
            self._rests = True
            await asyncio.sleep(pause)
            self._rests = False

    def _taken(self, x: Observation) -> None:
        self.error = None
        if self._emit is not None:
            self._emit(x)


def _said(e: BaseException) -> str:
    """The innermost error, with its place where it is no error of the system."""
    while isinstance(e, BaseExceptionGroup):
        e = e.exceptions[0]
    if type(e).__module__.partition(".")[0] == __package__:
        return str(e)  # one of our own errors is a sentence for people
    what = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
    frames = [] if isinstance(e, OSError) else traceback.extract_tb(e.__traceback__)
    return f"{what} (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else what


async def running(runs: list[Run]) -> None:
    """Run all until cancelled."""
    async with asyncio.TaskGroup() as group:
        for r in runs:
            group.create_task(r.run(), name=f"source {r.source.name}")


async def ended(task: "asyncio.Task[None]", limit_s: float = 5.0) -> None:
    """Cancel a task and wait for its end, for at most `limit_s` seconds; what it raised is no matter any more."""
    task.cancel()
    await asyncio.wait([task], timeout=limit_s)
    if task.done() and not task.cancelled():
        task.exception()  # asyncio logs what nobody has looked at
