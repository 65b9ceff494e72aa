import os
import socket
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.act.notify import Notifier


class Systemd:
    """The receiving end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(5)

    def got(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(f"{tmp_path}/notify")
    yield systemd
    systemd.socket.close()


@pytest.fixture
def notifier(systemd: Systemd) -> Iterator[Notifier]:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.socket.getsockname(), "WATCHDOG_USEC": "30000000"})
    yield notifier
    notifier.close()


def test_each_message_is_as_sd_notify_wants_it(systemd: Systemd, notifier: Notifier) -> None:
    assert notifier.enabled
    assert notifier.ready("serving, 3 running")
    assert systemd.got() == ["READY=1", "STATUS=serving, 3 running"]
    assert notifier.tell("hung for 41 s", alive=True)
    assert systemd.got() == ["STATUS=hung for 41 s", "WATCHDOG=1"]
    assert notifier.tell("a source is stuck", alive=False)
    assert systemd.got() == ["STATUS=a source is stuck"]
    assert notifier.stopping("stopping")
    assert systemd.got() == ["STOPPING=1", "STATUS=stopping"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert notifier.reloading("reading the configuration")
    reloading, at, status = systemd.got()
    assert (reloading, status) == ("RELOADING=1", "STATUS=reading the configuration")
    assert before <= int(at.removeprefix("MONOTONIC_USEC=")) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_the_variables_are_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch, systemd: Systemd) -> None:
    for name, value in {
        "NOTIFY_SOCKET": systemd.socket.getsockname(),
        "WATCHDOG_USEC": "20000000",
        "WATCHDOG_PID": str(os.getpid()),
    }.items():
        monkeypatch.setenv(name, value)
    notifier = Notifier()
    assert notifier.interval_s == 10.0
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
    notifier.close()
    assert not notifier.tell("after the end", alive=True)


@pytest.mark.parametrize(
    ("usec", "pid", "want"),
    [
        ("30000000", "", 15.0),
        ("30000000", "ours", 15.0),
        ("30000000", "1", None),
        ("0", "", None),
        ("", "", None),
        ("soon", "", None),
        ("-5", "", None),
        ("²", "", None),
    ],
)
def test_the_interval(usec: str, pid: str, want: float | None) -> None:
    assert Notifier({"WATCHDOG_USEC": usec, "WATCHDOG_PID": str(os.getpid()) if pid == "ours" else pid}).interval_s == want


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative/path"])
def test_without_a_socket_that_is_spoken_nothing_happens(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert not notifier.enabled
    assert not notifier.ready("x")


def test_an_abstract_socket() -> None:
    name = f"sglang-watchdog-test-{os.getpid()}"
    systemd = Systemd("\0" + name)
    notifier = Notifier({"NOTIFY_SOCKET": "@" + name})
    assert notifier.tell("abstract", alive=True)
    assert systemd.got() == ["STATUS=abstract"]  # no WatchdogSec=
    notifier.close()
    systemd.socket.close()


def test_a_full_or_vanished_socket_never_blocks(systemd: Systemd, notifier: Notifier) -> None:
    began = time.monotonic()
    sent = [notifier.tell("x" * 300, alive=True) for _ in range(2000)]
    assert sent[0]
    assert not sent[-1]
    assert time.monotonic() - began < 2
    systemd.got()
    assert notifier.tell("room again", alive=True)
    systemd.socket.close()
    assert not notifier.tell("nobody there", alive=True)


@given(st.text(max_size=1000))
def test_any_text_becomes_one_short_clean_line(text: str) -> None:
    name = f"sglang-watchdog-text-{os.getpid()}"
    systemd = Systemd("\0" + name)
    notifier = Notifier({"NOTIFY_SOCKET": "@" + name})
    try:
        assert notifier.tell(text, alive=True)
        message = systemd.socket.recv(65536)
    finally:
        notifier.close()
        systemd.socket.close()
    assert len(message) <= 4096
    line = message.decode().removeprefix("STATUS=")
    assert len(line) <= 400
    assert line == " ".join(line.split())
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in line)
