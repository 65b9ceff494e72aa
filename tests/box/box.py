"""A real systemd as PID 1 in private namespaces, for tests and the demo (see box.sh)."""

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SCRIPT = Path(__file__).with_name("box.sh")


class Box:
    """One booted box. Paths of the host are seen inside at the same place; writes stay inside."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="box-", dir="/var/tmp"))
        subprocess.run([SCRIPT, "start", self.dir], check=True, timeout=60)

    def stop(self) -> None:
        subprocess.run([SCRIPT, "stop", self.dir], check=False, timeout=60)

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(
        self, *command: str, check: bool = True, timeout: float = 60, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root, and wait for it."""
        return subprocess.run(
            [SCRIPT, "exec", self.dir, *command], check=check, timeout=timeout, input=stdin, text=True, capture_output=True
        )

    def popen(self, *command: str, **kwargs: object) -> "subprocess.Popen[str]":
        """Start a command inside and go on."""
        return subprocess.Popen([SCRIPT, "exec", self.dir, *command], text=True, **kwargs)  # type: ignore[call-overload]

    def write(self, path: str, text: str) -> None:
        """Write a file inside."""
        self.run("sh", "-c", f'mkdir -p "$(dirname {path})" && cat > {path}', stdin=text)

    def unit(self, name: str, text: str) -> None:
        """Install a unit file inside and make systemd read it."""
        self.write(f"/etc/systemd/system/{name}", text)
        self.run("systemctl", "daemon-reload")

    def show(self, unit: str, prop: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "-P", prop, unit).stdout.strip()

    def journal(self, *args: str) -> str:
        """Messages of the journal inside."""
        return self.run("journalctl", "--no-pager", "-o", "cat", *args, check=False).stdout


def wait_for(what: Callable[[], object], limit: float, said: str = "") -> object:
    """Poll until `what()` is true; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        got = what()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit:g} s: {said or what}")
        time.sleep(0.1)
