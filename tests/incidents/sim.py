"""A small simulation of an SGLang server under systemd, as the watchdog's sources see it: all signals move together.

`Sim` holds the clock and the engine and emits observations; faults are callbacks at a moment (`at`). Deterministic by seed.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.incidents import wording
from tests.incidents.engine import Engine, Request
from tests.incidents.looks import Looks
from watchdog import observation as o

MAIN = 4000


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What kind of server it is, and how it is looked at."""

    version: str = "0.5.23"
    ranks: int = 8
    dp: int = 1
    nnodes: int = 1
    node_rank: int = 0
    metrics: bool = True
    metrics_gap_s: float = 10.0
    gpu: bool = True
    procs: bool = True
    logs: bool = True
    probes: bool = True
    spec: bool = True
    hicache: bool = True
    watchdog_s: float = 300.0
    rate: float = 0.4
    """Requests of users a second."""
    prompts: tuple[int, int] = (300, 4000)
    answers: tuple[int, int] = (40, 500)
    chunk: int = 8192
    chunk_s: float | None = None
    step_s: float = 0.022
    max_running: int = 48
    health_gap_s: float = 15.0
    chat_s: float = 60.0
    chat_limit_s: float = 60.0
    shallow_health: bool = False
    mid_life: bool = True
    since: float = -40_000.0
    restart_policy: str = "on-failure"
    restart_s: float = 30.0
    burst: int = 5
    tz_h: int = 0
    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    start: dict[str, float] = field(default_factory=dict)
    expects: str | None = None
    proc_scale: float = 1.0
    config: dict[str, Any] = field(default_factory=dict)


START = {"imports": 30.0, "init": 8.0, "weights": 110.0, "pool": 3.0, "graphs": 40.0, "host": 80.0, "warmup": 9.0}


