"""The detokenizer process: tokens from the scheduler become text for the parent."""

import select
import time

from watchdog.standin.channel import Channel
from watchdog.standin.faults import Faults
from watchdog.standin.startup import stay_for_ever


def run(scheduler: Channel, parent: Channel, faults: Faults) -> None:
    """Pass on what comes, for ever."""
    poll = select.poll()
    poll.register(scheduler, select.POLLIN)
    while True:
        poll.poll(100 if parent.unsent else 1000)
        while faults.active("stall-detokenizer") is not None:
            time.sleep(0.05)
        parent.flush()
        for message in scheduler.receive():
            parent.send({**message, "tokens": None, "text": "".join(message["tokens"])})
        if scheduler.closed:
            # A dead scheduler is the parent's business: the real one waits on its ZeroMQ socket all the same.
            stay_for_ever()
