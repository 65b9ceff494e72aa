"""What the daemon answers on its control socket."""

from typing import TYPE_CHECKING, Any

import msgspec

from watchdog.judge.explain import explain
from watchdog.learning import RefusedError
from watchdog.observation import PROBES, Operator
from watchdog.view import server_view

if TYPE_CHECKING:
    from watchdog.daemon import Daemon
    from watchdog.server import Server


class Requests:
    """Answers one request at a time. Unknown words are refused with what would have been understood."""

    def __init__(self, daemon: "Daemon") -> None:
        self._daemon = daemon

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; `error` in it says what is wrong with the request."""
        command = request.get("command")
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
        if not isinstance(command, str) or command not in known:
            return {"error": f"unknown command {command!r}; known are {', '.join(known)}"}
        return await known[command](request)

    def _chosen(self, request: dict[str, Any]) -> "list[Server]":
        name = request.get("server")
        servers = self._daemon.servers
        if name is None:
            return list(servers.values())
        if name not in servers:
            raise ValueError(f"no server {name!r} is watched; watched are {', '.join(servers)}")
        return [servers[name]]

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        chosen = self._chosen(request)
        return {
            "daemon": self._daemon.describe(),
            "status": self._daemon.status(),
            "servers": [{**server_view(s.watch), "bundle": str(s.responder.last_bundle or "") or None} for s in chosen],
        }

    async def _explain(self, request: dict[str, Any]) -> dict[str, Any]:
        now = self._daemon.clock.now()
        return {"servers": [{**server_view(s.watch), "why": explain(s.watch.engine, now)} for s in self._chosen(request)]}

    async def _pause(self, request: dict[str, Any]) -> dict[str, Any]:
        seconds = request.get("seconds")
        if seconds is not None and (not isinstance(seconds, int | float) or not 0 < seconds <= 365 * 86400):
            return {"error": "seconds must be a positive number, at most a year"}
        until = None if seconds is None else self._daemon.clock.now() + float(seconds)
        return await self._tell(request, "pause", until)

    async def _resume(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._tell(request, "resume", None)

    async def _operator(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request.get("action")
        if action not in ("acknowledge", "repaired"):
            return {"error": f"action must be acknowledge or repaired, not {action!r}"}
        return await self._tell(request, str(action), None)

    async def _tell(self, request: dict[str, Any], action: str, until: float | None) -> dict[str, Any]:
        # Half characters, as a terminal of another encoding sends them, could not be written down.
        reason = str(request.get("reason") or "")[:200].encode("utf-8", "replace").decode() or None
        chosen = self._chosen(request)
        unsaved = []
        for s in chosen:
            s.watch.take(Operator(t=self._daemon.clock.now(), action=action, until=until, reason=reason))
            s.watch.log.warning("operator", message=f"{action}{f': {reason}' if reason else ''}", action=action)
            if (action == "pause") != s.watch.engine.facts.paused(self._daemon.clock.now()) and action in ("pause", "resume"):
                return {"error": f"{action} did not take effect for {s.watch.server.name}: look at the daemon's journal"}
            await s.responder.save()
            if s.responder.trouble is not None:
                unsaved.append(f"{s.watch.server.name}: {s.responder.trouble}")
        done: dict[str, Any] = {"done": action, "servers": [s.watch.server.name for s in chosen]}
        return {**done, "warning": f"it is not on disk and ends with the daemon ({'; '.join(unsaved)})"} if unsaved else done

    async def _reload(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        refused = await self._daemon.reload()
        return {"error": refused} if refused else {"done": "reload"}

    async def _probe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask a server now, in the daemon's own lane, and tell what came of it."""
        kind = request.get("kind")
        if kind not in PROBES:
            return {"error": f"kind must be one of {', '.join(PROBES)}, not {kind!r}"}
        probes = {}
        for s in self._chosen(request):
            if s.endpoint is not None:
                probes[s.watch.server.name] = msgspec.to_builtins(await s.endpoint.probe_now(kind))
        return {"done": "probe", "probes": probes}

    async def _baseline(self, request: dict[str, Any]) -> dict[str, Any]:
        """Show the baseline beside the present life, or make this life the baseline."""
        action = request.get("action")
        if action not in ("show", "learn", "accept"):
            return {"error": f"action must be show, learn or accept, not {action!r}"}
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