class Sim:
    """One server, one run."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self.setup = setup
        self.rng = random.Random(seed)
        self.now = 0.0
        self.out: list[o.Observation] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.engine = Engine(self, self.rng, accept=2.7 if setup.spec else None, chunk=setup.chunk, chunk_s=setup.chunk_s)
        self.engine.step_s, self.engine.max_running = setup.step_s, setup.max_running
        self.engine.line_last = wording.number(setup.version) >= (0, 5, 20)
        self.engine.chunk_beats = self.rng.random() < 0.5
        self.inv: str | None = f"{self.rng.getrandbits(128):032x}"
        self.looks = Looks(self)
        self.lives = 0
        self.pid = MAIN
        self.ready = False
        self.draining = False
        self.unhealthy = False
        self.listening = False
        self.frozen = False
        self.mute = False
        self.start_killed = False
        self.rate = setup.rate
        self.starts: list[float] = []
        self.unit: dict[str, Any] = {}
        self.lose: Callable[[str], bool] = lambda _line: False
        """Which log lines are lost."""
        self.away = False
        """Whether the watchdog itself does not run."""
        self.after_start: Callable[[], None] = lambda: None
        if setup.mid_life:
            self.ready = self.listening = True
            self._unit("active", "running", main_pid=self.pid, since=setup.since)
            self.looks.loaded()
        else:
            self.inv = None
            self._unit("inactive", "dead", main_pid=None, since=None)
        self.looks.begin()
        self._arrive()

    # ---- time

    def at(self, t: float, act: Callable[[], None]) -> None:
        """Do `act` at the moment `t`."""
        self._count += 1
        heapq.heappush(self._heap, (t, self._count, act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(self.now + seconds, act)

    def run(self, until: float) -> list[o.Observation]:
        """All that was observed until then."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        return self.out

    def emit(self, kind: type[o.Observation], **fields: Any) -> None:
        """Write an observation down, unless the watchdog itself is away."""
        if not self.away:
            self.out.append(kind(t=round(self.now, 3), **fields))

    def clock(self, t: float) -> str:
        """Local time of day as the server prints it."""
        s = int(2 * 3600 + t + self.setup.tz_h * 3600) % 86400
        return f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}"

    # ---- log

    def log(self, text: str, rank: str | None = None) -> None:
        """One line of the server; rank "bare": without a prefix."""
        line = text if rank == "bare" else f"[2026-01-14 {self.clock(self.now)}{' ' + rank if rank else ''}] {text}"
        if self.setup.logs and not self.lose(line):
            self.emit(o.Log, inv=self.inv, message=line, pid=self.pid, ident="python3", priority=6)

    def systemd(self, text: str) -> None:
        if self.setup.logs:
            self.emit(o.Log, inv=self.inv, message=text, pid=1, ident="systemd", priority=5, origin="systemd")

    def exception(self, error: str, ranks: int | None = None) -> None:
        """What a scheduler prints when it dies of an exception."""
        for i in range(ranks or self.setup.ranks):
            rank = f"TP{i}" if self.setup.ranks > 1 else None
            self.log("Scheduler hit an exception: Traceback (most recent call last):", rank)
            for line in wording.traceback(error):
                self.log(line, "bare")

    def _rank0(self) -> str | None:
        return "TP0" if self.setup.ranks > 1 else None

    def prefill_line(self, new: int, cached: int, pending: int) -> None:
        e = self.engine
        self.log(
            wording.prefill(
                self.setup.version,
                new=new,
                cached=cached,
                usage=e.usage(),
                running=len(e.running),
                queue=len(e.queue),
                pending=pending,
            ),
            self._rank0(),
        )

    def decode_line(self, speed: float) -> None:
        e = self.engine
        accept = None if e.accept is None else max(1.0, e.accept + (self.rng.uniform(-0.12, 0.12) if e.accept > 1 else 0.0))
        self.looks.decoded(accept, speed)
        self.log(
            wording.decode(
                self.setup.version,
                running=len(e.running),
                tokens=e.tokens(),
                usage=e.usage(),
                accept=accept,
                speed=speed,
                queue=len(e.queue),
            ),
            self._rank0(),
        )

    # ---- users

    def _arrive(self) -> None:
        if self.rate <= 0:
            self.after(5.0, self._arrive)
            return
        self.after(self.rng.expovariate(self.rate), self._arrive)
        if self.ready and self.listening and not self.frozen and not self.draining:
            self.user()

    def user(self, prompt: int | None = None, answer: int | None = None) -> Request:
        """A request of a user arrives."""
        s = self.setup
        prompt = prompt or self.rng.randint(*s.prompts)
        request = Request(
            prompt=prompt, answer=answer or self.rng.randint(*s.answers), cached=int(prompt * self.rng.choice((0, 0.3, 0.6)))
        )
        peer = f"10.0.{self.rng.randint(0, 2)}.{self.rng.randint(5, 39)}:{self.rng.randint(33000, 60000)}"
        line = wording.access(peer, "POST", "/v1/chat/completions", 200)
        self.engine.http_active += 1
        if self.rng.random() < 0.7:
            self.after(0.05, lambda: self.log(line))  # streamed: said when the answer begins, before its first token
        else:
            request.done = lambda _t: self.log(line)
        self.engine.submit(request)
        return request

    # ---- the unit

    def _unit(self, active: str, sub: str, **changes: Any) -> None:
        s = self.setup
        base = {
            "load_state": "loaded",
            "result": "success",
            "main_pid": None,
            "exec_main_status": 0,
            "exec_main_code": None,
            "n_restarts": 0,
            "since": None,
            "start_limit_burst": s.burst,
            "start_limit_interval_s": 3600.0,
            "restart": s.restart_policy,
            "timeout_start_s": 90.0,
            "timeout_stop_s": 180.0,
            "watchdog_s": 0.0,
        }
        self.unit = {**base, **self.unit, "active_state": active, "sub_state": sub, **changes}
        self.tell_unit()

    def tell_unit(self) -> None:
        self.emit(o.Unit, inv=self.inv, **self.unit)

    def job(self, phase: str, job: str, result: str | None = None, *, mine: bool = False) -> None:
        self.emit(o.Job, inv=self.inv, phase=phase, job=job, result=result, mine=mine)

    def boot(self, *, job: str | None = "start", **die: Any) -> None:
        """A new life begins; `die` and `stuck` as in `_load`."""
        if job:
            self.job("new", job)
        self.lives += 1
        self.inv = f"{self.rng.getrandbits(128):032x}"
        self.pid = MAIN + 100 * self.lives
        self.ready = self.draining = self.unhealthy = self.listening = self.mute = self.frozen = False
        self.starts.append(self.now)
        self.engine.drop_all()
        self.engine.stuck = self.engine.paused = self.engine.detokenizer_stuck = False
        self.engine.admits, self.engine._busy = True, False
        self.looks.begin_life()
        self.systemd("Started sglang-kimi.service - SGLang server (kimi-k2.5).")
        self._unit(
            "active",
            "running",
            main_pid=self.pid,
            since=round(self.now, 3),
            result="success",
            exec_main_code=None,
            exec_main_status=0,
        )
        if job:
            self.job("removed", job, "done")
        self.after(0.3, self.looks.look_port)
        self.after(2.0, self.looks.look_server)
        self._load(**die)

    def _load(
        self,
        *,
        stuck: str | None = None,
        die: str | None = None,
        last_words: Callable[[], None] = lambda: None,
        status: int = 9,
        code: str = "killed",
    ) -> None:
        """The steps of a start. `stuck`: nothing more after the first line of that step; `die`: the end comes then instead."""
        times = {**START, **self.setup.start}
        life = self.lives
        began = self.now
        self.looks.loading(times)
        for seconds, step, rank, text in wording.start(
            self.setup.version, ranks=self.setup.ranks, hicache=self.setup.hicache, times=times
        ):
            if step == die:
                self.at(began + seconds, self._dies_starting(life, last_words, code, status))
                return
            if step == "ready":
                self.at(began + seconds, self._becomes_ready(life))
                continue
            if text.startswith("INFO:     Uvicorn"):
                self.at(began + seconds, self._listens(life))
            self.at(began + seconds, self._says(life, text, rank))
            if step == stuck:
                self.looks.freeze_growth(began + seconds)
                return

    def _says(self, life: int, text: str, rank: str | None) -> Callable[[], None]:
        return lambda: self.log(text, rank) if self.lives == life and not self.start_killed else None

    def _listens(self, life: int) -> Callable[[], None]:
        def act() -> None:
            if self.lives == life and not self.start_killed:
                self.listening = True

        return act

    def _becomes_ready(self, life: int) -> Callable[[], None]:
        def act() -> None:
            if self.lives == life and not self.start_killed:
                self.ready = self.listening = True
                self.engine.heartbeat_at = self.now
                self.log(wording.READY)
                self.looks.loaded()
                self.after_start()

        return act

    def _dies_starting(self, life: int, last_words: Callable[[], None], code: str, status: int) -> Callable[[], None]:
        def act() -> None:
            if self.lives == life:
                last_words()
                self.exit(code=code, status=status)

        return act

    def exit(self, *, code: str = "killed", status: int = 9, result: str | None = None, tail_s: float = 14.0) -> None:
        """The main process ends; systemd cleans up, then does what Restart= says."""
        words = {"killed": f"status={status}/KILL", "exited": f"status={status}/{'SUCCESS' if status == 0 else 'FAILURE'}"}
        result = result or ("success" if code == "exited" and status == 0 else "signal" if code == "killed" else "exit-code")
        self.ready = self.listening = False
        self.start_killed = False
        self.lives += 1
        self.engine.stuck = True
        self.engine.drop_all()
        self.looks.died()
        self.systemd(f"sglang-kimi.service: Main process exited, code={code}, {words[code]}")
        self._unit("deactivating", "stop-sigterm", main_pid=None, exec_main_code=code, exec_main_status=status, result=result)
        self.after(tail_s, lambda: self._ended(result))

    def _ended(self, result: str) -> None:
        self.looks.emptied()
        again = self.setup.restart_policy == "always" or (self.setup.restart_policy == "on-failure" and result != "success")
        if result == "success":
            self.systemd("sglang-kimi.service: Deactivated successfully.")
        else:
            self.systemd(f"sglang-kimi.service: Failed with result '{result}'.")
        if not again:
            self._unit("inactive" if result == "success" else "failed", "dead" if result == "success" else "failed")
            return
        self._unit("activating", "auto-restart")
        self.after(self.setup.restart_s, self._auto_restart)

    def _auto_restart(self) -> None:
        recent = [t for t in self.starts if t > self.now - 3600.0]
        if len(recent) >= self.setup.burst:
            self.systemd("sglang-kimi.service: Start request repeated too quickly.")
            self.systemd(f"sglang-kimi.service: Failed with result '{self.unit['result']}'.")
            self._unit("failed", "failed", n_restarts=self.unit["n_restarts"] + 1)
            return
        count = self.unit["n_restarts"] + 1
        self.systemd(f"sglang-kimi.service: Scheduled restart job, restart counter is at {count}.")
        self.unit["n_restarts"] = count
        self.boot(job="restart", **self.next_start())

    def next_start(self) -> dict[str, Any]:
        """How the next automatic start goes; scenarios replace this."""
        return {}

    def stop(
        self, job: str = "stop", *, drain_s: float = 10.0, told: bool = True, killed: bool = False, refused: bool = False
    ) -> None:
        """A person stops or restarts the unit.

        Args:
            job: "stop" or "restart".
            drain_s: how long it drains.
            told: False: the job itself was not seen.
            killed: it does not end by itself, and gets SIGKILL.
            refused: the start limit refuses the new start.
        """
        if told:
            self.job("new", job)
            self.systemd("Stopping sglang-kimi.service - SGLang server (kimi-k2.5)...")
        self._unit("deactivating", "stop-sigterm")
        self.draining = True
        self.log(wording.SIGTERM)
        life = self.lives
        for k in range(1, int(drain_s // 5) + 1):
            self.after(
                5.0 * k, self._says(life, f"Gracefully exiting... Remaining number of requests {len(self.engine.running)}.", None)
            )

        def gone() -> None:
            self.ready = self.listening = False
            self.lives += 1
            self.engine.drop_all()
            self.looks.died()
            code: dict[str, Any] = {"exec_main_code": "exited", "exec_main_status": 0}
            if killed:
                self.systemd("sglang-kimi.service: State 'stop-sigterm' timed out. Killing.")
                code = {"exec_main_code": "killed", "exec_main_status": 9, "result": "timeout"}
            self._unit("deactivating", "stop-sigterm", main_pid=None, **code)

        def dead() -> None:
            self.looks.emptied()
            self.systemd("Stopped sglang-kimi.service - SGLang server (kimi-k2.5).")
            self._unit(*(("failed", "failed") if killed else ("inactive", "dead")))
            if refused:
                self.systemd("sglang-kimi.service: Start request repeated too quickly.")
                self.systemd("sglang-kimi.service: Failed with result 'start-limit-hit'.")
                self._unit("failed", "failed", result="start-limit-hit")
                self.job("removed", job, "failed")
            elif job == "restart":
                self.after(0.2, lambda: self.boot(job=None))
                self.after(0.2, lambda: self.job("removed", job, "done"))
            else:
                self.job("removed", job, "done")

        self.after(drain_s, gone)
        self.after(drain_s + 10.0, dead)
