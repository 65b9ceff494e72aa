"""A headless Chromium, spoken to over a pipe in the DevTools protocol (chromedevtools.github.io/devtools-protocol): no driver."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
ANSWER_LIMIT_S = 30.0


def chromium() -> str | None:
    """The browser's path; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Chromium:
    """One browser with one page, to be used in a `with` statement.

    Attributes:
        problems: errors on the console, exceptions of scripts and what the Content-Security-Policy refused.
        requests: the address of each request of the page.
    """

    def __init__(self, before: Sequence[str | Path] = ()) -> None:
        """Start it; `before` is a command that runs another one, such as that of a box."""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="chromium-", dir="/var/tmp")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        redirect = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        command = ["bash", "-c", redirect, "bash", *before, chromium() or "chromium", *FLAGS, f"--user-data-dir={self._profile}"]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the browser
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits", "Accessibility"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._said.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    # ---- the protocol

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + ANSWER_LIMIT_S
        while True:
            got = self._read(end)
            if got.get("id") == number:
                assert "error" not in got, f"{method}: {got['error']}"
                return dict(got["result"])
            self._note(got)

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, f"the browser has ended: {self._last_words()}"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _last_words(self) -> str:
        self._process.wait(10)
        self._said.seek(0)
        return f"status {self._process.returncode}: {self._said.read()[-1500:].decode(errors='replace')}"

    def _note(self, got: dict[str, Any]) -> None:
        params = got.get("params", {})
        match got.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{params['entry']['source']}: {params['entry']['text']}")
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"])[:500])
            case "Audits.issueAdded" if params["issue"]["code"] == "ContentSecurityPolicyIssue":
                self.problems.append(json.dumps(params["issue"])[:500])

    # ---- what a person does

    def look(self, width: int = 1280, height: int = 900, *, dark: bool = False, scale: float = 1.0) -> None:
        """The window's size in CSS pixels, and the colour scheme that the person prefers."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def go(self, url: str) -> None:
        """Open an address."""
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer["errorText"]

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, limit_s: float = 10.0) -> Any:
        """Wait until a JavaScript expression is true; its value."""
        end = time.monotonic() + limit_s
        while True:
            got = self.ask(f"((value) => (value instanceof Node ? true : value))({expression})")
            if got:
                return got
            assert time.monotonic() < end, f"not within {limit_s:g} s: {expression}; the page says: {self.text()[:1500]}"
            time.sleep(0.1)

    def text(self) -> str:
        """All text that is seen."""
        return str(self.ask("document.body.innerText"))

    def key(self, name: str, code: int, *, shift: bool = False) -> None:
        """Press and release a key, such as "Tab" (9) or "Enter" (13)."""
        text = {"text": "\r"} if name == "Enter" else {}
        common = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path: Path) -> None:
        """Save what the whole page looks like, as PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
