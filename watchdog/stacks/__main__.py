"""Answers one request, on a Unix socket as standard input: `python -I -m watchdog.stacks CONFIG`.

The request is one line, a unit's name. The answer is text that comes as it is found: `ok` or `refused: why` in the first line,
then the stacks. The one who asks must be root or the watchdog's user, and the unit one of the configuration's.
"""

import os
import pwd
import re
import socket
import struct
import sys
import time
from pathlib import Path

from watchdog import config
from watchdog.observe.cgroup import Cgroups
from watchdog.stacks import kernel, python

USER = "sglang-watchdog"
REQUEST_BYTES = 300
"""A unit's name has at most 255 bytes (systemd, UNIT_NAME_MAX)."""

SOCKET_LIMIT_S = 5.0
LIMIT_S = 10.0
"""The whole takes at most about so long, in seconds; systemd ends what takes longer (RuntimeMaxSec=)."""

PROCESSES = 64
CAP = 2 << 20
"""Bytes of the answer at most."""

_UNIT = re.compile(rb"[A-Za-z0-9:_.\\@-]{1,247}\.service")


class RefusedError(Exception):
    """It is not done; the message says why."""


class Answer:
    """What is told, at most `CAP` bytes of it."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._left = CAP

    def say(self, text: str) -> None:
        """Send some lines."""
        data = f"{text}\n".encode("utf-8", "replace")[: self._left]
        self._left -= len(data)
        self._peer.sendall(data)


def main(argv: list[str]) -> int:
    """Answer; 0 also for a refusal, which is no fault of ours."""
    with socket.socket(fileno=os.dup(0)) as peer:
        peer.settimeout(SOCKET_LIMIT_S)
        try:
            answer_one(peer, Path(argv[0]))
        except OSError as e:
            sys.stderr.write(f"the answer could not be given: {e}\n")
    return 0


def answer_one(peer: socket.socket, configuration: Path) -> None:
    """Read the request, and answer it or say why not.

    Raises:
        OSError: the one who asked is gone.
    """
    answer = Answer(peer)
    try:
        unit = requested(peer)  # first: a socket that is closed unread breaks off the answer
        check_peer(peer)
        server = server_of(unit, configuration)
    except RefusedError as e:
        sys.stderr.write(f"refused: {e}\n")
        answer.say(f"refused: {e}")
    else:
        tell(server, answer)


def check_peer(peer: socket.socket) -> None:
    """Whether the one at the other end may ask, by what the kernel says of him (SO_PEERCRED, unix(7)).

    Raises:
        RefusedError: he may not.
    """
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid not in allowed():
        raise RefusedError(f"only root and the user {USER} may ask, not the user {uid}")


def allowed() -> set[int]:
    """The users who may ask."""
    try:
        return {0, pwd.getpwnam(USER).pw_uid}
    except KeyError:
        return {0}


def requested(peer: socket.socket) -> str:
    """The unit that is asked for.

    Raises:
        RefusedError: the request is not understood.
    """
    line = b""
    try:
        while b"\n" not in line and len(line) < REQUEST_BYTES and (more := peer.recv(REQUEST_BYTES - len(line))):
            line += more
    except TimeoutError:
        raise RefusedError("no request came") from None
    name, end, rest = line.partition(b"\n")
    if not end or rest or not _UNIT.fullmatch(name):
        raise RefusedError("a request is the name of a service unit and a newline")
    return name.decode("ascii")


def server_of(unit: str, configuration: Path) -> config.Server:
    """The server with this unit.

    Raises:
        RefusedError: it is not, or that cannot be told.
    """
    try:
        servers = config.load(configuration).servers
    except config.ConfigError as e:
        raise RefusedError(f"{configuration} cannot be used: {str(e).splitlines()[0]}") from e
    for server in servers:
        if server.unit == unit:
            return server
    raise RefusedError(f"{unit} is no server of {configuration}")


def tell(server: config.Server, answer: Answer) -> None:
    """The stacks of the server's processes: first the kernel's, which are quick, then Python's."""
    until = time.monotonic() + LIMIT_S
    cgroups = Cgroups()
    cgroup = server.cgroup or kernel.cgroup_of(server.unit, cgroups)
    pids = (cgroups.processes(cgroup) or []) if cgroup is not None else []
    answer.say(f"ok\nStacks of {server.unit}: {len(pids)} processes")
    looked: list[int] = []
    for pid in pids[:PROCESSES]:
        if time.monotonic() > until:
            answer.say("The rest left out: no time")
            break
        seen = kernel.look(pid, str(cgroup))
        if seen is not None:
            looked += [pid] if seen.python else []
            answer.say(f"\n== {pid} {seen.name}\n{seen.text}")
    if len(pids) > PROCESSES:
        answer.say(f"\n{len(pids) - PROCESSES} processes more left out")
    for text in python.stacks(looked, str(cgroup), until):
        answer.say(f"\n{text}")


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # a thread may still wait for a py-spy that cannot die
