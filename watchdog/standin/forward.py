"""Forward passes: rank 0 and the other ranks step together, and SGLang's own watchdog looks on."""

import os
import select
import signal
import threading
import time
from collections.abc import Sequence

from watchdog.standin import crashes
from watchdog.standin.channel import Channel
from watchdog.standin.faults import Faults
from watchdog.standin.log import Log
from watchdog.standin.options import Options
from watchdog.standin.startup import stay_for_ever

HANGS = ("hang", "hang-behind-200")


class Forward:
    """Runs the passes of rank 0, each of which ends only when every rank has done its part."""

    def __init__(self, options: Options, faults: Faults, peers: Sequence[Channel]) -> None:
        self._options = options
        self._faults = faults
        self._peers = peers
        self.passes = 0
        self.batch = 0
        """Requests in the pass that runs now, else 0."""

    def run(self, seconds: float, batch: int) -> None:
        """One pass that takes so long."""
        self.batch = batch
        for peer in self._peers:
            peer.send({"op": "step"})
        self.hold()
        crawl = self._faults.active("crawl")
        time.sleep(seconds * float(crawl.get("factor", 50)) if crawl is not None else seconds)
        for peer in self._peers:
            _await_step(peer)
        self.passes += 1
        self.batch = 0

    def shut_down(self) -> None:
        """Tell the other ranks that the server ends."""
        for peer in self._peers:
            peer.send({"op": "shutdown"})

    def hold(self) -> None:
        """Be stuck as long as that is ordered."""
        while any(self._faults.active(name) is not None for name in HANGS):
            time.sleep(0.02)


def _await_step(peer: Channel) -> None:
    """An all-reduce: without the other rank it never ends, as in NCCL."""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    while not peer.receive():
        if peer.closed:
            stay_for_ever()
        poll.poll(1000)


class OwnWatchdog(threading.Thread):
    """SGLang's watchdog thread: a pass that lasts longer than the limit ends the server (srt/utils/watchdog.py).

    It looks every half limit, prints a dump, waits 5 s and sends SIGQUIT to the parent; a soft one only prints.
    """

    def __init__(self, options: Options, log: Log, forward: Forward, limit: float, *, soft: bool) -> None:
        super().__init__(daemon=True)
        self._options = options
        self._log = log
        self._forward = forward
        self._limit = limit
        self._soft = soft

    def run(self) -> None:
        seen, since = -1, time.monotonic()
        while True:
            time.sleep(self._limit * self._options.scale / 2)
            if self._forward.passes != seen or not self._forward.batch:
                seen, since = self._forward.passes, time.monotonic()
            elif time.monotonic() - since > self._limit * self._options.scale:
                since = time.monotonic()
                self._fire()

    def _fire(self) -> None:
        self._log.line("Scheduler debug info:")
        self._log.raw(f"scheduler.cur_batch_for_debug.batch_size()={self._forward.batch}")
        self._log.line(f"Pyspy dump for PID {os.getpid()}:")
        self._log.raw(crashes.STACK.format(pid=os.getpid()))
        if self._options.since(0, 5, 7):
            self._log.line(f"Scheduler watchdog timeout (self.watchdog_timeout={self._limit}, self.soft={self._soft})")
        else:
            self._log.line(f"Watchdog timeout (self.watchdog_timeout={self._limit})")
        if not self._soft:
            time.sleep(5 * self._options.scale)
            os.kill(os.getppid(), signal.SIGQUIT)
