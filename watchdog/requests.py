"""What the daemon answers on its control socket."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from watchdog.clean import without_secrets
from watchdog.judge.explain import explain
from watchdog.learning import RefusedError
from watchdog.observation import PROBES, Operator
from watchdog.roster import Roster
from watchdog.server import Server
from watchdog.view import server_view

LONGEST_PAUSE_S = 365 * 86400.0
SHOWN = 60
"""So many characters of a wrong value are shown."""
SAVE_LIMIT_S = 8.0
"""So long the disk has to take a person's word: less than whoever asks waits for the answer (asking.REQUEST_LIMIT_S)."""


class RequestError(Exception):
    """A request that cannot be answered; the message names the field and what it takes."""


class Field(NamedTuple):
    """What a field of a request takes: in words, and as a test."""

    wanted: str
    fits: Callable[[Any], bool]
    required: bool = False


def _one_of(*words: str) -> Field:
    return Field(f"one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words, required=True)


def _pause_length(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_PAUSE_S


SERVER = Field("the name of a watched server (text)", lambda value: isinstance(value, str))
REASON = Field("text", lambda value: isinstance(value, str))
SECONDS = Field("a number of seconds, more than 0 and at most 31536000 (a year)", _pause_length)

FIELDS: dict[str, dict[str, Field]] = {
    "status": {"server": SERVER},
    "explain": {"server": SERVER},
    "pause": {"server": SERVER, "seconds": SECONDS, "reason": REASON},
    "resume": {"server": SERVER, "reason": REASON},
    "operator": {"server": SERVER, "action": _one_of("acknowledge", "repaired"), "reason": REASON},
    "reload": {},
    "probe": {"server": SERVER, "kind": _one_of(*PROBES)},
    "baseline": {"server": SERVER, "action": _one_of("show", "learn", "accept")},
}
"""Command → its fields. One that is null counts as left out; one that is not here is refused, since it would be overlooked."""

FORGOTTEN = {
    "pause": "it ends with the daemon",
    "resume": "a daemon that is started anew may be paused again",
    "acknowledge": "a daemon that is started anew does not know of it",
    "repaired": "a daemon that is started anew may hold restarts back again",
}
"""A person's word → what it means that the disk did not take it."""


def checked(request: dict[str, Any]) -> dict[str, Any]:
    """The request without the fields that are null.

    Raises:
        RequestError: its command is unknown, or a field of it is not what it should be.
    """
    command = request.get("command")
    if not isinstance(command, str) or command not in FIELDS:
        raise RequestError(f"command must be one of {', '.join(FIELDS)}, not {_shown(command)}")
    fields = FIELDS[command]
    given = {name: value for name, value in request.items() if name != "command" and value is not None}
    for name, value in given.items():
        if name not in fields:
            takes = ", ".join(fields) or "none"
            raise RequestError(f"{command} has no field {_shown(name)}; the fields that it takes: {takes}")
        if not fields[name].fits(value):
            raise RequestError(f"{name} must be {fields[name].wanted}, not {_shown(value)}")
    for name, field in fields.items():
        if field.required and name not in given:
            raise RequestError(f"{name} is missing: it must be {field.wanted}")
    return {"command": command, **given}


def _shown(value: Any) -> str:
    """A wrong value as it was sent, shortened."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class Requests:
    """Answers one request at a time. Unknown words are refused with what would have been understood."""

    def __init__(self, roster: Roster, reload: Callable[[], Awaitable[str | None]]) -> None:
        """Answer for the servers of `roster`; `reload` reads the configuration again, and says why it was refused."""
        self._roster = roster
        self._read_again = reload

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; `error` in it says what is wrong with the request."""
        known = {
            "status": self._status,
            "explain": self._explain,
            "pause": self._pause,
            "resume": self._resume,
            "operator": self._operator,
            "reload": self._reload,
            "probe": self._probe,
            "baseline": self._baseline,
        }
        try:
            request = checked(request)
            return await known[request["command"]](request)
        except RequestError as e:
            return {"error": str(e)}

    def _chosen(self, request: dict[str, Any]) -> list[Server]:
        name = request.get("server")
        servers = self._roster.servers
        if name is None:
            return list(servers.values())
        if name not in servers:
            raise RequestError(f"no server {_shown(name)} is watched; watched are {', '.join(servers)}")
        return [servers[name]]

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        return {
            "daemon": self._roster.describe(),
            "status": self._roster.sentence(),
            "servers": [{**server_view(s.watch), "bundle": str(s.responder.last_bundle or "") or None} for s in chosen],
        }

    async def _explain(self, request: dict[str, Any]) -> dict[str, Any]:
        now = self._roster.clock.now()
        return {"servers": [{**server_view(s.watch), "why": explain(s.watch.engine, now)} for s in self._chosen(request)]}

    async def _pause(self, request: dict[str, Any]) -> dict[str, Any]:
        seconds = request.get("seconds")
        until = None if seconds is None else self._roster.clock.now() + float(seconds)
        return await self._tell(request, "pause", until)

    async def _resume(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._tell(request, "resume", None)

    async def _operator(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._tell(request, request["action"], None)

    async def _tell(self, request: dict[str, Any], action: str, until: float | None) -> dict[str, Any]:
        # Half characters, as a terminal of another encoding sends them, could not be written down.
        reason = request.get("reason", "")[:200].encode("utf-8", "replace").decode() or None
        chosen = self._chosen(request)
        paused = self._paused(chosen)
        for s in chosen:  # each of them before anything is waited for
            s.watch.take(Operator(t=self._roster.clock.now(), action=action, until=until, reason=reason))
            s.watch.log.warning("operator", message=f"{action}{f': {reason}' if reason else ''}", action=action)
        now_paused = self._paused(chosen)
        unsaved = await _unsaved(chosen)
        vain = [s.watch.server.name for s in chosen if (action == "pause") != (s.watch.server.name in now_paused)]
        if vain and action in ("pause", "resume"):
            return {"error": f"{action} did not take effect for {', '.join(vain)}: look at the daemon's journal"}
        done: dict[str, Any] = {"done": action, "servers": [s.watch.server.name for s in chosen], "were_paused": paused}
        return {**done, "warning": f"it is not on disk: {FORGOTTEN[action]} ({'; '.join(unsaved)})"} if unsaved else done

    def _paused(self, chosen: list[Server]) -> list[str]:
        now = self._roster.clock.now()
        return [s.watch.server.name for s in chosen if s.watch.engine.facts.paused(now)]

    async def _reload(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        refused = await self._read_again()
        return {"error": refused} if refused else {"done": "reload"}

    async def _probe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask a server now, in the daemon's own lane, and tell what came of it."""
        kind = request["kind"]
        probes = {}
        for s in self._chosen(request):
            if s.endpoint is not None:
                probes[s.watch.server.name] = msgspec.to_builtins(without_secrets(await s.endpoint.probe_now(kind)))
        return {"done": "probe", "probes": probes}

    async def _baseline(self, request: dict[str, Any]) -> dict[str, Any]:
        """Show the baseline beside the present life, or make this life the baseline."""
        action = request["action"]
        chosen = self._chosen(request)
        if action != "show":
            if len(chosen) != 1:
                return {"error": f"name the server: {', '.join(s.watch.server.name for s in chosen)}"}
            try:
                chosen[0].learner.accept(action, changed_too=action == "accept")
            except RefusedError as e:
                return {"error": str(e)}
            await chosen[0].learner.keep()
        return {"baselines": [s.learner.describe() for s in chosen]}


async def _unsaved(servers: list[Server]) -> list[str]:
    """Write the state of all servers down at once; of which it is not on disk by now, each with why."""
    saving = {asyncio.create_task(s.responder.save(), name=f"state of {s.watch.server.name}"): s for s in servers}
    late = (await asyncio.wait(saving, timeout=SAVE_LIMIT_S))[1] if saving else set()
    for task in late:  # the keeper writes it on
        task.cancel()
    found = []
    for task, s in saving.items():
        why = "the disk does not answer" if task in late else task.exception() or s.responder.trouble
        if why is not None:
            found.append(f"{s.watch.server.name}: {why}")
    return found
