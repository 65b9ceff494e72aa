"""Python's stacks by py-spy, where it is installed.

Always with --nonblocking: without it py-spy stops the process while it reads, and a server that serves must not be stopped for
our sake. What it reads may then have moved in between; that of a process that hangs, the one which counts, has not. Never with
--locals: they hold prompts. Its JSON is taken (as of 0.4.3), since its text begins with the command line.
"""

import concurrent.futures
import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from watchdog.stacks.kernel import is_in

PLACES = (Path(sys.prefix) / "bin/py-spy", Path("/usr/local/bin/py-spy"), Path("/usr/bin/py-spy"))
ONE_LIMIT_S = 4.0
TRIES = 3
"""Of a process that moves a read may fail; a later one may not."""

AT_ONCE = 4
FRAMES = 64
OUTPUT_BYTES = 4 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class NoStacksError(Exception):
    """There are none; the message says why."""


def program(places: Sequence[Path] = PLACES) -> Path:
    """Where py-spy is. One that another than root could have changed does not get our rights.

    Raises:
        NoStacksError: it is not there, or not root's alone.
    """
    for place in places:
        try:
            real = place.resolve(strict=True)  # what is looked at is also what is run: a link may be turned in between
            for each in (real, *real.parents):
                found = each.stat()
                # In a folder with the sticky bit nobody can rename what is root's.
                open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
                if found.st_uid != 0 or open_to_others:
                    raise NoStacksError(f"{each} can be changed by others than root, so it was not run")
        except OSError:
            continue
        return real
    raise NoStacksError(f"py-spy is not installed (looked for {', '.join(map(str, places))})")


def stacks(pids: Sequence[int], cgroup: str, until: float) -> Iterator[str]:
    """A text for each process, in the order in which they come.

    Args:
        pids: the processes.
        cgroup: they must still be in it.
        until: not longer than until this moment of time.monotonic().
    """
    if not pids:
        return
    try:
        spy = program()
    except NoStacksError as e:
        yield f"Python stacks: {e}"
        return
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    left = {pool.submit(_one, spy, pid, cgroup, until): pid for pid in pids}
    try:
        for done in concurrent.futures.as_completed(list(left), max(0.0, until - time.monotonic())):
            pid = left.pop(done)
            try:
                yield f"== Python stacks of {pid}\n{done.result()}"
            except NoStacksError as e:
                yield f"== Python stacks of {pid}: {e}"
    except TimeoutError:
        yield f"Python stacks of {', '.join(map(str, left.values()))} left out: no time"
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _one(spy: Path, pid: int, cgroup: str, until: float) -> str:
    for left in reversed(range(TRIES)):
        try:
            dump = _dump(spy, pid, min(ONE_LIMIT_S, until - time.monotonic()))
        except NoStacksError:
            if left == 0 or time.monotonic() > until:
                raise
            continue
        # What was read is told only if the pid is still that of a process of the unit.
        if not is_in(pid, cgroup):
            raise NoStacksError("it has ended, or is not in the unit")
        return dump
    raise AssertionError("the last try returns or raises")


def _dump(spy: Path, pid: int, limit_s: float) -> str:
    if limit_s <= 0:
        raise NoStacksError("no time")
    with subprocess.Popen(
        [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
    ) as process:
        try:
            out, said = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            raise NoStacksError(f"py-spy gave no answer within {limit_s:.0f} s") from None
    if process.returncode != 0:
        # Its errors name functions and addresses, no command line.
        why = said.decode("utf-8", "replace").strip().partition("\n")[0]
        raise NoStacksError(f"py-spy failed: {_plain(why)[:200] or 'it said nothing'}")
    return told(out[:OUTPUT_BYTES])


def told(dump: bytes) -> str:
    """The threads and frames of py-spy's JSON; the innermost frame first. Of the rest, such as the command line, nothing is kept.

    Raises:
        NoStacksError: it is none.
    """
    try:
        threads = msgspec.json.decode(dump, type=list[dict[str, Any]])
    except msgspec.DecodeError as e:
        raise NoStacksError(f"py-spy's answer was not understood: {e}") from e
    lines: list[str] = []
    for thread in threads:
        frames = thread.get("frames")
        if not isinstance(frames, list):
            continue
        state = "active" if thread.get("active") else "idle"
        lock = ", holds the GIL" if thread.get("owns_gil") else ""
        lines.append(f'thread {thread.get("os_thread_id")} "{_plain(thread.get("thread_name") or "")}" ({state}{lock})')
        for frame in frames[:FRAMES]:
            file = frame.get("short_filename") or frame.get("filename") or "?"
            lines.append(f"    {_plain(frame.get('name'))} ({_plain(file)}:{frame.get('line')})")
        if len(frames) > FRAMES:
            lines.append(f"    … and {len(frames) - FRAMES} frames more")
    return "\n".join(lines) or "no Python thread"


def _plain(text: object) -> str:
    return _CONTROL.sub("?", str(text))
