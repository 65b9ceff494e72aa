"""`make demo`: under a private systemd, watch the watchdog follow a start, find a hang behind a healthy /health, and cure it.

A stand-in server takes the place of SGLang; systemd, journald, D-Bus, HTTP and the watchdog are real. Nothing of the host is
touched: all of it lives in private namespaces and ends with the demo. The exit status is 0 only if every step was seen.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ^C while the rest is imported: nothing has begun, nothing is to be said

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.box.box import SCRIPT, Box, BoxError  # noqa: E402  # it serves tests and demo alike, and lies below the root
from watchdog.wording import gist  # noqa: E402

COMMAND = ROOT / ".venv/bin/sglang-watchdog"
PYTHON = ROOT / ".venv/bin/python"
OUT = ROOT / "build/demo"


def quoted(path: Path) -> str:
    """A path as the first word of ExecStart=, whatever is in it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


SERVER = f"""[Unit]
Description=SGLang server (stand-in)
[Service]
ExecStart={quoted(COMMAND)} standin --port 30000 --model-path /models/Kimi-K2.5 --served-model-name kimi-k2.5 --tp-size 8 \
 --enable-hierarchical-cache --hicache-ratio 4 --speculative-algorithm EAGLE3 --reasoning-parser kimi_k2 --enable-metrics \
 --watchdog-timeout 3600 --sglang-version 0.5.9 --start-seconds 8 --host-pool-mib 96 --fault-dir /run/faults
Restart=always
# Short for the demo: the hung stand-in never ends its drain.
TimeoutStopSec=4
KillMode=mixed
LimitMEMLOCK=infinity
LogRateLimitIntervalSec=1s
LogRateLimitBurst=1000000
"""
WATCHDOG = f"""[Unit]
Description=Health watchdog for SGLang servers
[Service]
Type=notify
NotifyAccess=main
ExecStart={quoted(COMMAND)} run --config /etc/sglang-watchdog/sglang-watchdog.toml
WatchdogSec=30
Restart=always
StateDirectory=sglang-watchdog
RuntimeDirectory=sglang-watchdog
"""
CONFIG = """# Short times, so that the demo takes a minute. The defaults are for real servers.
[daemon]
tick_s = 1
[sources]
gpu = "off"
deps = []
[[servers]]
name = "kimi"
unit = "sglang-kimi.service"
base_url = "http://127.0.0.1:30000"
[servers.judge]
hang_s = 20
[servers.probe]
chat_interval_s = 3
chat_limit_s = 6
health_interval_s = 5
"""
TOLD = {
    "evidence": "evidence",
    "intent": "decision",
    "acted": "action",
    "verified": "verified",
}
LIMIT_S = 150.0
ERASE = "\r\x1b[K"
"""Back to the beginning of a terminal's line, and nothing on it."""


class Story:
    """What happened, with times, as it happens."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.begun = time.monotonic()
        self.entries: list[dict[str, str]] = []
        self._out = out
        self._live = ""
        """The status line that changes in place, at the foot of a terminal."""
        self._gist = ""
        self._closed = False
        """Whether nobody reads any more: the thread that finds it out is seldom the one that is to end the demo."""
        self._lock = threading.Lock()

    def tell(self, who: str, text: str) -> None:
        """Print one line, above the status that changes in place."""
        with self._lock:
            self._print(f"{ERASE if self._live else ''}{self._line(who, text)}\n{self._live}")

    def status(self, text: str) -> None:
        """Tell the status: a new line where it says something else, a changed one where only its figures are new.

        Where the output is no terminal, changed figures are left out.
        """
        with self._lock:
            if self._closed:
                raise BrokenPipeError
            changed, self._gist = gist(text) != self._gist, gist(text)
            if self._out.isatty():
                end = "\n" if self._live and changed else ""
                self._live = self._line("status", text)[: shutil.get_terminal_size().columns - 1]
                self._print(f"{end or ERASE}{self._live}")
            elif changed:
                self._print(f"{self._line('status', text)}\n")

    def leave_status(self) -> None:
        """Other output follows: the status stays as it stands."""
        with self._lock:
            if self._live:
                self._print("\n")
                self._live = self._gist = ""  # on a terminal it is shown again below what follows

    def _line(self, who: str, text: str) -> str:
        return f"{time.monotonic() - self.begun:6.1f} s {who:>9}  {text}"

    def _print(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            self._closed = True
            raise

    def follow(self, box: Box) -> None:
        """Tell the watchdog's journal entries; runs in a thread until the box ends."""
        names = ("EVENT", "ACTION", "RESULT", "BUNDLE", "INVOCATION")
        fields = ",".join(("MESSAGE", *(f"SGLANG_WATCHDOG_{name}" for name in names)))
        command = ("journalctl", "-f", "-n", "all", "-o", "json", "-u", "sglang-watchdog.service", f"--output-fields={fields}")
        with (
            contextlib.suppress(BrokenPipeError),
            box.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p,
        ):
            assert p.stdout is not None
            for line in p.stdout:
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    self.entries.append(entry)
                    word = TOLD.get(entry.get("SGLANG_WATCHDOG_EVENT", ""))
                    if word is not None and entry.get("SGLANG_WATCHDOG_ACTION") != "diagnose":
                        self.tell(word, str(entry["MESSAGE"]).removeprefix("kimi: ").split(" Advice: ")[0])

    def seen(self, event: str, action: str | None = None, result: str | None = None) -> dict[str, str] | None:
        """The last entry of this kind."""
        for e in reversed(self.entries):
            if e.get("SGLANG_WATCHDOG_EVENT") != event:
                continue
            if action in (None, e.get("SGLANG_WATCHDOG_ACTION")) and result in (None, e.get("SGLANG_WATCHDOG_RESULT")):
                return e
        return None

    def verified(self, *, after: str) -> bool:
        """Whether another life than this one was verified."""
        e = self.seen("verified")
        return e is not None and e.get("SGLANG_WATCHDOG_INVOCATION") not in (None, after)


