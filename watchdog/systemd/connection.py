"""A connection to the system bus that comes back: calls with a deadline, and signals that say when some were missed."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dbus_fast import BusType, Message, MessageFlag, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusFastError
from dbus_fast.unpack import unpack_variants

from watchdog.systemd.errors import BusUnavailableError, CallFailedError, NoAnswerError, from_reply

DBUS = "org.freedesktop.DBus"
PROPERTIES = "org.freedesktop.DBus.Properties"

BOOTED = Path("/run/systemd/system")
"""Where it is there, systemd is the init of this host (sd_booted(3))."""
SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 15.0
QUEUED_SIGNALS = 1000


class Signal(NamedTuple):
    """One signal; variants in its body are unpacked."""

    path: str
    interface: str
    member: str
    body: list[Any]


RESYNC = Signal("", "", "Resync", [])
"""Stands in a subscription where signals may have been missed: read the state anew."""


class Match(NamedTuple):
    """Which signals are wanted: a match rule of the D-Bus specification.

    Attributes:
        sender: the well-known name of the sender; signals of anybody else are dropped, even where they were sent to us alone.
        arg: a position in the body and the text that must stand there.
    """

    sender: str
    interface: str
    member: str
    path: str | None = None
    arg: tuple[int, str] | None = None

    def rule(self) -> str:
        parts = {"type": "signal", "sender": self.sender, "interface": self.interface, "member": self.member}
        if self.path is not None:
            parts["path"] = self.path
        if self.arg is not None:
            parts[f"arg{self.arg[0]}"] = self.arg[1]
        return ",".join(f"{key}='{value}'" for key, value in parts.items())

    def fits(self, signal: Signal) -> bool:
        if (self.interface, self.member) != (signal.interface, signal.member) or self.path not in (None, signal.path):
            return False
        return self.arg is None or (len(signal.body) > self.arg[0] and signal.body[self.arg[0]] == self.arg[1])


class Subscription:
    """The signals that fit, in the order of their arrival."""

    def __init__(self) -> None:
        self._queue: deque[Signal] = deque()
        self._filled = asyncio.Event()

    def put(self, signal: Signal) -> None:
        """Append a signal; if nobody takes them for too long, they are dropped and a RESYNC stands in their place."""
        if len(self._queue) >= QUEUED_SIGNALS:
            self._queue.clear()
            signal = RESYNC
        self._queue.append(signal)
        self._filled.set()

    async def next(self, limit_s: float) -> list[Signal]:
        """Wait for at most `limit_s` seconds; then all that is there, which may be nothing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._filled.wait()
        self._filled.clear()
        taken = list(self._queue)
        self._queue.clear()
        return taken


