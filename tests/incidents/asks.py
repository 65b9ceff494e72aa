"""How the watchdog asks the simulated server: health, readiness, models, the canary and the scrape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.incidents import wording
from tests.incidents.engine import Request
from watchdog import observation as o
from watchdog.judge import text
from watchdog.observe.pace import RARELY_S

MODELS = '{"object":"list","data":[{"id":"kimi-k2.5","object":"model","root":"kimi-k2.5"}]}'
GOOD = ("Paris.", "Paris", "The capital is Paris.")


class Asks:
    """Everything that is asked over HTTP; the fields are those of `Looks`."""

    def _every(self, period: float, act: Callable[[], None], first: float) -> None:
        def again() -> None:
            act()
            self.sim.after(period + self.sim.rng.uniform(-0.05, 0.05), again)

        self.sim.after(first, again)

    # ---- probes

    def _probe(self, probe: str, outcome: str, **fields: Any) -> None:
        self.sim.emit(o.Probe, inv=self.sim.inv, probe=probe, outcome=outcome, **fields)

    def _reach(self, probe: str, limit: float, then: Callable[[], None], again: Callable[[], None]) -> None:
        """Connect; go on with `then` if somebody listens and serves."""
        sim = self.sim
        if self.stranger_port is not None:
            self._probe(
                probe,
                "ok" if probe == "health" else "status",
                status=200 if probe == "health" else 404,
                total_s=0.001,
                limit_s=limit,
            )
            again()
        elif not sim.listening:
            self._probe(probe, "refused", connect_s=0.0003, total_s=0.0008, limit_s=limit)
            sim.after(0.0, self.look_port)
            again()
        elif sim.mute or sim.frozen:
            inv = sim.inv

            def cut() -> None:
                if sim.inv == inv:
                    outcome = "timeout" if sim.listening else "reset"
                    self._probe(probe, outcome, connect_s=0.0003, total_s=limit, limit_s=limit)
                again()

            sim.after(limit, cut)
        else:
            then()

    def ask_health(self) -> None:
        sim, s = self.sim, self.s

        def again() -> None:
            sim.after(s.health_gap_s, self.ask_health)

        def answered(status: int, took: float) -> None:
            outcome = "ok" if status == 200 else "status"
            self.sim.log(wording.access("127.0.0.1:40000", "GET", "/health", status))
            self._probe("health", outcome, status=status, connect_s=0.0003, ttft_s=took, total_s=took, limit_s=25.0, body="")
            again()

        def asked() -> None:
            if self.health_as is not None:
                self._probe("health", **self.health_as())
                again()
            elif sim.draining:
                sim.log("Health check request received during shutdown. Returning 503.")
                answered(503, 0.003)
            elif not sim.ready:
                answered(503 if wording.number(s.version) >= (0, 4, 10) else 200, 0.003)
            elif s.shallow_health:
                answered(200, 0.002)
            else:
                self._generate_health(answered, again)

        self._reach("health", 25.0, asked, again)

    def _generate_health(self, answered: Callable[[int, float], None], again: Callable[[], None]) -> None:
        sim = self.sim
        began, inv = sim.now, sim.inv
        sim.engine.submit(Request(prompt=1, answer=1, kind="health"))

        def poll() -> None:
            if sim.inv != inv or not sim.listening:
                self._probe("health", "reset", connect_s=0.0003, total_s=sim.now - began, limit_s=25.0)
                return again()
            waited = sim.now - began
            if sim.frozen or sim.mute or waited + self.slow_front_s > 25.0:
                if waited < 24.9:
                    sim.after(25.0 - waited, poll)
                    return None
                self._probe("health", "timeout", connect_s=0.0003, total_s=25.0, limit_s=25.0)
                return again()
            if sim.engine.heartbeat_at > began:
                sim.unhealthy = False
                sim.after(self.slow_front_s, lambda: answered(200, waited + self.slow_front_s + 0.001))
            elif waited >= 19.9:
                sim.unhealthy = True
                sim.log(wording.health_failed(sim.clock(began), sim.clock(sim.engine.heartbeat_at)))
                answered(503, waited + 0.01)
            else:
                sim.after(1.0, poll)
            return None

        sim.after(1.0, poll)

    def ask_ready(self) -> None:
        def asked() -> None:
            if self.ready_as is not None:
                self._probe("ready", **self.ready_as())
                return
            bad = not self.sim.ready or self.sim.draining or self.sim.unhealthy or self.sim.engine.paused
            self.sim.log(wording.access("127.0.0.1:40001", "GET", "/ready", 503 if bad else 200))
            status = 503 if bad else 200
            self._probe(
                "ready",
                "status" if bad else "ok",
                status=status,
                connect_s=0.0003,
                ttft_s=0.002,
                total_s=0.002,
                limit_s=5.0,
                body="",
            )

        self._reach("ready", 5.0, asked, lambda: None)

    def ask_models(self) -> None:
        def asked() -> None:
            if self.models_as is not None:
                self._probe("models", **self.models_as())
            elif self.slow_front_s > 5:
                self._probe("models", "timeout", connect_s=0.0003, total_s=5.0, limit_s=5.0)
            else:
                self.sim.log(wording.access("127.0.0.1:40002", "GET", "/v1/models", 200))
                self._probe("models", "ok", status=200, connect_s=0.0003, ttft_s=0.007, total_s=0.007, limit_s=5.0, body=MODELS)

        self._reach("models", 5.0, asked, lambda: None)

    def ask_chat(self) -> None:
        sim, s = self.sim, self.s
        limit = s.chat_limit_s

        def again() -> None:
            sim.after(s.chat_s, self.ask_chat)

        if not sim.ready and sim.unit["active_state"] in ("active", "activating"):
            self._probe("chat", "skipped", why="starting")
            return again()
        proven = s.metrics and sim.now - sim.engine.last_ended_at < s.chat_s and sim.listening and not sim.frozen
        overdue = sim.now - self._asked_at >= max(RARELY_S, s.chat_s) and not sim.engine.queue
        if proven and self.chat_as is None and self._sane and not overdue:
            self._probe("chat", "skipped", why="traffic")
            return again()
        if self._backoff % 2 == 1:
            self._backoff += 1
            self._probe("chat", "skipped", why="backoff")
            return again()

        def asked() -> None:
            if self.chat_as is not None:
                self._probe("chat", limit_s=limit, expects=s.expects, **self.chat_as())
                return again()
            began, inv = sim.now, sim.inv
            self._asked_at = began
            request = Request(prompt=27, answer=4, kind="chat")
            request.done = lambda t: answered(t)
            settled = [False]

            def answered(t: float) -> None:
                if not settled[0] and sim.inv == inv:
                    settled[0] = True
                    self._backoff = 0
                    sim.log(wording.access("127.0.0.1:40003", "POST", "/v1/chat/completions", 200))
                    answer = self.answer()
                    self._sane = text.grade(answer, s.expects).quality in (text.Quality.GOOD, text.Quality.SUSPICIOUS)
                    self._probe(
                        "chat",
                        "ok",
                        status=200,
                        connect_s=0.0003,
                        ttft_s=0.05,
                        total_s=t - began,
                        limit_s=limit,
                        answer=answer,
                        expects=s.expects,
                    )
                    again()

            def late() -> None:
                if not settled[0]:
                    settled[0] = True
                    self.sim.engine.give_up(request)
                    self._backoff += 1
                    if sim.inv == inv and sim.listening:
                        self._probe("chat", "timeout", connect_s=0.0003, total_s=limit, limit_s=limit)
                    again()

            sim.engine.submit(request)
            sim.after(limit, late)
            return None

        self._reach("chat", limit, asked, again)
        return None

    def good_answer(self) -> o.Answer:
        text = self.sim.rng.choice(GOOD)
        return o.Answer(
            text=text,
            finish_reason="stop",
            model="kimi-k2.5",
            prompt_tokens=27,
            cached_tokens=26,
            completion_tokens=3,
            tool_calls=0,
        )

    # ---- scrape

    def decoded(self, accept: float | None, speed: float) -> None:
        """A decode line is printed: only now do the gauges move."""
        self._accept, self._speed = accept, speed
        self._gauges()

    def _gauges(self) -> None:
        e = self.sim.engine
        self._scraped = (len(e.running) + (e._current is not None and e._current.kind != "health"), len(e.queue))

    def scrape(self) -> None:
        sim, e = self.sim, self.sim.engine
        if not self.s.metrics:
            if sim.listening and not (sim.mute or sim.frozen):
                sim.emit(o.Metrics, inv=sim.inv, ok=False, error="status 404")
            else:
                sim.emit(o.Metrics, inv=sim.inv, ok=False, error="refused" if not sim.listening else "timeout")
            return
        fail = self.metrics_fail or (
            "refused" if not sim.listening else "timeout" if sim.mute or sim.frozen or self.slow_front_s > 5 else None
        )
        if fail is not None:
            sim.emit(o.Metrics, inv=sim.inv, ok=False, error=fail)
            return
        if not e.stuck and (e.running or sim.now - e.idle_since > 30.0):
            self._gauges()  # gauges of an idle engine lag by half a minute
        c = e.counters
        running, queue = self._scraped
        values = {
            "num_running_reqs": running,
            "num_queue_reqs": queue,
            "token_usage": round(e.usage(), 3),
            "max_total_num_tokens": e.pool,
            "gen_throughput": round(self._speed, 2),
            "num_requests_total": e.ended,
            "prompt_tokens_total": c["prompt"],
            "generation_tokens_total": c["generated"],
            "time_to_first_token_seconds_count": e.ended,
            "time_to_first_token_seconds_sum": e.ttft_sum,
            "e2e_request_latency_seconds_count": e.ended,
            "e2e_request_latency_seconds_sum": e.e2e_sum,
            "http_requests_active": e.http_active,
            **self.metrics_extra,
        }
        if self._accept is not None:
            values["spec_accept_length"] = round(self._accept, 3)
        if wording.number(self.s.version) >= (0, 5, 7):
            values["realtime_tokens_total"] = c["prefill"] + c["cache"] + c["decode"]
            values["realtime_tokens_total.prefill_compute"] = c["prefill"]
            values["realtime_tokens_total.prefill_cache"] = c["cache"]
            values["realtime_tokens_total.decode"] = c["decode"]
        for name in self.metrics_hide:
            values.pop(name, None)
        sim.emit(o.Metrics, inv=sim.inv, ok=True, values=values)

    # ---- host
