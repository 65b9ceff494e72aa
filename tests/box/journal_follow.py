"""Runs inside a box: follows its journal until standard input ends, and writes what it sees to standard output, a line each.

The first line says "ready"; the last one how late the event loop was at worst, in seconds, and how many lines were left out.
"""

import argparse
import asyncio
import grp
import json
import os
import pwd
import sys

from watchdog import config, observation
from watchdog.clock import BootClock
from watchdog.observe import journal_reader
from watchdog.observe.journal import JournalSource, KernelSource
from watchdog.observe.journal_reader import JournalError
from watchdog.observe.source import Target


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def drop_rights(group: str | None) -> None:
    """Become nobody, with at most one group more."""
    os.setgroups([grp.getgrnam(group).gr_gid] if group else [])
    nobody = pwd.getpwnam("nobody")
    os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
    os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)


def source_of(options: argparse.Namespace) -> JournalSource | KernelSource:
    clock = BootClock()
    if options.kernel:
        return KernelSource(clock)
    server = config.Server(name="box", unit=options.unit, journal_namespace=options.namespace)
    target = Target(server)
    target.inv = options.inv
    target.active = options.inv is not None
    return JournalSource(target, clock)


async def follow(options: argparse.Namespace) -> None:
    source = source_of(options)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(0, ended.set)
    told = False
    worst = 0.0

    def emit(seen: observation.Observation) -> None:
        sys.stdout.write(observation.encode(seen).decode() + "\n")

    def beat() -> None:
        nonlocal told
        if not told:
            told = True
            sys.stdout.write(json.dumps({"ready": True}) + "\n")
        sys.stdout.flush()

    task = asyncio.create_task(source.run(emit, beat))
    while not ended.is_set() and not task.done():
        before = loop.time()
        await asyncio.sleep(0.01)
        worst = max(worst, loop.time() - before - 0.01)
    healthy = source.healthy()
    task.cancel()
    error = (await asyncio.gather(task, return_exceptions=True))[0]
    if isinstance(error, JournalError):
        say(json.dumps({"error": str(error), "healthy": healthy}))
    elif not isinstance(error, asyncio.CancelledError):
        raise error
    say(json.dumps({"worst_lag_s": worst, "dropped": source.dropped, "healthy": healthy}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("unit")
    parser.add_argument("--inv")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("--nobody", action="store_true")
    parser.add_argument("--group")
    parser.add_argument("--renew", type=float, default=journal_reader.RENEW_S)
    given = parser.parse_args()
    if given.nobody:
        drop_rights(given.group)
    journal_reader.RENEW_S = given.renew
    asyncio.run(follow(given))
