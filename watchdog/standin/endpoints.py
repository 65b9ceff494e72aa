"""The HTTP endpoints of the parent that tell of the server: health, readiness, models, loads, metrics."""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from watchdog.standin.board import Board
from watchdog.standin.bodies import json_response
from watchdog.standin.engine import Engine
from watchdog.standin.faults import Faults
from watchdog.standin.log import Log
from watchdog.standin.metrics import Exposition
from watchdog.standin.options import Options
from watchdog.standin.status import Status

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEALTH_POLL = 1.0
"""Seconds, scaled, between two looks for a sign of life: no /health is faster."""


class Endpoints:
    """Handlers by path."""

    def __init__(
        self, *, options: Options, log: Log, faults: Faults, board: Board, engine: Engine, status: Status, exposition: Exposition
    ) -> None:
        self._options = options
        self._log = log
        self._faults = faults
        self._board = board
        self._engine = engine
        self._status = status
        self._exposition = exposition
        self._began = time.time()

    def routes(self) -> list[web.RouteDef]:
        """The routes of the version."""
        since = self._options.since
        paths: list[tuple[str, Handler, bool]] = [
            ("/health", self._health, True),
            ("/health_generate", self._health, True),
            ("/ready", self._ready, since(0, 5, 20)),
            ("/ping", self._ping, True),
            ("/v1/models", self._models, True),
            ("/v1/models/{model:.*}", self._model, True),
            ("/model_info", self._model_info, since(0, 5, 6)),
            ("/get_model_info", self._model_info, True),
            ("/server_info", self._server_info, since(0, 5, 6)),
            ("/get_server_info", self._server_info, True),
            ("/get_load", self._get_load, since(0, 4, 10) and not since(0, 5, 21)),
            ("/v1/loads", self._loads, since(0, 5, 8)),
            ("/metrics", self._metrics, True),
            ("/hicache/storage-backend", self._storage_backend, since(0, 5, 9)),
        ]
        routes = [web.get(path, handler, allow_head=False) for path, handler, exists in paths if exists]
        for path, handler in (
            ("/flush_cache", self._flush),
            ("/pause_generation", self._pause),
            ("/continue_generation", self._continue),
        ):
            routes.append(web.post(path, handler))
        return routes

    async def _health(self, _request: web.Request) -> web.Response:
        if self._status.draining:
            self._log.line("Health check request received during shutdown. Returning 503.")
            return web.Response(status=503)
        if self._status.starting:
            return web.Response(status=503)
        if self._options.shallow_health or self._faults.active("hang-behind-200") is not None:
            return web.Response()
        begun, wall = time.monotonic(), time.strftime("%H:%M:%S")
        self._engine.probe()
        while time.monotonic() < begun + self._options.health_limit:
            await asyncio.sleep(min(HEALTH_POLL * self._options.scale, self._options.health_limit))
            if self._engine.last_received > begun:
                self._status.healthy = True
                return web.Response()
        last = time.strftime("%H:%M:%S", time.localtime(time.time() - (time.monotonic() - self._engine.last_received)))
        self._log.line(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{max(1, round(self._options.health_limit))} seconds. tic start time: {wall}. last_heartbeat time: {last}"
        )
        self._status.healthy = False
        return web.Response(status=503)

    async def _ready(self, _request: web.Request) -> web.Response:
        status = self._status
        return web.Response(status=503 if status.starting or not status.healthy or status.draining or status.paused else 200)

    async def _ping(self, _request: web.Request) -> web.Response:
        status = self._status
        known_bad = status.starting or not status.healthy or status.draining
        return web.Response(status=503 if self._options.since(0, 5, 23) and known_bad else 200)

    def _card(self) -> dict[str, Any]:
        name = self._options.server["served_model_name"]
        card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "sglang", "root": name, "parent": None}
        return card | {"max_model_len": self._options.server["context_length"]}

    async def _models(self, _request: web.Request) -> web.Response:
        return json_response({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        if name == self._options.server["served_model_name"]:
            return json_response(self._card())
        error = {"message": f"The model '{name}' does not exist", "type": "invalid_request_error", "param": "model"}
        return json_response({"error": error | {"code": "model_not_found"}}, status=404)

    def _deprecated(self, request: web.Request) -> None:
        if self._options.since(0, 5, 6) and request.path.startswith("/get_"):
            new = request.path.replace("get_", "")
            self._log.line(
                f"Endpoint '{request.path}' is deprecated and will be removed in a future version. Please use '{new}' instead."
            )

    async def _model_info(self, request: web.Request) -> web.Response:
        self._deprecated(request)
        server = self._options.server
        info = {"model_path": server["model_path"], "tokenizer_path": server["tokenizer_path"], "is_generation": True}
        info |= {"preferred_sampling_params": None, "weight_version": "default"}
        if self._options.since(0, 5, 9):
            info |= {"has_image_understanding": True, "has_audio_understanding": False}
            info |= {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"]}
        if self._options.since(0, 5, 23):
            info |= {key: server[key] for key in ("served_model_name", "load_format", "reasoning_parser", "tool_call_parser")}
            info |= {"disaggregation_mode": "null"}
        return json_response(info)

    async def _server_info(self, request: web.Request) -> web.Response:
        self._deprecated(request)
        reply = await self._engine.ask("info")
        options = self._options
        memory = {"weight": 73.23, "kvcache": 10.42, "token_capacity": options.kv_tokens, "graph": 1.38}
        state = options.server | {"last_gen_throughput": reply["throughput"], "memory_usage": memory}
        if options.drafts:
            state["avg_spec_accept_length"] = self._board["accept_len"]
        info = options.server | {
            "status": "ready",
            "max_total_num_tokens": options.kv_tokens,
            "max_req_input_len": options.kv_tokens - 6,
        }
        info |= {"internal_states": [state], "version": options.version}
        if options.since(0, 5, 23):
            info |= {"launch_command": options.launch_command, "kv_events": None, "startup_time": sum(options.phases.values())}
        return json_response(info)

    async def _get_load(self, _request: web.Request) -> web.Response:
        await self._engine.ask("info")
        running, queued = int(self._board["running"]), int(self._board["queued"])
        load = {
            "dp_rank": 0,
            "num_reqs": running + queued,
            "num_waiting_reqs": queued,
            "num_tokens": int(self._board["used_tokens"]),
        }
        return json_response([load])

    async def _loads(self, _request: web.Request) -> web.Response:
        """Up to 0.5.12 a round trip through the scheduler; later what it left in shared memory, however old."""
        if not self._options.since(0, 5, 13):
            await self._engine.ask("info")
        board, options = self._board, self._options
        load = {
            "timestamp": time.time(),
            "dp_rank": 0,
            "num_running_reqs": int(board["running"]),
            "num_waiting_reqs": int(board["queued"]),
            "num_used_tokens": int(board["used_tokens"]),
            "max_total_num_tokens": options.kv_tokens,
            "max_running_requests": options.server["max_running_requests"],
            "token_usage": round(board["used_tokens"] / options.kv_tokens, 4),
            "gen_throughput": round(board["gen_throughput"], 2),
            "cache_hit_rate": round(board["cache_hit_rate"], 4),
            "utilization": 0.0,
            "memory": {"weight_gb": 73.23, "kv_cache_gb": 10.42, "graph_gb": 1.38, "token_capacity": options.kv_tokens},
            "queues": {"waiting": int(board["queued"]), "grammar": 0, "paused": 0, "retracted": 0},
        }
        now = datetime.datetime.now(datetime.UTC).isoformat()
        whole: dict[str, Any] = {"timestamp": now, "version": options.version, "loads": [load]}
        return json_response(
            whole | ({"accelerator": None, "num_accelerators": options.ranks} if options.since(0, 5, 13) else {})
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        if not self._options.server["enable_metrics"] or self._faults.active("metrics-off") is not None:
            raise web.HTTPNotFound
        if self._faults.active("metrics-garbage") is not None:
            return web.Response(body=b"\xff\xfe sglang:num_running_reqs{ NaNs \x00\n<html>" + b"}" * 4096)
        return web.Response(text=self._exposition.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _storage_backend(self, _request: web.Request) -> web.Response:
        text = "This endpoint requires admin API key, but this server was started without one (admin-api-key). "
        return json_response({"error": text + "Restart with --admin-api-key to enable."}, status=400)

    async def _flush(self, _request: web.Request) -> web.Response:
        reply = await self._engine.ask("flush")
        text = "Cache flushed.\n" if reply["done"] else "Cache not flushed.\n"
        text += "Please check backend logs for more details. "
        text += "(When there are running or waiting requests, the operation will not be performed.)\n"
        return web.Response(text=text, status=200 if reply["done"] else 400)

    async def _pause(self, _request: web.Request) -> web.Response:
        self._status.paused = True
        self._engine.send({"op": "pause"})
        return json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, _request: web.Request) -> web.Response:
        self._status.paused = False
        self._engine.send({"op": "continue"})
        return json_response({"message": "Generation continued successfully.", "status": "ok"})
