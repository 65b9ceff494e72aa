"""Runs the stand-in server for tests, with its fixed waits a thirtieth as long."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from watchdog.sglang.loglines import Line, classify
from watchdog.standin import faults

SCALE = 0.03


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def free_port() -> int:
    """One below those that clients get (ip(7), ip_local_port_range): no connection of another test takes it meanwhile."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def wait_for(what: Callable[[], Any], limit: float = 30.0) -> Any:
    end = time.monotonic() + limit
    while not (got := what()):
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)
    return got


class StandIn:
    """One server; its output is in a file, one line after the other."""

    def __init__(self, tmp: Path, *args: str, version: str = "0.5.23", ready: bool = True, **env: str) -> None:
        self.faults = tmp / "faults"
        self.port = free_port()
        self.output = tmp / "output"
        command = [sys.executable, "-m", "watchdog.standin", "--port", str(self.port), "--fault-dir", str(self.faults)]
        command += ["--sglang-version", version, "--time-scale", str(SCALE), "--start-seconds", "0.1", "--step-seconds", "0.005"]
        command += ["--enable-metrics", *args]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **env})
        if ready:
            try:
                self.wait_log("fired up and ready to roll")
            except BaseException:
                self.__exit__()
                raise

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(20)

    def log(self) -> list[str]:
        return self.output.read_text().split("\n")

    def marks(self) -> list[Line]:
        return [line for text in self.log() if (line := classify(text)) is not None]

    def wait_log(self, text: str, limit: float = 30.0) -> str:
        def found() -> str | None:
            assert self.process.poll() is None or text in self.output.read_text(), self.output.read_text()[-3000:]
            return next((line for line in self.log() if text in line), None)

        return str(wait_for(found, limit))

    def children(self) -> dict[str, psutil.Process]:
        """Title → process; no zombies."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.ZombieProcess):
                found[" ".join(child.cmdline()).strip()] = child
        return found

    def order(self, name: str, **settings: Any) -> None:
        faults.write(self.faults, name, settings)

    def clear(self) -> None:
        faults.clear(self.faults)

    def request(self, method: str, path: str, body: Any = None, limit: float = 20.0, **headers: str) -> Reply:
        """One request; a time-out is TimeoutError, a cut connection ConnectionError or http.client.IncompleteRead."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit)
        raw = body if isinstance(body, bytes | None) else json.dumps(body)
        begun = time.monotonic()
        try:
            connection.request(method, path, raw, headers)
            got = connection.getresponse()
            content = got.read()
        finally:
            connection.close()
        return Reply(got.status, {k.lower(): v for k, v in got.getheaders()}, content, time.monotonic() - begun)

    def get(self, path: str, limit: float = 20.0, **headers: str) -> Reply:
        return self.request("GET", path, limit=limit, **headers)

    def chat(self, text: str = "What is the capital of France?", limit: float = 20.0, **more: Any) -> Reply:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 40, **more}
        return self.request("POST", "/v1/chat/completions", body, limit)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.get("/metrics").body.decode().split("\n")
        values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"sglang:{name}{{", f"sglang:{name} "))]
        assert values, f"no {name}"
        return sum(values)

    def end(self, number: int = signal.SIGTERM, limit: float = 30.0) -> int:
        """Send a signal to the parent and wait for its exit code."""
        self.process.send_signal(number)
        return self.process.wait(limit)


def events(reply: Reply) -> list[Any]:
    """The JSON events of a stream, which must end with [DONE]."""
    data = [line[6:] for line in reply.body.decode().split("\n") if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]
