"""All folds of one server side by side, and the one place that hands each observation to those it concerns."""

from watchdog import observation as o
from watchdog.judge.facts.accepted import Accepted
from watchdog.judge.facts.answers import Answers
from watchdog.judge.facts.baseline import Baseline, identity_of
from watchdog.judge.facts.cache_use import CacheUse
from watchdog.judge.facts.devices import Devices
from watchdog.judge.facts.first_tokens import FirstTokens
from watchdog.judge.facts.kills import LATE_S, Kills
from watchdog.judge.facts.learned import Learned
from watchdog.judge.facts.life import DEATHS_OF_CHILDREN, Life, Phase
from watchdog.judge.facts.memory import Memory
from watchdog.judge.facts.names import Names
from watchdog.judge.facts.opened import Opened, load
from watchdog.judge.facts.pause import Pause
from watchdog.judge.facts.prefix import Prefix
from watchdog.judge.facts.probes import CANARIES, Probes
from watchdog.judge.facts.prompts import Prompts
from watchdog.judge.facts.ranks import Ranks
from watchdog.judge.facts.refusals import Refusals
from watchdog.judge.facts.replicas import Replicas
from watchdog.judge.facts.senses import Senses
from watchdog.judge.facts.shapes import Shapes
from watchdog.judge.facts.speed import Speed
from watchdog.judge.facts.start import Start
from watchdog.judge.facts.trouble import KINDS, Troubles
from watchdog.judge.facts.work import Work
from watchdog.sglang import arguments
from watchdog.sglang.loglines import Line, Mark, classify
from watchdog.sglang.marks import ACCESS, DECODE, WORK

SETTLE_S = 600.0
"""What is allocated within so long after readiness belongs to warming up."""
SURVIVED_S = 20.0
"""A server that works so long after a fatal line has outlived it."""
DEEP_S = 0.9
"""A /health that asks the engine is never answered faster than 1 s (http_server.py, 0.4.10 and later)."""
ASKED = ("/health", "/health_generate", "/generate", "/v1/chat/completions", "/v1/completions", "/v1/embeddings")
"""A server that is about to end gives 503 on the first two, and nothing on the others."""


