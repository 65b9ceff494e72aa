import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from hypothesis import given
from hypothesis import strategies as st

from watchdog.systemd import (
    RESYNC,
    AccessDeniedError,
    Bus,
    BusUnavailableError,
    CallFailedError,
    JobConflictError,
    NoAnswerError,
    NoSuchUnitError,
    RefusedError,
    Signal,
    Subscription,
    UnitState,
    running,
    updated,
)
from watchdog.systemd.bus import MANAGER, MANAGER_PATH, SYSTEMD, unit_of
from watchdog.systemd.connection import QUEUED_SIGNALS, Match
from watchdog.systemd.errors import from_reply
from watchdog.systemd.state import INFINITY_USEC, parse

PROPERTIES = {
    "Id": "sglang.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "MainPID": 4711,
    "ExecMainCode": 0,
    "ExecMainStatus": 0,
    "NRestarts": 2,
    "InvocationID": b"\x01\xff",
    "ControlGroup": "/system.slice/sglang.service",
    "Job": [0, "/"],
    "StartLimitBurst": 5,
    "StartLimitIntervalUSec": 10_000_000,
    "Restart": "always",
    "RestartUSec": 100_000,
    "TimeoutStartUSec": INFINITY_USEC,
    "TimeoutStopUSec": 180_000_000,
    "WatchdogUSec": INFINITY_USEC,
    "InactiveExitTimestampMonotonic": 5_500_000,
    "InactiveEnterTimestampMonotonic": 0,
}


def test_properties_become_a_typed_state() -> None:
    state = parse(PROPERTIES)
    assert state.main_pid == 4711
    assert state.exec_main_code is None
    assert state.invocation == "01ff"
    assert state.job is None
    assert state.start_limit_interval_s == 10.0
    assert state.restart_s == 0.1
    assert (state.timeout_start_s, state.timeout_stop_s, state.watchdog_s) == (None, 180.0, 0.0)
    assert (state.inactive_exit_at, state.inactive_enter_at) == (5.5, None)
    assert state.up


@pytest.mark.parametrize(
    ("prop", "value", "field", "want"),
    [
        ("MainPID", 0, "main_pid", None),
        ("ExecMainCode", 1, "exec_main_code", "exited"),
        ("ExecMainCode", 2, "exec_main_code", "killed"),
        ("ExecMainCode", 3, "exec_main_code", "dumped"),
        ("InvocationID", [], "invocation", None),
        ("InvocationID", [1, 255], "invocation", "01ff"),
        ("Job", [17, "/org/freedesktop/systemd1/job/17"], "job", "/org/freedesktop/systemd1/job/17"),
        ("RestartUSecNext", 200_000, "restart_s", 0.2),
        ("WatchdogUSec", 30_000_000, "watchdog_s", 30.0),
        ("NRestarts", 0, "n_restarts", 0),
        ("NRestarts", "many", "n_restarts", None),
        ("NRestarts", True, "n_restarts", None),
        ("SubState", 3, "sub_state", None),
        ("InvocationID", 10**12, "invocation", None),
    ],
)
def test_one_property(prop: str, value: object, field: str, want: object) -> None:
    assert getattr(parse({**PROPERTIES, prop: value}), field) == want


@given(
    st.dictionaries(st.sampled_from(list(PROPERTIES)), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers())))
)
def test_any_property_of_any_type_is_survived(garbage: dict[str, Any]) -> None:
    parse({**PROPERTIES, **garbage})


def test_a_signal_updates_only_the_sub_state() -> None:
    state = parse(PROPERTIES)
    after = updated(state, {"SubState": "auto-restart", "StateChangeTimestampMonotonic": 7_000_000, "MainPID": 0})
    assert (after.sub_state, after.state_change_at, after.main_pid) == ("auto-restart", 7.0, 4711)
    assert after.waits_for_restart
    assert updated(state, {"MainPID": 0}) is state
    assert updated(state, None) is state


def test_nothing_read_is_not_up() -> None:
    assert not UnitState().up


