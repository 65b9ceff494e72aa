"""What the page is told: the status of all servers as the commands have it, how each is in a word, timelines and bundles."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from watchdog.judge.sentence import DOUBTS, WORST
from watchdog.log import get
from watchdog.watch import Watch
from watchdog.web import archive, shelf
from watchdog.web.outlook import outlook
from watchdog.web.timeline import REMARKS, Timeline, at
from watchdog.worker import BusyError, Worker

LIST_S = 10.0
"""The folders of bundles are read again after so many seconds at the earliest."""
DISK_LIMIT_S = 2.0
KEEP_S = 30.0
KEEP_LIMIT_S = 10.0
LAST_KEEP_S = 1.0
ILL = ("UnitActive", "ProcessesPresent", "SchedulerProgressing", "RequestsCompleting", "AnswersSane", "Started")
"""Conditions without which users are not served; WORST has the others too."""
RESTART_S = 600.0
"""A life that began within so many seconds of our order is the one that we ordered."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows, asked for anew each time.

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

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.timelines: dict[str, Timeline] = {}
        self._bundles: dict[str, list[dict[str, Any]]] = {}
        self._bundles_at: dict[str, float] = {}
        self._disk = Worker("list of bundles")
        self._shelf = Worker("timelines")
        self._restored: set[str] = set()
        self._trouble = ""

    def look(self) -> None:
        """Keep the timelines; called at each tick of the daemon."""
        watches = self.shown.watches()
        for watch in watches:
            self.timelines.setdefault(watch.server.name, Timeline()).look(watch)
        for gone in self.timelines.keys() - {w.server.name for w in watches}:
            del self.timelines[gone]
            self._restored.discard(gone)

    async def keep(self) -> None:
        """Read what the daemon before us kept, and keep it on, until cancelled. No disk can hold up the page or the daemon."""
        try:
            while True:
                for watch in self.shown.watches():
                    if watch.server.name not in self._restored:
                        await self._restore(watch)
                await self._save(KEEP_LIMIT_S)
                await asyncio.sleep(KEEP_S)
        finally:
            await self._save(LAST_KEEP_S)

    async def _restore(self, watch: Watch) -> None:
        try:
            kept = await self._shelf.call(lambda: shelf.take(watch.home), KEEP_LIMIT_S)
        except (TimeoutError, BusyError):
            return  # asked again: what lies there must not be overwritten unread
        except (OSError, ValueError) as e:
            watch.log.warning("page", message=f"the timeline begins anew: {e}")
            kept = None
        if kept is not None:
            self.timelines.setdefault(watch.server.name, Timeline()).restore(kept, watch.clock)
        self._restored.add(watch.server.name)

    async def _save(self, limit_s: float) -> None:
        lines = [(w, self.timelines.get(w.server.name)) for w in self.shown.watches() if w.server.name in self._restored]
        work = [(watch.home, line.kept(watch)) for watch, line in lines if line is not None]

        def put() -> None:
            for home, kept in work:
                shelf.put(home, kept)

        try:
            await self._shelf.call(put, limit_s)
        except BusyError:
            return  # told already
        except OSError as e:  # TimeoutError is one
            why = e.strerror or "the disk does not answer"
            if why != self._trouble:
                get().warning("page", message=f"the timelines of the page cannot be kept: {why}; they go on in memory")
            self._trouble = why
        else:
            self._trouble = ""

    def watch(self, name: str) -> Watch | None:
        """The watch of a server; None if there is none of this name."""
        return next((w for w in self.shown.watches() if w.server.name == name), None)

    async def status(self) -> dict[str, Any]:
        """Everything at this moment; `at` is the wall clock of this machine, against which a reader reckons ages."""
        self.look()
        # A reload may take a server away while we wait for a disk.
        watches, lines = {w.server.name: w for w in self.shown.watches()}, dict(self.timelines)
        answer = await self.shown.status()
        now_at = self._now_at()
        for server in answer.get("servers", []):
            watch = watches.get(server["name"])
            server["health"] = health(server, now_at)
            if watch is not None:
                server["outlook"] = self._outlook(watch)
                line = lines[watch.server.name]
                server["timeline"] = line.view(watch)
                past = [{"at": at(watch.clock, r.t), "what": r.what, "text": r.text, "reason": r.reason} for r in line.past]
                server["diary"] = [*past, *server["diary"]][-REMARKS:]
                server["incidents"] = await self._incidents(watch)
        if now_at is not None:
            answer["at"] = now_at
        return answer

    def _outlook(self, watch: Watch) -> dict[str, str | None] | None:
        try:
            return outlook(watch)
        except Exception as e:  # noqa: BLE001  # a fault in one judge must not take the page away; the watch tells of it
            return {"next": f"What comes next cannot be told: a judge failed ({type(e).__name__}).", "helps": None}

    def _now_at(self) -> str | None:
        clocks = [w.clock for w in self.shown.watches()]
        return at(clocks[0], clocks[0].now()) if clocks else None

    async def _incidents(self, watch: Watch) -> list[dict[str, Any]]:
        name, now = watch.server.name, watch.clock.now()
        if now - self._bundles_at.get(name, -LIST_S) >= LIST_S:
            self._bundles_at[name] = now
            home = watch.home / "incidents"
            with contextlib.suppress(TimeoutError, BusyError):  # a dead disk: the list stays as it was
                self._bundles[name] = await self._disk.call(lambda: archive.listing(home), DISK_LIMIT_S)
        return self._bundles.get(name, [])


