"""The page's server in a process of its own, with a server behind it whose status is large: for attacks, and to measure memory.

Prints its port and nothing else, and ends when its standard input does.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from tests.web.figures import full
from tests.web.site import gpus, make_watch, probe, serve, source
from watchdog import config
from watchdog.observation import Answer
from watchdog.web.metrics import render
from watchdog.web.server import Web


async def main(told: TextIO) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a thread may still write a transcript
        watch = make_watch(Path(folder))
        serve(watch)
        watch.take(gpus(8))
        for n in range(20):
            probe(watch, "chat", "malformed", status=200, answer=Answer(text=f"{n} " * 4000))
        figures = full()
        figures.servers *= 50  # some 300 KB
        site = Web(config.Web(enabled=True, port=0), source([watch]), lambda: render(figures))
        task = asyncio.create_task(site.run())
        while site.port is None:  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(0.01)
        print(site.port, file=told, flush=True)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(sys.stdin, ended.set)
        await ended.wait()
        task.cancel()
        await asyncio.wait([task])


if __name__ == "__main__":
    to_parent = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the log
    asyncio.run(main(to_parent))