@pytest.mark.parametrize(
    ("name", "kind", "cure"),
    [
        ("org.freedesktop.systemd1.NoSuchUnit", NoSuchUnitError, "configuration"),
        ("org.freedesktop.DBus.Error.AccessDenied", AccessDeniedError, "polkit rule"),
        ("org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", AccessDeniedError, "polkit rule"),
        ("org.freedesktop.systemd1.TransactionIsDestructive", JobConflictError, "it says so"),
        ("org.freedesktop.systemd1.OnlyByDependency", RefusedError, "it says so"),
        ("org.freedesktop.DBus.Error.ServiceUnknown", BusUnavailableError, "dbus.service"),
        ("org.example.Other", CallFailedError, "it says so"),
        (None, CallFailedError, "it says so"),
    ],
)
def test_error_names_become_exceptions_that_name_the_cure(name: str | None, kind: type[Exception], cure: str) -> None:
    error = from_reply("RestartUnit sglang.service", name, "it says so.")
    assert type(error) is kind
    assert cure in str(error)


@pytest.mark.parametrize("unit", ["sglang.service", "sglang@a-1.service", "3_x:y.service", "sg\\x2dlang.service"])
def test_unit_paths_are_read_back(unit: str) -> None:
    path = (
        MANAGER_PATH + "/unit/" + "".join(c if c.isalnum() and i + c.isalpha() else f"_{ord(c):02x}" for i, c in enumerate(unit))
    )
    assert unit_of(path) == unit


def test_a_match_names_all_it_wants() -> None:
    match = Match(SYSTEMD, MANAGER, "JobNew", MANAGER_PATH, (2, "a.service"))
    assert match.rule() == (
        f"type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobNew',path='{MANAGER_PATH}',arg2='a.service'"
    )
    assert match.fits(Signal(MANAGER_PATH, MANAGER, "JobNew", [1, "/j", "a.service"]))
    assert not match.fits(Signal(MANAGER_PATH, MANAGER, "JobNew", [1, "/j", "b.service"]))
    assert not match.fits(Signal(MANAGER_PATH, MANAGER, "JobNew", []))
    assert not match.fits(Signal(MANAGER_PATH, MANAGER, "JobRemoved", [1, "/j", "a.service"]))
    assert not match.fits(Signal("/other", MANAGER, "JobNew", [1, "/j", "a.service"]))


async def test_a_subscription_that_overflows_says_so() -> None:
    subscription = Subscription()
    for i in range(QUEUED_SIGNALS + 1):
        subscription.put(Signal("/p", "i", "m", [i]))
    assert await subscription.next(0) == [RESYNC]
    assert await subscription.next(0.01) == []


# A real dbus-daemon, and at its other end a systemd that answers as the test wants.


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    address = f"unix:path={tmp_path}/bus"
    daemon = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", f"--address={address}", "--print-address=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert daemon.stdout is not None
    daemon.stdout.readline()
    yield address
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()


class FakeManager:
    """Answers the calls of a Bus; `mute` calls get no answer."""

    def __init__(self) -> None:
        self.system_state = "running"
        self.mute: set[str] = set()
        self.subscribed = 0

    def handle(self, message: Message) -> Message | bool:
        if message.message_type is not MessageType.METHOD_CALL:
            return False
        if message.member in self.mute:
            return True
        if message.member == "Subscribe":
            self.subscribed += 1
            return Message.new_method_return(message)
        if message.member == "Get":
            return Message.new_method_return(message, "v", [Variant("s", self.system_state)])
        if message.member == "LoadUnit":
            return Message.new_method_return(message, "o", [MANAGER_PATH + "/unit/a_2eservice"])
        return Message.new_error(message, "org.freedesktop.systemd1.NoSuchUnit", "Unit a.service not found.")


@contextlib.asynccontextmanager
async def named(address: str, name: str, handler: Any = None) -> AsyncIterator[MessageBus]:
    bus = await MessageBus(address).connect()
    if handler is not None:
        bus.add_message_handler(handler)
    await bus.request_name(name)
    try:
        yield bus
    finally:
        bus.disconnect()
        await bus.wait_for_disconnect()


async def settled(what: Any) -> None:
    async with asyncio.timeout(30):
        while not what():  # noqa: ASYNC110  (a property of the client, which has no event for it)
            await asyncio.sleep(0.01)


