"""What every scheduler process does: its start, its memory, and for the ranks after the first their share of the passes."""

import os
import select
import signal
import time

from watchdog.standin import crashes
from watchdog.standin.channel import Channel
from watchdog.standin.faults import Faults
from watchdog.standin.log import Log
from watchdog.standin.options import Options
from watchdog.standin.pool import HostPool
from watchdog.standin.startup import RankStart, StartFailedError

LOOK = 0.5
"""Seconds between two looks at the faults of a rank that only follows."""


class RankFaults:
    """The faults that concern a rank's memory."""

    def __init__(self, rank: int, faults: Faults, pool: HostPool) -> None:
        self._rank = rank
        self._faults = faults
        self._pool = pool
        self._leaked: list[bytearray] = []
        self._leaked_at: float | None = None

    def obey(self) -> None:
        """Leak and shrink as ordered; to be called several times a second."""
        shrink = self._faults.changed("shrink-pool")
        if shrink is not None:
            self._pool.shrink(float(shrink.get("fraction", 0.5)))
        leak = self._faults.active("leak")
        if leak is None or int(leak.get("rank", 0)) != self._rank:
            self._leaked_at = None
            return
        now = time.monotonic()
        if self._leaked_at is not None:
            size = int(float(leak.get("mb", 10)) * 1e6 * min(now - self._leaked_at, 5.0))
            self._leaked.append(bytearray(b"\1") * size)
        self._leaked_at = now


def start(options: Options, rank: int, log: Log, pool: HostPool, parent: Channel) -> None:
    """Go through the start of a rank and tell the parent; a start that fails ends the process, as in SGLang."""
    try:
        RankStart(options, rank, log, pool).run()
    except (StartFailedError, OSError, MemoryError) as error:
        log.line(
            crashes.start_exception(str(error) if isinstance(error, StartFailedError) else f"{type(error).__name__}: {error}")
        )
        os.kill(os.getppid(), signal.SIGQUIT)
        os._exit(1)
    parent.send({"op": "ready"})


def follow(leader: Channel, own: RankFaults) -> None:
    """The loop of the ranks after the first: do each pass that rank 0 begins."""
    poll = select.poll()
    poll.register(leader, select.POLLIN)
    while not leader.closed:
        poll.poll(int(LOOK * 1000))
        for message in leader.receive():
            if message["op"] == "shutdown":
                os._exit(0)
            leader.send({"op": "done"})
        own.obey()
    while True:
        time.sleep(LOOK)
        own.obey()
