"""`wait`: blocks until a server is verified, with a bar of its phases."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from watchdog.asking import REQUEST_LIMIT_S, ControlError, ForbiddenError, NoDaemonError, RefusedError, ask
from watchdog.cli import screen
from watchdog.cli.exits import FAILED, OK, TIMEOUT, CommandError
from watchdog.cli.link import runtime_dir
from watchdog.cli.options import chosen, command, config_option, json_option, loaded, server_option
from watchdog.cli.panel import bar, progress
from watchdog.cli.words import limit

if TYPE_CHECKING:
    from pathlib import Path

    from watchdog.cli.alone import Alone

TURN_S = 0.5
DOWN_S = 3.0
"""A unit that systemd starts anew is "failed" or "inactive" for a moment; so long it must last to be believed."""
GONE_S = 30.0
"""A daemon that is started anew answers again within so long (RestartSec=, and another that ends first): it is waited for."""
YOUNG_S = 30.0
"""A daemon that runs for less than this may not know all of its servers yet."""
LEAST_S = 0.1

Views = list[dict[str, Any]]


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "wait",
        "block until a server is verified",
        "Block until a server is verified: ready, answered, memory as expected, nothing against it. Asks the daemon; where "
        "none runs, looks by itself (/health, a canary, the journal), until one does. A daemon that is slow or that restarts is "
        "waited for. On a terminal with a progress bar of the start's phases, "
        "elsewhere one line for each phase. Without --server it waits for all configured servers.\n\n"
        "Exit status: 0 verified, 1 the unit has failed (or is unknown to systemd) and nothing will start it, 2 it cannot be "
        "told, such as by somebody who may not ask the daemon, 3 the time is over.",
        "systemctl start sglang-kimi && sglang-watchdog wait --server kimi --timeout 30m",
    )
    config_option(p)
    server_option(p)
    json_option(p)
    p.add_argument("--timeout", type=limit, metavar="TIME", help="give up after so long, in seconds or as 30m (default: never)")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Wait."""
    until = None if args.timeout is None else time.monotonic() + args.timeout
    whole = loaded(args.config)
    names = [s.name for s in chosen(whole, args.server)]
    shown = Shown(sys.stdout.isatty(), as_json=args.json)
    down_since: dict[str, float] = {}
    with contextlib.closing(Sight(runtime_dir(args.config), names, lambda: _alone(whole, names))) as sight:
        while True:
            servers = sight.look(REQUEST_LIMIT_S if until is None else until - time.monotonic())
            now = time.monotonic()
            shown.tell(servers, sight.why)
            if len(servers) == len(names) and all(s["verified"] for s in servers):
                return shown.end(OK, f"{', '.join(names)}: verified")
            if not servers:
                down_since.clear()
            for s in servers:
                why = given_up(s)
                if why is None:
                    down_since.pop(s["name"], None)
                elif unknown(s) or now - down_since.setdefault(s["name"], now) >= DOWN_S:
                    return shown.end(FAILED, f"{s['name']}: {why}")
            if until is not None and now >= until:
                waiting = [s["name"] for s in servers if not s["verified"]] or names
                reasons = [f"{s['name']}: {lacking(s)}" for s in servers if not s["verified"]] or [sight.why] * bool(sight.why)
                return shown.end(TIMEOUT, f"{', '.join(waiting)}: not verified within {screen.span(args.timeout)}", reasons)
            time.sleep(TURN_S)


def unknown(view: dict[str, Any]) -> bool:
    """Whether systemd knows no such unit."""
    return (view["unit_state"] or {}).get("load_state") == "not-found"


def lacking(view: dict[str, Any]) -> str:
    """What keeps a server from being verified."""
    if view["phase"] != "serving" or view["wrong"] or view.get("doubts"):
        return str(view["sentence"])
    return f"{view['sentence']}, but {'no canary was answered yet' if view['proven'] else 'it was not seen to become ready'}"


def given_up(view: dict[str, Any]) -> str | None:
    """Why nothing will start the unit any more; None while there is hope."""
    state = view["unit_state"] or {}
    unit = view["unit"]
    if unknown(view):
        return f"systemd knows no {unit}"
    if state.get("active_state") != "failed":
        return None
    why = f"{unit} has failed ({state.get('result')})"
    if view["mode"] != "act":
        return why
    if view["stand_down"]:
        return f"{why}, and the watchdog stands down: {view['stand_down']}"
    if view["withheld"] or view["budget"]["forbidden"]:
        said = view["budget"]["forbidden"] or ", ".join(view["withheld"])
        return f"{why}, and a restart was withheld: {said}"
    return None


