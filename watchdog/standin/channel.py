"""Messages between the processes of the stand-in, where the real server uses ZeroMQ."""

import json
import socket
from typing import Any

Message = dict[str, Any]

MAX_UNSENT = 16 * 2**20
"""Bytes kept for a receiver that does not read; what comes on top is dropped, as ZeroMQ does at its high-water mark."""


class Channel:
    """One end of a two-way stream of JSON messages. Neither sending nor receiving ever blocks."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._received = bytearray()
        self._unsent = bytearray()
        self.closed = False

    @property
    def unsent(self) -> bool:
        """True while the other end has not taken all that was sent."""
        return bool(self._unsent)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Message) -> None:
        """Send now, or as soon as `flush` finds room. A message to a dead process is lost, silently."""
        if len(self._unsent) < MAX_UNSENT:
            self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[Message]:
        """All messages that have arrived; sets `closed` when the other end is gone."""
        try:
            while part := self._socket.recv(65536):
                self._received += part
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        return [json.loads(line) for line in lines]


def pair() -> tuple[Channel, Channel]:
    """Both ends of a new channel."""
    one, other = socket.socketpair()
    return Channel(one), Channel(other)