def main() -> int:
    """Run the demo; the box has ended when this has."""
    signal.signal(signal.SIGINT, interrupted)
    try:
        status = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{ERASE if sys.stderr.isatty() else ''}demo: interrupted; its systemd has ended, with all in it", file=sys.stderr)
        return 130
    except BoxError as e:
        print(f"demo: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # What is still in the buffer can go nowhere, and Python would try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("demo: nobody reads its output any more; its systemd has ended, with all in it", file=sys.stderr)
        return 1
    return status


def interrupted(*_: object) -> None:
    """The first ^C ends the demo; another does not disturb the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def run() -> int:
    """Boot, play, end."""
    story = Story()
    story.tell("demo", "booting a private systemd (yours is not touched)")
    with Box() as box:
        try:
            return play(story, box)
        except (DemoError, AssertionError) as e:  # the latter: a command inside failed
            story.leave_status()
            story.tell("FAILED", str(e))
            print(box.journal("-u", "sglang-watchdog.service", "-n", "40"))
            return 1


class DemoError(Exception):
    """A step was not seen in time."""


def play(story: Story, box: Box) -> int:
    """The scenes in order."""
    box.write("/etc/sglang-watchdog/sglang-watchdog.toml", CONFIG)
    box.unit("sglang-kimi.service", SERVER)
    box.unit("sglang-watchdog.service", WATCHDOG)
    threading.Thread(target=story.follow, args=(box,), daemon=True).start()
    box.run("systemctl", "start", "sglang-watchdog.service")
    story.tell("demo", "sglang-watchdog.service is ready; starting sglang-kimi.service (a stand-in of 8 ranks)")
    box.run("systemctl", "start", "--no-block", "sglang-kimi.service")
    until(story, box, lambda view: bool(view["verified"]), "the first life was not verified")
    first = box.show("sglang-kimi.service", "InvocationID")
    story.tell("verified", "the server is ready, answers, and its host pool is what it announced")
    verify = box.run(str(COMMAND), "verify", "--config", "/etc/sglang-watchdog/sglang-watchdog.toml", check=False)
    print("\n" + indented(verify.stdout))
    if verify.returncode != 0:
        raise DemoError(f"verify ended with status {verify.returncode}: {verify.stderr.strip()}")

    box.run(str(COMMAND), "standin", "fault", "hang-behind-200", "--fault-dir", "/run/faults")
    story.tell("demo", "the scheduler now hangs, while /health goes on to say 200")
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:30000/health', timeout=5).status)"
    code = box.run(str(PYTHON), "-c", ask, check=False).stdout.strip()
    story.tell("demo", f"GET http://127.0.0.1:30000/health → {code}")
    until(story, box, lambda _: story.seen("intent", "restart") is not None, "the hang was not found")
    until(story, box, lambda _: story.seen("acted", "restart", "done") is not None, "the unit was not restarted")
    until(story, box, lambda _: story.verified(after=first), "the new life was not verified")
    second = box.show("sglang-kimi.service", "InvocationID")
    if code != "200" or first == second:
        raise DemoError(f"/health said {code}; InvocationID {first} before, {second} after")
    bundle = kept(story, box)
    story.tell("demo", f"done. The incident's bundle: {bundle}")
    page = (bundle / "summary.md").read_text(encoding="utf-8")
    followed = page.rpartition("## What followed")
    print(f"\n{indented(page.partition('## Versions')[0])}{indented(''.join(followed[1:]))}")
    print(f"See also: {COMMAND.relative_to(ROOT)} replay {bundle.relative_to(ROOT)}/record.jsonl.gz --timeline")
    return 0


def until(story: Story, box: Box, true: Callable[[dict[str, object]], bool], failed: str) -> None:
    """Tell the status while it changes, until something is true."""
    end = time.monotonic() + LIMIT_S
    for view in views(box):
        story.status(str(view["sentence"]))
        if true(view):
            story.leave_status()
            return
        if time.monotonic() > end:
            raise DemoError(f"{failed} within {LIMIT_S:.0f} s")


def views(box: Box) -> Iterator[dict[str, object]]:
    """What the daemon says of the server, again and again."""
    while True:
        p = box.run(str(COMMAND), "status", "--json", "--config", "/etc/sglang-watchdog/sglang-watchdog.toml", check=False)
        with contextlib.suppress(ValueError, KeyError, IndexError):
            yield json.loads(p.stdout)["servers"][0]
        time.sleep(0.5)


def kept(story: Story, box: Box) -> Path:
    """Bring the bundle of the hang out of the box, which takes everything else with it."""
    entry = next((e for e in reversed(story.entries) if e.get("SGLANG_WATCHDOG_BUNDLE", "").startswith("/")), None)
    if entry is None:
        raise DemoError("no evidence was saved")
    inside = Path(entry["SGLANG_WATCHDOG_BUNDLE"])
    target = OUT / inside.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    packed = subprocess.run(
        [SCRIPT, "exec", box.dir, "tar", "-C", str(inside), "-c", "."], check=True, stdout=subprocess.PIPE, timeout=60
    )
    subprocess.run(["tar", "-C", target, "--no-same-owner", "-x"], check=True, input=packed.stdout, timeout=60)
    return target


def indented(text: str) -> str:
    """A block of somebody else's words."""
    return "".join(f"    {line}\n" for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