def health(server: dict[str, Any], now_at: str | None) -> dict[str, str | None]:
    """How a server is, for a glance.

    Returns:
        level: "well", "trouble" (served, but something is wrong), "ill" (users are not served), "busy" (on its way up or down),
        "paused", or "unknown" (also: off because somebody wanted it so).
        title: the same in a few words.
        since_at: since when.
    """
    phase = server["phase"]
    begun = (server["ready_at"] if phase == "serving" else None) or server["since_at"]
    false = {c["type"]: c for c in server["conditions"] if c["status"] == "False"}
    worst = next((false[kind] for kind in WORST if kind in false), None) or next(iter(false.values()), None)
    unsure = {(c["type"], c["reason"]): c for c in server["conditions"] if c["status"] == "Unknown"}
    doubt = next((unsure[kind] for kind in DOUBTS if kind in unsure), None)

    def is_so(level: str, title: str, since_at: str | None = begun) -> dict[str, str | None]:
        return {"level": level, "title": title, "since_at": since_at}

    if server["paused"]:
        return is_so("paused", "Paused" if worst is None else f"Paused · {in_words(worst['reason'])}", None)
    ordered = _restart_under_way(server, now_at)
    if ordered is not None:
        return is_so("busy", "Restarting", ordered)
    if worst is not None and worst["type"] in ILL:
        return is_so("ill", in_words(worst["reason"]), worst["since_at"])
    if phase in ("starting", "draining", "stopping"):
        return is_so("busy", phase.capitalize())
    if phase != "serving":
        return is_so("unknown", "Off" if phase == "off" else "Not known yet", None)
    if worst is not None:
        return is_so("trouble", in_words(worst["reason"]), worst["since_at"])
    if doubt is not None:
        return is_so("trouble", "In doubt", doubt["since_at"])
    return is_so("well", "Well") if server["verified"] else is_so("busy", "Serving, not proven yet")


def _restart_under_way(server: dict[str, Any], now_at: str | None) -> str | None:
    """When the restart was ordered that has not led to a ready server yet; None if there is none."""
    ordered = [r["at"] for r in server["restarts"] if not r["dry"]]
    if not ordered or server["phase"] not in ("stopping", "draining", "off", "starting"):
        return None
    if server["phase"] == "starting":
        begun = server["since_at"]
        gap = _seconds(begun) - _seconds(ordered[-1]) if begun is not None else None
        return ordered[-1] if gap is not None and -5.0 < gap < RESTART_S else None
    return ordered[-1] if now_at is not None and _seconds(now_at) - _seconds(ordered[-1]) < RESTART_S else None


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def in_words(reason: str) -> str:
    """A reason as words: "SchedulerHung" → "Scheduler hung"; abbreviations stay as they are."""
    words = re.findall(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]|\d+", reason)
    return " ".join(w if i == 0 or (len(w) > 1 and w.isupper()) else w.lower() for i, w in enumerate(words)) or reason
