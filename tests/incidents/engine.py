"""The engine of the simulated server: a queue, chunked prefill, decode rounds. It knows time only through its simulation."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

ROUND_S = 0.5
"""Decode goes on in rounds of so many seconds, or of one step where a step takes longer."""


@dataclass(eq=False)
class Request:
    """One request on its way through the engine."""

    prompt: int
    answer: int
    kind: str = "user"
    arrived: float = 0.0
    cached: int = 0
    prefilled: int = 0
    decoded: float = 0.0
    first_at: float | None = None
    done: Callable[[float], None] | None = None
    gone: bool = False


class Host(Protocol):
    """What the engine needs of the simulation around it."""

    now: float

    def at(self, t: float, act: Callable[[], None]) -> None: ...
    def prefill_line(self, new: int, cached: int, pending: int) -> None: ...
    def decode_line(self, speed: float) -> None: ...


@dataclass
class Engine:
    """Faults are plain fields: set them at any moment, then call `wake`."""

    host: Host
    rng: random.Random
    prefill_tps: float = 9000.0
    step_s: float = 0.022
    """One decode step of the whole batch."""
    chunk: int = 8192
    max_running: int = 48
    pool: int = 159_277
    accept: float | None = 2.7
    line_last: bool = False
    """Whether a prefill's line is printed when its step is over (0.5.23), not when it begins."""
    chunk_beats: bool = False
    """Whether each chunk shows as a sign of life at the front end."""
    stuck: bool = False
    paused: bool = False
    admits: bool = True
    detokenizer_stuck: bool = False
    chunk_s: float | None = None
    """Where set: what one full chunk takes, whatever `prefill_tps` says."""
    queue: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    heartbeat_at: float = 0.0
    worked_s: float = 0.0
    counters: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("prefill", "cache", "decode", "prompt", "generated"), 1000.0)
    )
    ended: int = 300
    begun: int = 300
    ttft_sum: float = 200.0
    e2e_sum: float = 3000.0
    http_active: int = 0
    speed: float = 0.0
    last_ended_at: float = -1e9
    idle_since: float = 0.0
    _busy: bool = False
    _began: float = 0.0
    _steps: float = 0.0
    _current: Request | None = None
    _waiting: int = 0
    """Prompt tokens of all that wait."""

    def submit(self, request: Request) -> None:
        """Take a request into the queue."""
        request.arrived = self.host.now
        self.queue.append(request)
        self._waiting += request.prompt
        if request.kind != "health":
            self.begun += 1
        self.wake()

    def give_up(self, request: Request) -> None:
        """Whoever made the request does not wait for it any more."""
        request.gone = True
        if request in self.queue:
            self.queue.remove(request)
            self._waiting -= request.prompt

    def wake(self) -> None:
        """Go on, if there is something to do and nothing stands in the way."""
        if self._busy or self.stuck or self.paused or not (self.queue or self.running or self._current):
            return
        self._busy = True
        self._next()

    def tokens(self) -> int:
        """Tokens in the pool."""
        return int(sum(r.prefilled + r.cached + r.decoded for r in self.running))

    def usage(self) -> float:
        return min(1.0, self.tokens() / self.pool)

    def drop_all(self) -> None:
        """Every request is lost (the process died)."""
        self.queue.clear()
        self._waiting = 0
        self.running.clear()
        self._current = None
        self.http_active = 0

    # ---- inside

    def _next(self) -> None:
        if self._current is None and self.queue and self.admits and len(self.running) < self.max_running and self.usage() < 0.95:
            self._current = self.queue.popleft()
            self._waiting -= self._current.prompt
        if self._current is not None:
            self._prefill(self._current)
        elif self.running:
            self._decode()
        else:
            self._busy = False
            self.idle_since = self.host.now

    def _prefill(self, r: Request) -> None:
        left = r.prompt - r.cached - r.prefilled
        size = max(1, min(left, self.chunk)) if self.chunk > 0 else max(1, left)
        cached, pending = r.cached if r.prefilled == 0 else 0, max(0, left - size) + self._waiting
        if not self.line_last:
            self.host.prefill_line(size, cached, pending)
        takes = max(0.03, size / self.prefill_tps if self.chunk_s is None else self.chunk_s * size / max(1, self.chunk))

        def finished() -> None:
            self._worked(takes)
            if self.line_last:
                self.host.prefill_line(size, cached, pending)
            if self.chunk_beats:
                self._output()
            r.prefilled += size
            self.counters["prefill"] += size
            if r.prefilled == size:
                self.counters["cache"] += r.cached
            if r.prefilled + r.cached >= r.prompt:
                self._current = None
                r.first_at = self.host.now
                if r.kind != "health":
                    self.ttft_sum += self.host.now - r.arrived
                self._output()
                r.decoded = 1
                if r.answer <= 1:
                    self._end(r)
                else:
                    self.running.append(r)

        self._after(takes, finished)

    def _decode(self) -> None:
        takes = max(ROUND_S, self.step_s)
        steps = takes / self.step_s
        each = steps * (self.accept or 1.0)

        def finished() -> None:
            self._worked(takes)
            self._steps += steps
            self.speed = each * len(self.running) / takes
            for r in list(self.running):
                r.decoded += each
                self.counters["decode"] += each
                if r.decoded >= r.answer or r.gone:
                    self.running.remove(r)
                    self._end(r)
            self._output()
            if self._steps >= 40:
                self._steps = 0
                self.host.decode_line(self.speed)

        self._after(takes, finished)

    def busy_s(self) -> float:
        """Seconds of work until now, the step in hand among them."""
        return self.worked_s + (self.host.now - self._began if self._busy and not self.stuck else 0.0)

    def _after(self, takes: float, finished: Callable[[], None]) -> None:
        self._began = self.host.now

        def due() -> None:
            if self.stuck or self.paused:
                self._busy = False
                return
            finished()
            self._next()

        self.host.at(self.host.now + takes, due)

    def _worked(self, seconds: float) -> None:
        self.worked_s += seconds

    def _output(self) -> None:
        # A busy scheduler's direct messages count as signs of life, whatever the detokenizer does (SGLang 0.5.23).
        if not self.detokenizer_stuck or self.running:
            self.heartbeat_at = self.host.now

    def _end(self, r: Request) -> None:
        if self.detokenizer_stuck:
            return
        if r.kind != "health":
            self.ended += 1
            self.e2e_sum += self.host.now - r.arrived
            self.counters["prompt"] += r.prompt
            self.counters["generated"] += r.decoded
            self.last_ended_at = self.host.now
        if r.kind == "user":
            self.http_active = max(0, self.http_active - 1)
        if r.done is not None:
            r.done(self.host.now)
