"""The scheduler of rank 0: takes requests, runs forward passes with the other ranks, keeps the numbers."""

import os
import random
import select
import signal
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from watchdog.standin import crashes, model
from watchdog.standin.batchlines import BatchLines
from watchdog.standin.board import Board
from watchdog.standin.cache import PrefixCache
from watchdog.standin.channel import Channel, Message
from watchdog.standin.faults import Faults
from watchdog.standin.forward import Forward
from watchdog.standin.log import Log
from watchdog.standin.options import Options
from watchdog.standin.rank import RankFaults
from watchdog.standin.requests import Request, from_message

IDLE_POLL = 0.1
"""Seconds between two looks at the faults while nothing comes. (The real scheduler spins at 100 % of a core instead.)"""
IDLE_REFRESH = 30.0
"""Seconds, scaled, between two writes of the gauges while idle."""


class Scheduler:
    """The loop of rank 0."""

    def __init__(
        self,
        *,
        options: Options,
        log: Log,
        faults: Faults,
        board: Board,
        own: RankFaults,
        forward: Forward,
        parent: Channel,
        detokenizer: Channel,
    ) -> None:
        self._options = options
        self._log = log
        self._faults = faults
        self._board = board
        self._own = own
        self._forward = forward
        self._parent = parent
        self._detokenizer = detokenizer
        self._lines = BatchLines(options, log, board)
        self._cache = PrefixCache(options.kv_tokens, options.host_tokens)
        self._damaged: set[str] = set()
        """Blocks that came back from the host pool as something else."""
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._paused = False
        self._random = random.Random(0)
        self._idle_since = time.monotonic()
        self._refreshed = 0.0

    def run(self) -> None:
        """Serve for ever."""
        poll = select.poll()
        poll.register(self._parent, select.POLLIN)
        while True:
            busy = bool(self._running or self._waiting) and not self._paused
            poll.poll(0 if busy else int(IDLE_POLL * 1000))
            self._parent.flush()
            self._detokenizer.flush()
            self._obey_faults()
            self._receive()
            if self._paused or not (self._running or self._waiting):
                self._idle()
                continue
            self._idle_since = time.monotonic()
            admitted = self._admit()
            if admitted:
                self._prefill(admitted)
            else:
                self._decode()

    # what comes in

    def _receive(self) -> None:
        for message in self._parent.receive():
            if message["op"] == "generate":
                self._take(message)
            elif message["op"] == "abort":
                self._abort(message["rid"])
            elif message["op"] == "info":
                self._parent.send({"op": "info", "rid": message["rid"], "throughput": self._board["gen_throughput"]})
            elif message["op"] == "flush":
                self._flush(message["rid"])
            elif message["op"] == "pause":
                self._paused = True
            elif message["op"] == "continue":
                self._paused = False
            elif message["op"] == "shutdown":
                self._forward.shut_down()
                os._exit(0)

    def _take(self, message: Message) -> None:
        garbage = self._faults.active("garbage")
        request = from_message(message, time.monotonic(), None if garbage is None else str(garbage.get("mode", "bang")))
        if request.health and (self._running or self._waiting):
            # srt/managers/scheduler.py: a probe that finds work is dropped and answered directly, without the detokenizer.
            self._parent.send({"op": "health", "rid": request.rid})
            return
        limit = self._options.server["max_queued_requests"]
        full = limit is not None and len(self._waiting) >= limit
        if not request.health and (full or self._faults.active("queue-full") is not None):
            self._parent.send({"op": "refused", "rid": request.rid})
            return
        self._waiting.append(request)

    def _abort(self, rid: str) -> None:
        for request in [*self._running, *self._waiting]:
            if request.rid == rid:
                self._finish(request, "abort")

    def _flush(self, rid: str) -> None:
        done = not (self._running or self._waiting)
        if done:
            self._cache.clear()
            self._log.line("Cache flushed successfully!")
        else:
            counts = f"#queue-req: {len(self._waiting)}, #running-req: {len(self._running)}"
            self._log.line(f"Cache not flushed because there are pending requests. {counts}")
        self._parent.send({"op": "flushed", "rid": rid, "done": done})

    # forward passes

    def _admit(self) -> list[Request]:
        """The requests of the next prefill pass, whose tokens fit into one chunk."""
        room = int(self._options.server["chunked_prefill_size"])
        chosen = [request for request in self._running if request.to_prefill]
        free = int(self._options.server["max_running_requests"]) - len(self._running)
        room -= sum(request.to_prefill for request in chosen)
        slots = self._options.kv_tokens - sum(request.prompt + request.wanted for request in self._running)
        while self._waiting and free > 0 and room > 0 and not (chosen and self._waiting[0].busy):
            slots -= self._waiting[0].prompt + self._waiting[0].wanted
            if slots < 0 and self._running:
                break
            request = self._waiting.popleft()
            self._look_up(request)
            request.prefilled = min(request.cached, request.prompt - 1)
            self._board.add("queue_seconds", time.monotonic() - request.arrived)
            self._board.add("queue_count", 1)
            self._running.append(request)
            chosen.append(request)
            room -= request.to_prefill
            free -= 1
            if request.busy:
                break
        return chosen

    def _look_up(self, request: Request) -> None:
        """What of the prompt is cached."""
        if self._options.server["disable_radix_cache"]:
            return
        hit = self._cache.use(request.blocks)
        request.cached, request.cached_host = hit.device + hit.host, hit.host
        self._board.add("evicted", hit.evicted)
        if hit.host and self._faults.active("damaged-host-pool") is not None:
            self._damaged.update(request.blocks)
        if not self._damaged.isdisjoint(request.blocks):
            request.tokens = model.tokens(request.question, thinks=False, fault="repeat")

    def _prefill(self, batch: Sequence[Request]) -> None:
        chunk = int(self._options.server["chunked_prefill_size"])
        new = 0
        for request in batch:
            part = request.to_prefill if request.busy else min(request.to_prefill, chunk - new)
            request.prefilled += part
            new += part
        fresh = [request for request in batch if not request.admitted]
        for request in fresh:
            request.admitted = True
        cached = sum(request.cached for request in fresh)
        running = len(self._running) - len(batch)
        self._lines.prefill(
            sequences=len(fresh) or len(batch),
            new=new,
            cached=cached,
            running=running,
            queued=len(self._waiting),
            pending=sum(request.to_prefill for request in batch),
            used=self._used(),
        )
        self._count_prefill(fresh, new)
        seconds = max((request.busy for request in batch), default=0.0) or new / self._options.prefill_rate
        self._pass(seconds)
        self._board.add("prefill_busy_s", seconds)
        for request in batch:
            if not request.to_prefill:
                self._emit(request, 1)

    def _count_prefill(self, fresh: Sequence[Request], new: int) -> None:
        self._board.add("prefill_passes", 1)
        self._board.add("prefill_tokens", new)
        self._board.add("prefill_cached", sum(request.cached for request in fresh))
        self._board.add("load_back", sum(request.cached_host for request in fresh))
        if self._options.host_tokens:
            self._board.add("backup", new)
            self._board["host_used"] = self._cache.host_tokens
        self._board["evictable"] = self._cache.device_tokens

    def _decode(self) -> None:
        self._pass(self._options.step_seconds)
        self._board.add("decode_passes", 1)
        running, used = len(self._running), self._used()
        tokens = sum(self._emit(request, self._step_tokens()) for request in list(self._running))
        self._lines.decoded(running, tokens, used, len(self._waiting))

    def _step_tokens(self) -> int:
        """Tokens of one step: accept_len of them on average."""
        whole = int(self._options.accept_len)
        return whole + (self._random.random() < self._options.accept_len - whole)

    def _pass(self, seconds: float) -> None:
        """One forward pass on all ranks: here a hang gets the scheduler stuck."""
        self._forward.run(seconds, len(self._running))

    def _emit(self, request: Request, count: int) -> int:
        """Give a request up to `count` tokens more; returns how many there were."""
        produced = model.take(request.tokens, min(count, request.wanted - request.generated))
        request.generated += len(produced)
        self._board.add("decode_tokens", len(produced))
        if request.generated >= request.wanted:
            self._finish(request, "length", produced)
        elif len(produced) < count:
            self._finish(request, "stop", produced)
        else:
            self._send(request, produced, None)
        return len(produced)

    def _finish(self, request: Request, reason: str, tokens: Sequence[str] = ()) -> None:
        if request in self._running:
            self._running.remove(request)
        if request in self._waiting:
            self._waiting.remove(request)
        self._send(request, tokens, reason)

    def _send(self, request: Request, tokens: Sequence[str], reason: str | None) -> None:
        message: dict[str, Any] = {"op": "tokens", "rid": request.rid, "tokens": list(tokens), "finish_reason": reason}
        message |= {"prompt": request.prompt, "generated": request.generated}
        message |= {"cached": request.cached, "cached_host": request.cached_host}
        self._detokenizer.send(message)

    def _used(self) -> int:
        return sum(request.held for request in self._running)

    # between the passes

    def _idle(self) -> None:
        now = time.monotonic()
        self._board.add("idle_seconds", now - self._idle_since)
        self._idle_since = now
        if now - self._refreshed > IDLE_REFRESH * self._options.scale:
            self._refreshed = now
            self._lines.idle(len(self._running), len(self._waiting), self._used())

    def _obey_faults(self) -> None:
        self._own.obey()
        hang = self._faults.active("hang")
        if hang is not None and hang.get("where") == "loop":
            self._forward.hold()
        if self._faults.take("exit-0") is not None:
            os._exit(0)
        if self._faults.take("evict") is not None:
            self._board.add("evicted", self._cache.evict())
        for name in ("exception", "oom", "cuda-error"):
            settings = self._faults.take(name)
            if settings is not None:
                self._log.line(crashes.scheduler_exception(name, settings.get("text")))
                os.kill(os.getppid(), signal.SIGQUIT)
                os._exit(1)