class Sight:
    """What is known of the servers: from the daemon, or from our own look where none runs.

    Not from both: a server that is probed by two has more to do, and two /health at once may be answered though it hangs.

    Attributes:
        why: why nothing is known of them at this moment; "" where something is, or will be at once.
    """

    def __init__(
        self, folder: "Path", names: list[str], begin: "Callable[[], Alone]", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Look from now on.

        Args:
            folder: where the daemon's socket lies.
            names: of the servers.
            begin: begins our own look.
            clock: seconds.
        """
        self.why = ""
        self._folder, self._names = folder, names
        self._begin, self._clock = begin, clock
        self._alone: Alone | None = None
        self._there_at: float | None = None
        """When a daemon was there last."""

    def look(self, limit_s: float) -> Views:
        """The views of all the servers, or nothing where nothing is known. A daemon's answer is waited for so long at most.

        Raises:
            CommandError: the daemon may not be asked by us, or does not watch them.
        """
        self.why = ""
        try:
            answer = ask(self._folder, {"command": "status"}, round(min(max(LEAST_S, limit_s), REQUEST_LIMIT_S), 1))
        except (ForbiddenError, RefusedError) as e:
            raise CommandError(str(e)) from e
        except NoDaemonError as e:
            if self._there_at is None or self._clock() - self._there_at >= GONE_S:
                self._alone = self._alone or self._begin()
                return self._alone.views()
            self.why = str(e)
            return []
        except ControlError as e:
            self._there()
            self.why = str(e)
            return []
        self._there()
        found = {s["name"]: s for s in answer["servers"]}
        missing = ", ".join(name for name in self._names if name not in found)
        if not missing:
            return [found[name] for name in self._names]
        self.why = f"the daemon does not watch {missing}: reload it, or start it anew"
        if answer["daemon"]["up_s"] < YOUNG_S:
            return []
        raise CommandError(self.why)

    def close(self) -> None:
        """Look no more."""
        if self._alone is not None:
            self._alone.close()
            self._alone = None

    def _there(self) -> None:
        """A daemon is there: the look is its own."""
        self._there_at = self._clock()
        self.close()


def _alone(whole: Any, names: list[str]) -> "Alone":
    from watchdog.cli.alone import Alone  # noqa: PLC0415  # its event loop is loaded only where no daemon runs
    from watchdog.cli.credentials import resolved  # noqa: PLC0415

    return Alone(resolved(whole), names)


class Shown:
    """What is on the terminal: one line that changes, or one line for each phase."""

    def __init__(self, live: bool, *, as_json: bool = False) -> None:
        self._live = live and not as_json
        self._as_json = as_json
        self._servers: list[dict[str, Any]] = []
        self._said: dict[str, str] = {}

    def tell(self, servers: Views, why: str = "") -> None:
        """Show where they are, or why that is not known; as JSON only the end is told."""
        self._servers = servers
        if self._as_json:
            return
        if self._live:
            text = (" | ".join(_state(s, with_bar=True) for s in servers) or why)[: screen.width() - 1]
            sys.stdout.write(f"\r\x1b[K{screen.plain(text)}")
            sys.stdout.flush()
            return
        if why and self._said.get("") != why:
            print(screen.plain(why), flush=True)
        self._said[""] = why
        for s in servers:
            start = s["starting"]
            word = (
                f"{s['phase']} {start['step'] or ''}"
                if start is not None
                else f"{s['phase']}{'' if not s['verified'] else ' verified'}"
            )
            if self._said.get(s["name"]) != word:
                self._said[s["name"]] = word
                print(screen.plain(_state(s, with_bar=False)), flush=True)

    def end(self, status: int, text: str, reasons: Sequence[str] = ()) -> int:
        """Say the end, with a line for each reason, and clear the line that changed."""
        if self._as_json:
            whole = "\n  ".join([text, *reasons])
            screen.print_json({"verified": status == OK, "status": status, "text": whole, "servers": self._servers})
            return status
        if self._live:
            sys.stdout.write("\r\x1b[K")
        kind = "ok" if status == OK else "bad"
        lines = [screen.paint(screen.plain(text), kind, screen.colours()), *(f"  {screen.plain(reason)}" for reason in reasons)]
        print("\n".join(lines), file=sys.stdout if status == OK else sys.stderr, flush=True)
        return status


def _state(view: dict[str, Any], *, with_bar: bool) -> str:
    start = view["starting"]
    if start is None:
        return f"{view['name']}: {view['sentence']}"
    return f"{view['name']}: {bar(start['done']) + ' ' if with_bar else ''}{progress(start)}"