class Facts:
    """The folds of one server, in step with each other."""

    def __init__(self, learned: Learned | None = None, *, mid_life: bool = False) -> None:
        self.learned = learned or Learned()
        self.baseline: Baseline | None = None
        """What a person or a verified life has set as right for this deployment; None in a replay."""
        self.life = Life(mid_life=mid_life)
        self.start = Start()
        self.work = Work()
        self.probes = Probes()
        self.ranks = Ranks()
        self.replicas = Replicas()
        self.answers = Answers()
        self.refusals = Refusals()
        self.pause = Pause()
        self.shapes = Shapes(self.learned)
        self.prefix = Prefix()
        self.names = Names()
        self.accepted = Accepted()
        self.host = ""
        """The machine's name, by which a baseline is known; "" in a replay."""
        self.speed = Speed()
        self.prompts = Prompts()
        self.first_tokens = FirstTokens()
        self.opened = Opened()
        self.cache_use = CacheUse()
        self.memory = Memory()
        self.kills = Kills()
        self.devices = Devices()
        self.senses = Senses()
        self.deed: o.Acted | None = None
        """What last came of an ordered restart."""
        self.forgiven_at: float | None = None
        """Until when silence and failures prove nothing, since we did not run ourselves."""
        self.paused_until: float | None = None
        """Until when a person has paused us; infinity for "until resumed"."""
        self.pause_reason = ""
        self.troubles = Troubles()
        self.metrics_failed_at: float | None = None
        self._usual: tuple[Baseline, o.Server, bool] | None = None

    def see(self, x: o.Observation) -> bool:
        """Take in one observation. True: it is urgent, so judge now.

        What belongs to an earlier life is dropped: it can neither bless nor damn the present one.
        """
        match x:
            case o.Log():
                return self._log(x)
            case o.Probe():
                return self._probe(x)
            case o.Metrics():
                self._metrics(x)
            case o.Gpu():
                stepping = self.work.stepped_at is not None and x.t - self.work.stepped_at < 15.0
                self.devices.see(x, working=stepping and self.work.in_hand(x.t), settled=self._settled(x.t))
                self.start.see_gpu(x, working=self.devices.at_work(x.t))
            case o.Procs():
                return self._procs(x)
            case o.Cgroup():
                if self._present(x):
                    self.memory.see_cgroup(x, settled=self._settled(x.t), ready_at=self.life.ready_at)
                    self.start.see_cgroup(x)
                    self.kills.see_cgroup(x, self.life.inv)
                    self._room(x.t)
            case o.Host():
                self.memory.see_host(x, ready_at=self.life.ready_at)
                self._room(x.t)
            case o.Unit():
                return self._unit(x)
            case o.Job():
                self.life.see_job(x)
                return True
            case o.Self():
                if self.senses.see(x):
                    self._forgive(x.t)
                self._explain_refusal()
            case o.Kernel():
                fact = self.devices.see_kernel(x)
                if fact is not None:
                    self.kills.see_kernel(x.written, fact)
                    if self.life.since is None or x.written >= self.life.since:
                        self.memory.see_kernel(x.written, fact, ready_at=self.life.ready_at)
                    self._explain_death(x.t)
                return True
            case o.Deps():
                self.devices.deps = x.units
            case o.Port():
                self.life.listener.see(x)
                if x.listening is False and self.work.stepped_at is None:
                    self.life.doubt()
                return self.life.port_taken
            case o.Server():
                self.life.see_server(x)
            case o.Acted():
                self.deed = x if x.action == "restart" else self.deed
                self._explain_refusal()
                return True
            case o.Operator():
                self._operator(x)
                return True
            case _:
                pass
        return False

    # ---- one by one

    def _present(self, x: o.Observation) -> bool:
        return x.inv is None or self.life.inv is None or x.inv == self.life.inv

    def _unit(self, x: o.Unit) -> bool:
        before = (
            self.life.inv,
            self.life.unit.active_state if self.life.unit else None,
            self.life.unit.sub_state if self.life.unit else None,
        )
        self.life.see_unit(x)
        self._explain_refusal()
        self._explain_death(x.t)
        if self.life.inv != before[0]:
            self.kills.begin(self.life.inv)
            self._new_life(x.since if x.since is not None else x.t)
        return before != (self.life.inv, x.active_state, x.sub_state)

    def _room(self, t: float) -> None:
        if self.life.active and self.memory.nearly_full():
            self.kills.see_short(t, self.life.inv, self.memory.room() or 0)
        self._explain_death(t)

    def _explain_death(self, t: float) -> None:
        """What tells of the OOM killer may be read somewhat later than the death itself."""
        death = self.life.deaths[-1] if self.life.deaths else None
        if death is None or t - death.t > LATE_S:
            return
        guess = death.code.startswith("killed with status 9") and death.mark in (None, *DEATHS_OF_CHILDREN) and not death.asked
        death.killed = self.kills.said(death.t, death.inv, guess=guess) or death.killed

    def _new_life(self, since: float) -> None:
        for fold in (
            self.work,
            self.probes,
            self.ranks,
            self.replicas,
            self.answers,
            self.refusals,
            self.pause,
            self.prefix,
            self.names,
            self.accepted,
            self.speed,
            self.prompts,
            self.first_tokens,
            self.opened,
            self.cache_use,
            self.memory,
            self.devices,
            self.senses,
        ):
            fold.begin()
        self.start.begin(since)
        self.troubles.begin()

    def _log(self, x: o.Log) -> bool:
        if x.origin == "journald":
            if x.dropped:
                self.senses.lose(x.t, x.dropped)
            return False
        if x.origin == "systemd":
            self.life.see_systemd(x)
            return False
        line = classify(x.message)
        if not self._present(x):
            if line is not None:
                self.life.see_late(x, line)
            return False
        if self.life.ready_at is None:
            self.start.see_line(x, line)
        if line is None:
            if "pdate" in x.message:
                self.pause.see_text(x.written, x.message)
            elif "JIT" in x.message:
                self.ranks.see_text(x.written, x.message)
            return False
        if line.mark in WORK:
            self._working(x.written, line)
            return False
        self._line(x, line)
        # What was written before we looked is judged once what came after it has been read, too.
        return (line.fatal or line.mark in (Mark.READY, Mark.SIGTERM)) and not self.life.before_us(x.written)

    def _working(self, t: float, line: Line) -> None:
        self.senses.hear(t)
        if line.mark is ACCESS:
            self.refusals.see_access(t, line)
            self.pause.see_access(t, line)
            if line.fields.get("status") == 200 and line.text.get("path", "") in ASKED:
                self.life.see_answered(t)
            return
        self._still_serves(t)
        self.life.see_work(t)
        self.work.see_batch(t, line)
        self.replicas.see_batch(t, line)
        self.speed.see_batch(t, line)
        if line.mark is DECODE:
            self.accepted.see_batch(t, line)
        else:
            self.prompts.see_prefill(line)
            self.pause.see_prefill(t, line.fields.get("new_token", 0.0))

    def _line(self, x: o.Log, line: Line) -> None:
        t = x.written
        mark = line.mark
        if mark is Mark.HEALTH_FAILED:
            silence = line.fields.get("silence_s")
            if silence is not None and self.life.since is not None and t - silence >= self.life.since:
                self.work.see_health_failed(t, silence)
        elif mark is Mark.HOST_POOL:
            self.memory.announce(t, line)
        elif mark is Mark.KV_CACHE:
            self.memory.pool.see_kv(line)
        elif mark is Mark.STARTING:
            self.memory.pool.see_sizing(line)
            self.ranks.see_text(t, line.message)
        elif mark is Mark.ARGS and self.life.server is None:
            args = arguments.parse_server_args_line(x.message)
            if args:
                self.life.see_server(o.Server(t=x.t, inv=self.life.inv, args=args))
        elif line.text.get("cause") == "pin-budget":
            self.speed.pin_budget = line.message[:200]
        elif mark is Mark.SHUTDOWN and line.text.get("cause") == "connections":
            self.ranks.closing_at = t
        elif mark is Mark.ABORTED:
            self.troubles.see_aborted(t, line)
        elif mark in KINDS:
            self.troubles.see(t, line)
        self.life.see_line(x, line)

    def _still_serves(self, began: float) -> None:
        """Work that began well after a fatal line shows that the server outlives it."""
        if self.life.dying_at is not None and began > self.life.dying_at + SURVIVED_S:
            self.life.survived()

    def _probe(self, x: o.Probe) -> bool:
        self.refusals.see_asked(x)
        if not self._present(x) or x.outcome == "skipped":
            return False
        if self.forgiven_at is not None and x.t - (x.total_s or 0.0) < self.forgiven_at and x.outcome != "ok":
            return False
        if self.life.port_taken or (self.life.headless and x.outcome != "ok"):
            return False
        self.probes.see(x)
        deep = x.probe in CANARIES or (x.probe == "health" and (x.total_s or 0.0) >= DEEP_S)
        if x.outcome == "ok" and deep:
            self._still_serves(x.t - (x.total_s or 0.0))
        self.refusals.see_probe(x)
        self.pause.see_probe(x)
        was_ready = self.life.ready_at is not None
        self.life.see_probe(x)
        if x.probe == "prefix":
            self.prefix.see(x)
        if x.probe == "models":
            self.names.see(x)
        if x.probe in CANARIES:
            if x.outcome == "ok":
                self.senses.counted_at = x.t
            self.answers.see(x)
            self.shapes.see(x, self.names.served)
            self.speed.see_probe(x, alone=self.alone())
        return x.outcome != "ok" or not was_ready

    def _metrics(self, x: o.Metrics) -> None:
        if not self._present(x):
            return
        if not x.ok:
            self.metrics_failed_at = x.t if x.error != "absent" else self.metrics_failed_at
            return
        self.metrics_failed_at = None
        self.work.see_metrics(x)
        if self.work.scrape_moved_at == x.t:
            self.senses.counted_at = x.t
            self.start.see_work(x.t, "its counters move")
            if self.work.surely_stepped_at is not None:
                self._still_serves(self.work.surely_stepped_at)
        if x.by_rank:
            self.replicas.see_metrics(x)
        self.accepted.see_metrics(x, moving=self.work.scrape_moved_at == x.t)
        self.speed.see_metrics(x)
        self.prompts.see_metrics(x)
        self.cache_use.see(x)
        self.prefix.see_metrics(x)
        self.first_tokens.see(x)
        self.opened.see(x, self.probes)

    def _procs(self, x: o.Procs) -> bool:
        if not self._present(x):
            return False
        if not self.life.active:
            self.ranks.see_left(x)
            return False
        self.ranks.see(x)
        self.kills.see_procs(x, self.life.inv)
        self.memory.see_procs(x, settled=self._settled(x.t), ready_at=self.life.ready_at)
        if self.ranks.compiler_at == x.t:
            self.start.see_compiler(x.t, self.ranks.compiler)
        elif self.ranks.helped_at == x.t:
            self.start.see_helpers(x.t)
        return bool(self.ranks.missing)

    def _operator(self, x: o.Operator) -> None:
        if x.action == "pause":
            self.paused_until = float("inf") if x.until is None else x.until
            self.pause_reason = x.reason or ""
        elif x.action == "resume":
            self.paused_until = None
        elif x.action == "acknowledge":
            self.shapes.accept()
        elif x.action == "repaired":
            self.devices.repaired()
            self.life.deaths.clear()

    def _explain_refusal(self) -> None:
        """A restart was refused for what is known to be missing: that is told, and once it is back, nothing is left to tell."""
        last, unit = self.senses.last, self.life.unit
        missing = last is not None and (last.may_restart is False or last.bus_ok is False)
        unloaded = unit is not None and unit.load_state not in (None, "loaded")
        if self.deed is not None and self.deed.result == "refused" and (missing or unloaded):
            self.deed = None

    def _forgive(self, t: float) -> None:
        """We did not run: whatever was late meanwhile was late for us."""
        self.forgiven_at = t
        self.probes.begin()
        self.work.forgive(t)
        self.replicas.forgive(t)
        self.answers.errors.clear()

    def _settled(self, t: float) -> bool:
        ready = self.life.ready_at
        return ready is not None and t - ready > SETTLE_S and self.life.phase() is Phase.SERVING

    # ---- what judges ask of several folds at once

    def rank_count(self) -> int:
        """How many scheduler processes there should be here; at least 1."""
        return max(1, arguments.ranks_here(self.life.server.args)) if self.life.server is not None else 1

    def alone(self) -> bool:
        """Whether at most our own request was in the engine when it was last heard of."""
        running = self.work.figure("num_running_reqs", "running")
        queue = self.work.figure("num_queue_reqs", "queue")
        return (running or 0.0) <= 1 and not queue

    def crowded(self, now: float) -> bool:
        """Whether requests wait, or were turned away within the last two minutes."""
        full = self.probes.queue_full_at is not None and now - self.probes.queue_full_at < 120.0
        return full or bool(self.work.figure("num_queue_reqs", "queue")) or self.work.turned_away.of_late(now)[0] > 0

    def metrics_fail(self, now: float) -> bool:
        """Whether scrapes fail at the moment, though the endpoint is there."""
        return self.metrics_failed_at is not None and now - self.metrics_failed_at < 60.0

    def paused(self, now: float) -> bool:
        """Whether a person has paused us."""
        return self.paused_until is not None and now < self.paused_until

    def doing(self, now: float) -> str:
        """What the server does, as a phrase."""
        running = self.work.figure("num_running_reqs", "running")
        queue = self.work.figure("num_queue_reqs", "queue")
        if running is None:
            return "Load unknown"
        if not self.work.in_hand(now) or (not running and not queue and (self.work.only_probed() or self._batch_over())):
            return "Idle"
        doing = f"{running:.0f} running" if running else "busy with a prompt"
        return doing + (f", {queue:.0f} waiting" if queue else "")

    def _batch_over(self) -> bool:
        """Whether the newest batch line tells of requests that have ended since."""
        good = self.probes.last_ok.get("chat")
        tokens = good.probe.answer.prompt_tokens if good is not None and good.probe.answer is not None else None
        return self.work.over(good.ended if good is not None else None, tokens or 0)

    def load(self) -> str:
        """How many requests the server has, as a phrase: "3 running, 5 queued"."""
        return load(self.work, self.opened.count if self.metrics_failed_at is None else None, self.probes)

    def eta_s(self, now: float) -> float | None:
        """How long the start still takes, from earlier starts; None if nothing is known."""
        if self.learned.start_s is None or self.life.since is None:
            return self.start.eta_s if self.start.step is not None and self.start.eta_s else None
        left = self.learned.start_s - (now - self.life.since)
        return max(0.0, left, self.start.ahead_s(now, self.learned.phases))

    def learned_step_s(self, title: str) -> float | None:
        """How long this phase took in earlier starts, in seconds; None if unknown."""
        return self.learned.phases.get(title)

    def usual(self) -> Baseline | None:
        """The baseline, if it was made for this very deployment; None where there is none or the deployment has changed."""
        known, server = self.baseline, self.life.server
        if known is None or server is None:
            return None
        if self._usual is None or self._usual[0] is not known or self._usual[1] is not server:
            differs = known.identity.differences(identity_of(server.args, server.version, self.host))
            self._usual = (known, server, not differs)
        return known if self._usual[2] else None
