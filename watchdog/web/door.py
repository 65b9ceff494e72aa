"""Bounds on connections in number, time and memory, so that nobody can keep others away from /healthz, /metrics and the page.

A connection carries one request: its head is gathered here, whole and within a deadline, before anything is made for it, and
what comes after the head is thrown away. When there are too many connections the oldest gives way to the newest: first those
whose request is not complete, then those that do not read their answer. Long answers have bounds of their own, and stay.
"""

import asyncio
from collections.abc import Callable

CONNECTIONS = 128
ANSWERS = 32
"""So many brief answers may be under way: what a client does not read lies in our memory."""
HEAD_CAP = 16 * 1024
SURPLUS_CAP = 64 * 1024
"""Bytes of a request's head, and of what comes after it."""
HEAD_S = 5.0
ANSWER_S = 10.0
END = b"\r\n\r\n"
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Door:
    """A factory of protocols for `create_server`.

    Attributes:
        coming: connections whose request is not complete, the oldest first.
        answering: those that get a brief answer, the oldest first.
        kept: those that get a long one.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        """`make` makes the protocol that answers one request."""
        self.make = make
        self.coming: dict[Connection, None] = {}
        self.answering: dict[Connection, None] = {}
        self.kept: dict[Connection, None] = {}

    def __call__(self) -> "Connection":
        """The protocol of a new connection."""
        return Connection(self)

    def came(self, connection: "Connection") -> None:
        """A client has connected: the oldest makes room for it."""
        self.coming[connection] = None
        if len(self.coming) + len(self.answering) + len(self.kept) > CONNECTIONS:
            _send_away(self.answering if len(self.coming) == 1 and self.answering else self.coming)

    def asked(self, connection: "Connection") -> None:
        """Its request is complete."""
        del self.coming[connection]
        self.answering[connection] = None
        if len(self.answering) > ANSWERS:
            _send_away(self.answering)

    def gone(self, connection: "Connection") -> None:
        """It is closed."""
        for group in (self.coming, self.answering, self.kept):
            group.pop(connection, None)

    def keep(self, transport: asyncio.BaseTransport | None) -> None:
        """Let an answer take as long as it takes: the caller bounds how many there are, and ends those that are not read."""
        for connection in self.answering:
            if connection.transport is transport:
                del self.answering[connection]
                self.kept[connection] = None
                connection.limit(None)
                return

    def close(self) -> None:
        """Send all away whose request is not complete; the others belong to the answering protocols."""
        while self.coming:
            _send_away(self.coming)


class Connection(asyncio.Protocol):
    """One connection: gathers a request's head, then hands everything to the protocol that answers."""

    transport: asyncio.Transport

    def __init__(self, door: Door) -> None:
        self._door = door
        self._head = bytearray()
        self._surplus = 0
        self._answer: asyncio.Protocol | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def limit(self, seconds: float | None) -> None:
        """End the connection after so many seconds from now; None: never."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.transport.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.limit(HEAD_S)
        self._door.came(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is not None:
            self._surplus += len(data)
            if self._surplus > SURPLUS_CAP:
                self.transport.abort()
            return
        searched = max(0, len(self._head) - len(END) + 1)
        self._head += data
        end = self._head.find(END, searched)
        if (end if end >= 0 else len(self._head)) > HEAD_CAP:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif end >= 0 and self in self._door.coming:
            self._begin(bytes(self._head[: end + len(END)]))

    def _begin(self, head: bytes) -> None:
        self._door.asked(self)
        self.limit(ANSWER_S)
        self._head.clear()
        self._answer = self._door.make()
        self._answer.connection_made(self.transport)
        self._answer.data_received(head)

    def eof_received(self) -> bool:
        return self._answer is not None and bool(self._answer.eof_received())

    def pause_writing(self) -> None:
        if self._answer is not None:
            self._answer.pause_writing()

    def resume_writing(self) -> None:
        if self._answer is not None:
            self._answer.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limit(None)
        self._door.gone(self)
        if self._answer is not None:
            self._answer.connection_lost(exc)


def _send_away(group: dict[Connection, None]) -> None:
    """End the oldest connection of a group at once, with all that is still to be sent."""
    oldest = next(iter(group))
    del group[oldest]
    oldest.transport.abort()