class Connection:
    """One connection at a time to the system bus, for as long as `run` runs.

    Attributes:
        trouble: why there is no connection, for people; None while there is one.
    """

    def __init__(
        self, address: str | None, needs: str, also: Iterable[str], greet: Callable[[], Awaitable[None]], limit_s: float
    ) -> None:
        """Prepare, without I/O.

        Args:
            address: the address of the bus; None for the system's own.
            needs: the well-known name without which the connection is of no use; a new owner means a new connection.
            also: other well-known names whose signals are wanted; their owners may come and go.
            greet: called on each new connection before anybody else uses it.
            limit_s: the deadline of a call, in seconds.
        """
        self._address = address
        self._needs = needs
        self._names = (needs, *also)
        self._greet = greet
        self._limit_s = limit_s
        self._bus: MessageBus | None = None
        self._owners: dict[str, str] = {}
        self._listeners: list[tuple[tuple[Match, ...], Callable[[Signal], None]]] = []
        self._up = asyncio.Event()
        self.trouble: str | None = "not connected yet"

    @property
    def connected(self) -> bool:
        return self._up.is_set()

    async def until_connected(self, limit_s: float) -> bool:
        """Wait for at most `limit_s` seconds; whether there is a connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._up.wait()
        return self.connected

    async def run(self) -> None:
        """Connect, and connect again whenever the bus went away; runs until it is cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                bus = MessageBus(self._address, BusType.SYSTEM)
                async with asyncio.timeout(self._limit_s):
                    await bus.connect()
            except (OSError, EOFError, DBusFastError) as e:
                self.trouble = self._unreached(e)
            else:
                if await self._serve(bus):
                    pause = FIRST_PAUSE_S
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _unreached(self, error: Exception) -> str:
        place = self._address or os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or SYSTEM_BUS
        return f"no connection to {place}: {_told(error)}"

    async def _serve(self, bus: MessageBus) -> bool:
        """Use one connection until it ends; whether it was good at all."""
        try:
            bus.add_message_handler(self._receive)
            self._bus = bus
            await self._prepare()
            self.trouble = None
            self._up.set()
            for _, callback in list(self._listeners):
                callback(RESYNC)
            await _closed(bus)
        except (BusUnavailableError, NoAnswerError, CallFailedError) as e:
            self.trouble = str(e)
            return False
        except (OSError, EOFError, DBusFastError) as e:
            self.trouble = f"connection lost: {_told(e)}"
        else:
            self.trouble = f"connection closed, or {self._needs} left the bus"
        finally:
            self._bus = None
            self._up.clear()
            self._owners.clear()
            bus.disconnect()
            with contextlib.suppress(OSError, EOFError, DBusFastError):
                async with asyncio.timeout(1.0):
                    await _closed(bus)
        return True

    async def _prepare(self) -> None:
        for name in self._names:
            await self._bus_call("AddMatch", Match(DBUS, DBUS, "NameOwnerChanged", arg=(0, name)).rule())
            try:
                self._owners[name] = (await self._bus_call("GetNameOwner", name))[0]
            except BusUnavailableError:
                if name == self._needs:
                    raise
        for matches, _ in list(self._listeners):
            for match in matches:
                await self._bus_call("AddMatch", match.rule())
        await self._greet()

    async def _bus_call(self, member: str, argument: str) -> list[Any]:
        return await self.call(DBUS, "/org/freedesktop/DBus", DBUS, member, "s", argument)

    def _receive(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        signal = Signal(message.path or "", message.interface or "", message.member or "", unpack_variants(message.body))
        if message.sender == DBUS and signal.member == "NameOwnerChanged" and len(signal.body) == 3:
            self._owner_changed(*signal.body)
            return
        for matches, callback in list(self._listeners):
            if any(self._owners.get(match.sender) == message.sender and match.fits(signal) for match in matches):
                callback(signal)

    def _owner_changed(self, name: str, _before: str, now: str) -> None:
        if name == self._needs and now != self._owners.get(name) and self._bus is not None:
            self._bus.disconnect()  # systemd was executed anew (daemon-reexec): begin anew as well
        elif now:
            self._owners[name] = now
        else:
            self._owners.pop(name, None)

    async def call(self, destination: str, path: str, interface: str, member: str, signature: str = "", *body: Any) -> list[Any]:
        """Call a method; the body of its reply, variants unpacked.

        Raises:
            BusUnavailableError: there is no connection, it was lost meanwhile, or nobody owns the destination.
            NoAnswerError: no reply within the deadline.
            CallFailedError: an error reply; its sub-types for those that have a cure of their own.
        """
        what = f"{member} {body[0]}" if body and isinstance(body[0], str) and body[0] else member
        if self._bus is None or not self._bus.connected:
            raise BusUnavailableError(self.trouble or "not connected")
        message = Message(
            destination=destination,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=list(body),
            flags=MessageFlag.NO_AUTOSTART,
        )
        try:
            async with asyncio.timeout(self._limit_s):
                reply = await self._bus.call(message)
        except TimeoutError as e:
            raise NoAnswerError(what, self._limit_s) from e
        except (OSError, EOFError, ValueError, DBusFastError) as e:
            raise BusUnavailableError(f"connection lost during {what}: {_told(e)}") from e
        if reply is None:
            raise BusUnavailableError(f"connection closed during {what}")
        if reply.message_type is MessageType.ERROR:
            text = reply.body[0] if reply.body and isinstance(reply.body[0], str) else ""
            raise from_reply(what, reply.error_name, text)
        return list(unpack_variants(reply.body))

    def listen(self, callback: Callable[[Signal], None], *matches: Match) -> None:
        """Have signals handed to `callback` from the next connection on; meant for before `run`."""
        self._listeners.append((matches, callback))

    @contextlib.asynccontextmanager
    async def subscribed(self, *matches: Match) -> AsyncIterator[Subscription]:
        """Receive signals; they are sent from the moment on at which the block is entered.

        Without a connection the block is entered too; a RESYNC comes once there is one.

        Raises:
            SystemdError: the bus did not accept a match rule.
        """
        subscription = Subscription()
        entry = (matches, subscription.put)
        self._listeners.append(entry)
        try:
            if self._bus is not None:
                for match in matches:
                    await self._bus_call("AddMatch", match.rule())
            yield subscription
        finally:
            self._listeners.remove(entry)
            await self._forget(matches)

    async def _forget(self, matches: tuple[Match, ...]) -> None:
        with contextlib.suppress(BusUnavailableError, NoAnswerError, CallFailedError):
            for match in matches:
                await self._bus_call("RemoveMatch", match.rule())


async def _closed(bus: MessageBus) -> None:
    """Wait until the connection has ended; raises what ended it, if that was not us."""
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


def _told(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