async def test_without_a_bus_calls_fail_at_once_and_say_what_to_look_at(tmp_path: Path) -> None:
    async with running(Bus(f"unix:path={tmp_path}/none")) as bus:
        assert not await bus.until_connected(0.05)
        assert bus.shutting_down is None
        with pytest.raises(BusUnavailableError, match=r"No such file.*dbus\.service"):
            await bus.load("a.service")


async def test_a_bus_without_systemd_is_no_connection(address: str) -> None:
    async with running(Bus(address)) as bus:
        assert not await bus.until_connected(0.1)
        assert "systemd1" in (bus.trouble or "")
        async with named(address, SYSTEMD, FakeManager().handle):
            assert await bus.until_connected(5)
            assert bus.trouble is None
        await settled(lambda: not bus.connected)


async def test_a_new_systemd_is_subscribed_to_again_and_subscriptions_are_told(address: str) -> None:
    first, second = FakeManager(), FakeManager()
    async with running(Bus(address)) as bus, contextlib.AsyncExitStack() as stack:
        async with named(address, SYSTEMD, first.handle):
            await bus.until_connected(5)
            signals = await stack.enter_async_context(bus.watch(await bus.load("a.service")))
            assert await signals.next(0.01) == []
        await settled(lambda: not bus.connected)
        async with named(address, SYSTEMD, second.handle) as systemd:
            assert await signals.next(5) == [RESYNC]
            assert (first.subscribed, second.subscribed) == (1, 1)
            await systemd.send(Message.new_signal(MANAGER_PATH, MANAGER, "JobNew", "uos", [7, "/j/7", "a.service"]))
            assert await signals.next(5) == [Signal(MANAGER_PATH, MANAGER, "JobNew", [7, "/j/7", "a.service"])]


async def test_a_call_that_is_not_answered_ends_at_its_deadline(address: str) -> None:
    manager = FakeManager()
    # Long enough for the call that is answered, on a busy machine, too.
    async with named(address, SYSTEMD, manager.handle), running(Bus(address, call_limit_s=3.0)) as bus:
        await bus.until_connected(5)
        manager.mute = {"RestartUnit"}
        with pytest.raises(NoAnswerError, match=r"RestartUnit a\.service was not answered within 3 s"):
            await bus.restart("a.service")
        with pytest.raises(NoSuchUnitError):
            await bus.kill("a.service", "all", 9)


async def test_signals_of_strangers_are_dropped(address: str) -> None:
    async with (
        named(address, SYSTEMD, FakeManager().handle) as systemd,
        running(Bus(address)) as bus,
        named(address, "org.example.Stranger") as stranger,
    ):
        await bus.until_connected(5)
        async with bus.watch(await bus.load("a.service")) as signals:
            forged = Message.new_signal(MANAGER_PATH, MANAGER, "JobRemoved", "uoss", [7, "/j/7", "a.service", "canceled"])
            for name in await names(stranger):
                forged.destination = name
                forged.serial = 0
                await stranger.send(forged)
            await systemd.send(Message.new_signal(MANAGER_PATH, MANAGER, "JobRemoved", "uoss", [8, "/j/8", "a.service", "done"]))
            assert [signal.body[1] for signal in await signals.next(5)] == ["/j/8"]


async def names(bus: MessageBus) -> list[str]:
    reply = await bus.call(Message("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ListNames"))
    assert reply is not None
    return [name for name in reply.body[0] if name.startswith(":")]


async def test_a_host_that_goes_down_is_noticed(address: str) -> None:
    manager = FakeManager()
    login = "org.freedesktop.login1"
    async with named(address, SYSTEMD, manager.handle), named(address, login) as logind, running(Bus(address)) as bus:
        await bus.until_connected(5)
        assert bus.shutting_down is False
        await logind.send(Message.new_signal("/org/freedesktop/login1", login + ".Manager", "PrepareForShutdown", "b", [True]))
        await settled(lambda: bus.shutting_down)
        await logind.send(Message.new_signal("/org/freedesktop/login1", login + ".Manager", "PrepareForShutdown", "b", [False]))
        await settled(lambda: not bus.shutting_down)
        manager.system_state = "stopping"
        await bus.look_at_host()
        assert bus.shutting_down is True
