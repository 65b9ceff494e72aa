"""A real systemd as PID 1 in private namespaces, for tests and the demo (see box.sh)."""

import os
import secrets
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

SCRIPT = Path(__file__).with_name("box.sh")
PROJECT = SCRIPT.parent.parent.parent
T = TypeVar("T")


class BoxError(Exception):
    """It cannot be booted here; box.sh has said why."""


class Box:
    """One booted box, to be used in a `with` statement.

    Files of the machine are seen inside at the same place; writes stay inside. The box also ends when this process does.
    """

    def __init__(self, root: Path | None = None, shown: tuple[Path | str, ...] = (PROJECT, sys.base_prefix)) -> None:
        """Boot it.

        Args:
            root: a folder with a whole root file system; None for that of the machine.
            shown: folders that are seen inside too, at their places.

        Raises:
            BoxError: it did not come up.
        """
        self.dir = PROJECT / ".cache" / f"box-{secrets.token_hex(4)}"
        env = {**os.environ, "BOX_OWNER": str(os.getpid()), "BOX_SHOW": "\n".join(map(str, shown))}
        if root is not None:
            env["BOX_ROOT"] = str(root)
        try:
            subprocess.run([SCRIPT, "start", self.dir], check=True, timeout=90, env=env)
        except subprocess.CalledProcessError:
            self.stop()
            raise BoxError(
                "the private systemd did not come up (see above): it needs root and the right to mount and to make namespaces; "
                "a container has it with --privileged, a chroot if its root is a mount point"
            ) from None
        except BaseException:  # ^C too: nobody else ends what has begun
            self.stop()
            raise

    def stop(self) -> None:
        """End it, with all that runs inside."""
        subprocess.run([SCRIPT, "stop", self.dir], check=False, timeout=60)

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(
        self, *command: str, check: bool = True, timeout: float = 60, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root, and wait for it.

        Raises:
            AssertionError: it failed, and `check` is true; the message has what it printed.
            subprocess.TimeoutExpired: it took longer than `timeout` seconds.
        """
        done = subprocess.run(
            [SCRIPT, "exec", self.dir, *command],
            check=False,
            timeout=timeout,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            text=True,
            errors="replace",
            capture_output=True,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def let_others_in(self) -> None:
        """Let users who are not root reach the interpreter and the checkout, which may lie in a home that they cannot enter."""
        for place in (Path(sys.executable), Path(sys.base_prefix), PROJECT):
            for folder in (place, *place.parents):
                if not folder.stat().st_mode & stat.S_IXOTH:
                    self.run("chmod", "o+x", str(folder))

    def popen(self, *command: str, **kwargs: Any) -> "subprocess.Popen[str]":
        """Start a command inside and go on; `kwargs` are those of subprocess.Popen."""
        return subprocess.Popen([SCRIPT, "exec", self.dir, *command], text=True, **kwargs)

    def write(self, path: str, text: str) -> None:
        """Write a file inside, with the folders above it."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat > "$1"', "sh", path, stdin=text)

    def unit(self, name: str, text: str) -> None:
        """Install a unit file inside and make systemd read it."""
        self.write(f"/etc/systemd/system/{name}", text)
        self.run("systemctl", "daemon-reload")

    def show(self, unit: str, prop: str) -> str:
        """One property of a unit, as `systemctl show` words it."""
        return self.run("systemctl", "show", "-P", prop, unit).stdout.strip()

    def journal(self, *args: str) -> str:
        """Messages of the journal inside, oldest first; `args` are those of journalctl."""
        return self.run("journalctl", "--no-pager", "-o", "cat", *args, check=False).stdout


def wait_for(what: Callable[[], T], limit: float, said: str = "") -> T:
    """Poll until `what()` is true, and return what it gave.

    Raises:
        AssertionError: it was not true within `limit` seconds; the message has `said`.
    """
    end = time.monotonic() + limit
    while True:
        got = what()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit:g} s: {said or what}")
        time.sleep(0.1)
