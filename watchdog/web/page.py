"""What the page is told: the status of all servers as the commands have it, how each is in a word, timelines and bundles."""

import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from watchdog.judge.sentence import WORST
from watchdog.watch import Watch
from watchdog.web import archive
from watchdog.web.timeline import Timeline
from watchdog.worker import BusyError, Worker

LIST_S = 10.0
"""The folders of bundles are read again after so many seconds at the earliest."""
DISK_LIMIT_S = 2.0
ILL = ("UnitActive", "ProcessesPresent", "SchedulerProgressing", "RequestsCompleting", "AnswersSane", "Started")
"""Conditions without which users are not served; WORST has the others too."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where the page gets what it shows.

    Attributes:
        status: the daemon's answer to the command `status`.
        watches: the watched servers.
        alive: whether the daemon itself is well.
    """

    status: Callable[[], Awaitable[dict[str, Any]]]
    watches: Callable[[], list[Watch]]
    alive: Callable[[], bool]


class Page:
    """Makes the dictionary that /api/status gives and the page is drawn from."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._timelines: dict[str, Timeline] = {}
        self._bundles: dict[str, list[dict[str, Any]]] = {}
        self._bundles_at: dict[str, float] = {}
        self._disk = Worker("list of bundles")

    def look(self) -> None:
        """Keep the timelines; called at each tick of the daemon."""
        watches = self.source.watches()
        for watch in watches:
            self._timelines.setdefault(watch.server.name, Timeline()).look(watch)
        for gone in self._timelines.keys() - {w.server.name for w in watches}:
            del self._timelines[gone]

    def watch(self, name: str) -> Watch | None:
        """The watch of a server; None if there is none of this name."""
        return next((w for w in self.source.watches() if w.server.name == name), None)

    async def status(self) -> dict[str, Any]:
        """Everything at this moment; `at` is the wall clock of this machine, against which a reader reckons ages."""
        self.look()
        answer = await self.source.status()
        watches = {w.server.name: w for w in self.source.watches()}
        for server in answer.get("servers", []):
            watch = watches.get(server["name"])
            server["health"] = health(server)
            if watch is not None:
                server["timeline"] = self._timelines[watch.server.name].view(watch)
                server["incidents"] = await self._incidents(watch)
        some = next(iter(watches.values()), None)
        if some is not None:
            answer["at"] = some.clock.wall(some.clock.now()).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return answer

    async def _incidents(self, watch: Watch) -> list[dict[str, Any]]:
        name, now = watch.server.name, watch.clock.now()
        if now - self._bundles_at.get(name, -LIST_S) >= LIST_S:
            self._bundles_at[name] = now
            home = watch.home / "incidents"
            with contextlib.suppress(TimeoutError, BusyError):  # a dead disk: the list stays as it was
                self._bundles[name] = await self._disk.call(lambda: archive.listing(home), DISK_LIMIT_S)
        return self._bundles.get(name, [])


def health(server: dict[str, Any]) -> dict[str, str]:
    """How a server is, for a glance.

    Returns:
        level: "well", "trouble" (served, but something is wrong), "ill" (users are not served), "busy" (on its way up or down),
        "paused", or "unknown" (also: off because somebody wanted it so).
        title: the same in a few words.
    """
    level, title = _health(server)
    return {"level": level, "title": title}


def _health(server: dict[str, Any]) -> tuple[str, str]:
    phase = server["phase"]
    false = {c["type"]: c for c in server["conditions"] if c["status"] == "False"}
    worst = next((false[kind] for kind in WORST if kind in false), None)
    if server["paused"]:
        return "paused", "Watching is paused"
    restarting = any(not r["dry"] and not r["proven"] for r in server["restarts"][-1:])
    if restarting and phase in ("stopping", "draining", "off", "starting"):
        return "busy", "Restarting"
    if worst is not None and worst["type"] in ILL:
        return "ill", in_words(worst["reason"])
    if phase == "starting":
        return "busy", "Starting"
    if phase in ("draining", "stopping"):
        return "busy", phase.capitalize()
    if phase != "serving":
        return "unknown", "Off" if phase == "off" else "Not known yet"
    if false:
        shown = worst or next(iter(false.values()))
        return "trouble", in_words(shown["reason"])
    doubt = next((c for c in server["conditions"] if c["type"] == "SchedulerProgressing" and c["status"] == "Unknown"), None)
    if doubt is not None and doubt["reason"] in ("Silent", "ProbeFailed"):
        return "trouble", "Suspicious"
    return ("well", "Well") if server["verified"] else ("busy", "Serving, not proven yet")


def in_words(reason: str) -> str:
    """A reason as words: "SchedulerHung" → "Scheduler hung"; abbreviations stay as they are."""
    words = re.findall(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]|\d+", reason)
    return " ".join(w if i == 0 or (len(w) > 1 and w.isupper()) else w.lower() for i, w in enumerate(words)) or reason
