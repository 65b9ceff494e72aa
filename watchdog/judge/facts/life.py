"""The unit's present life: which incarnation, in which phase, who asked for what, and how earlier lives ended."""

from collections import deque
from enum import StrEnum

from watchdog.judge.facts.deaths import CAUSES, Death, Deaths, order, raised
from watchdog.judge.facts.listener import Listener
from watchdog.judge.facts.orders import Orders
from watchdog.observation import Job, Log, Probe, Server, Unit
from watchdog.sglang.loglines import Line, Mark
from watchdog.sglang.version import at_least

MID_LIFE_S = 3600.0
"""A unit that was up for so long when first seen is taken to have been ready once: no start takes longer."""


class Phase(StrEnum):
    """Where the unit is in its life."""

    OFF = "off"
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPING = "stopping"
    UNKNOWN = "unknown"


ANNOUNCED = (Mark.SIGQUIT, Mark.CHILD_DEAD, Mark.WATCHDOG_FIRED, Mark.EXCEPTION, Mark.DYING, Mark.WARMUP_FAILED)
DEATHS_OF_CHILDREN = (Mark.CHILD_DEAD, Mark.SIGQUIT)
ENDS_S = 100.0
"""SGLang sleeps, dumps and waits up to 76 s with its port open before it ends after a child's death (0.5.13 and
later, measured)."""
JOBS_THAT_STOP = ("stop", "restart", "try-restart")

ASKED_S = 3.0
"""/health is 503 at once while the server starts or drains; so late a 503, without a word, has waited for the engine (0.4.10 and
later)."""
ASSUMED = "it had been up for long when first seen"
DRAIN_TOLD_S = 12.0
"""A server that drains says so every 5 s, and answers no /health with 200 (http_server.py, tokenizer_manager.py)."""
UNCAUGHT = "exited with status 1"  # how Python ends after an exception that nobody caught
TRACEBACK_S = 5.0
"""The last line of a traceback that comes so soon after a fatal line names its cause."""
HEALTH_WAITS = "0.4.10"
"""From this version on /health is 503 until the server is ready. Before it is 200 as soon as the port is open (0.4.6)."""
WARM_UP_S = 720.0
"""The warm-up ends within so long of the open port, or ends the server: 120 s for the first answer, 600 s for its request."""
GAVE_UP = "Start request repeated too quickly"
"""What PID 1 says when the start limit is hit; the unit's Result= can still be that of its last end (systemd 252)."""
LIMIT_S = 2.0
"""What systemd tells of one moment (a job, a line of PID 1) can come in any order, so far apart."""
LOOP_S = 60.0
"""Three starts that died within so long are a loop: to tell of each turn would say nothing."""


class Life:
    """Folds what is known of the unit. Everything that belongs to one incarnation is forgotten with it."""

    def __init__(self, *, mid_life: bool = False) -> None:
        self._mid_life = mid_life
        self.unit: Unit | None = None
        self.server: Server | None = None
        self.deaths = Deaths()
        self._unseen = 0
        """How many lives systemd says that it started between the present one and the one seen before it."""
        self._unplaced: deque[tuple[str | None, float, Line]] = deque(maxlen=8)
        """Lines of lives that systemd has not told of yet: which life, when written, the line."""
        self.inv: str | None = None
        self.job: str | None = None
        """A job on the unit that is neither ours nor systemd's own, while it runs."""
        self._job_of: str | None = None
        self.our_job = False
        self.ended_by_us: str | None = None
        """The life that a job of ours ends, also once that job is over: its end may be seen after it."""
        self.stop_asked_at: float | None = None
        """Since when somebody wants the unit stopped (or restarted); None if nobody does."""
        self.asked_by = ""
        self.auto_restart_at: float | None = None
        self.stopping_since: float | None = None
        self.listener = Listener()
        self.orders = Orders()
        self.first_seen: float | None = None
        self.down_since: float | None = None
        """Since when systemd holds the unit inactive or failed."""
        self._begin(None, None)

    def _begin(self, inv: str | None, since: float | None) -> None:
        """A new incarnation."""
        self.inv = inv
        self.since = since
        self.ready_at: float | None = None
        self.ready_how = ""
        self._told_ready = False
        """Whether its ready line was read, or a request was answered."""
        self._health_told = False
        """Whether all that told of its readiness is an answer to /health."""
        self.answered = False
        """Whether anything ever answered us in this life, whatever it said."""
        self.doubted = False
        """Whether readiness was assumed of it, and then doubted."""
        self.sigterm_at: float | None = None
        self._drain_told_at: float | None = None
        self.dying_at: float | None = None
        """The first fatal line of this life: from here on it may be mute and end by itself."""
        self.dying_line: Line | None = None
        self.cause: Line | None = None
        self._raised: tuple[float, Line] | None = None
        """The last line of the newest traceback, and when it was written."""
        self.end_announced = False
        """Whether SGLang itself said that it is about to end, as it does when it notices a child's death."""
        self.ended = False
        self.gave_up_at: float | None = None
        """When PID 1 said that systemd's start limit is hit."""
        self.server = None

    # ---- folding

    def see_unit(self, o: Unit) -> None:
        """Take in systemd's view."""
        if self.first_seen is None:
            self.first_seen = o.t
            # A job that was there before us is told before the unit: the life that it is about is only known now.
            self._job_of = o.inv
            if self.our_job and o.active_state == "deactivating":
                self.ended_by_us = o.inv
        before = self.unit
        self.unit = o
        if o.inv is not None and o.inv != self.inv:
            if before is not None and self.inv is not None:
                self._end(o.t, before)
                self._unseen = max(0, (o.n_restarts or 0) - (before.n_restarts or 0) - 1)
            self._begin(o.inv, o.since if o.since is not None else o.t)
        if o.since is not None and o.active_state in ("activating", "active"):
            self.since = o.since
        first = before is None and o.active_state == "active" and not self.ready_at
        if first and o.since is not None and (self._mid_life or o.t - o.since > MID_LIFE_S):
            self.ready_at, self.ready_how = o.since, ASSUMED
        if before is None:
            self.ended = self.down or self.deaths.of(o.inv) is not None  # before we looked: who wanted it is not known
        elif _over(o) and self.inv is not None and not self.ended:
            self._end(o.t, o)
            if self.job is not None and self._job_of != self.inv:
                self.job = None  # the life that it has brought is over: its end was missed
        if o.sub_state == "auto-restart":
            self.auto_restart_at = o.t
        if not self.down:
            self.down_since = None
        elif self.down_since is None:
            self.down_since = o.t
        self.orders.see_unit(o, quiet=self.ours or self.ready_at is None)
        if o.active_state != "deactivating":
            self.stopping_since = None
        elif self.stopping_since is None:
            self.stopping_since = o.t
            if o.main_pid is not None and o.result == "success" and self.stop_asked_at is None and not self.ours:
                # What systemd ends while it lives was to be stopped: whatever it ends for a fault has that fault as its result.
                self.stop_asked_at, self.asked_by = o.t, "a stop that was under way"
        if self.job in JOBS_THAT_STOP and o.inv != self._job_of and o.active_state in ("active", "activating"):
            self.stop_asked_at = None  # what was to be stopped has ended; what came after it was not asked to
            if o.active_state == "active":
                self.job = None  # it has brought a new life that is up: its end was missed
        if o.active_state in ("active", "activating") and o.sub_state != "auto-restart" and self.job is None:
            self.stop_asked_at = None
        if o.active_state == "active":
            # A job that has brought the unit up is over. Its end may be missed: a reload makes the source that would tell anew.
            self.our_job = self.our_job and o.inv in (None, self.ended_by_us)
            self.job = None if self.job == "start" else self.job

    def see_job(self, o: Job) -> None:
        """Take in a job on the unit."""
        if o.mine:
            self.our_job = o.phase == "new"
            if self.our_job:
                self.ended_by_us = self.inv
            elif o.result not in ("done", None):
                self.ended_by_us = None
            return
        if o.phase == "removed":
            self.job = None
            if self.orders.over(o, self.inv):
                self.stop_asked_at = None  # whoever ordered a restart wants it up
            return
        waits = self.unit is not None and self.unit.sub_state == "auto-restart"
        just_scheduled = self.auto_restart_at is not None and o.t - self.auto_restart_at < 2.0
        gives_up = self.gave_up_at is not None and o.t - self.gave_up_at < LIMIT_S and o.job == "stop"
        if o.auto or o.job in ("verify-active", "nop", "reload") or (waits and just_scheduled) or gives_up:
            return
        self.job = o.job
        self._job_of = self.inv
        self.orders.begun(o, self.inv)
        if o.job in JOBS_THAT_STOP:
            self.stop_asked_at = o.t
            self.asked_by = f"a {o.job} job"
        elif o.job == "start":
            self.stop_asked_at = None

    def see_systemd(self, o: Log) -> None:
        """Take in a line of PID 1 about the unit."""
        self.orders.see_systemd(o)
        if o.message.startswith("Stopping ") and o.inv in (None, self.inv) and self.stop_asked_at is None and not self.our_job:
            self.stop_asked_at = o.written
            self.asked_by = "a stop job"
        elif "Scheduled restart job" in o.message:
            self.auto_restart_at = o.written
        elif GAVE_UP in o.message and o.inv in (None, self.inv):
            self.gave_up_at = o.written
            asked = self.stop_asked_at
            if asked is not None and self.asked_by == "a stop job" and abs(o.written - asked) < LIMIT_S:
                self.stop_asked_at = None  # the stop was systemd's own: it gave up
                if self.deaths and self.deaths[-1].t >= asked:
                    self.deaths[-1].asked = False

    def see_line(self, o: Log, line: Line) -> None:
        """Take in a marked line of the server, other than those of its work."""
        other = o.inv is not None and self.inv is not None and o.inv != self.inv
        if other and (self.unit is None or self.unit.inv == self.inv):
            return
        mark = line.mark
        if mark is Mark.READY:
            self.see_answered(o.written)
            if self.dying_at is None:
                self.ready_at, self.ready_how, self._told_ready = o.written, "its ready line", True
        elif mark is Mark.SIGTERM:
            self.sigterm_at = self._drain_told_at = o.written
        elif mark in (Mark.DRAINING, Mark.HEALTH_DRAINING):
            self._drain_told_at = o.written
            self.sigterm_at = self.sigterm_at or o.written  # what tells of the signal itself may have been missed
        elif line.fatal or mark in (Mark.SIGQUIT, Mark.DYING):
            if self.ready_at is not None and self.before_us(o.written + ENDS_S):
                return  # it was to end long before we looked, and is up: whether it serves is for the present to show
            if self.dying_at is None:
                self.dying_at, self.dying_line = o.written, line
            self.end_announced = self.end_announced or mark in ANNOUNCED
            self._blame(line)
        elif self.dying_at is not None and mark in CAUSES and o.written - self.dying_at <= TRACEBACK_S:
            self._blame(line)
        elif raised(line):
            self._raised = (o.written, line)
            self._blame_raised()

    def _blame_raised(self) -> None:
        """An exception that nobody catches ends the main process with status 1, and says no more than its traceback."""
        if self.ended and self._raised and (death := self.deaths.of(self.inv)):
            self._last_words(death, *self._raised)

    def _blame(self, line: Line) -> None:
        """Keep the line that names the cause best; the first of its kind."""
        if self.cause is None or order(line.mark) < order(self.cause.mark):
            self.cause = line
        if self.ended and (death := self.deaths.of(self.inv)):
            death.blame(line)

    def see_late(self, o: Log, line: Line) -> None:
        """Take in a line of another life: it comes after systemd told of its end, or before it told of its beginning."""
        death = next((d for d in reversed(self.deaths) if d.inv == o.inv), None)
        if death is not None:
            self._last_words(death, o.written, line)
        elif line.fatal or raised(line):
            self._unplaced.append((o.inv, o.written, line))

    @staticmethod
    def _last_words(death: Death, t: float, line: Line) -> None:
        uncaught = raised(line) and death.code == UNCAUGHT and abs(death.t - t) <= TRACEBACK_S
        if line.fatal or uncaught:
            death.blame(line)

    def see_probe(self, o: Probe) -> None:
        """An answer of the API tells that this life is ready, and that it does not drain."""
        self._disprove_drain(o)
        if o.inv == self.inv and o.outcome in ("ok", "status", "malformed"):
            self.answered = True
        if o.inv != self.inv or not self.active or self.port_taken or self.dying_at is not None:
            return
        tells = o.outcome == "ok" and o.probe in ("health", "chat", "ready")
        self._told_ready = self._told_ready or (tells and o.probe != "health")
        if self.ready_at is not None:
            return
        if tells:
            self.ready_at, self.ready_how, self._health_told = o.t, f"its answer to {o.probe}", o.probe == "health"
        elif o.probe == "health" and o.status == 503 and not o.body and (o.total_s or 0.0) >= ASKED_S:
            self.ready_at, self.ready_how = o.t, "a /health that asked its engine in vain"

    def _disprove_drain(self, o: Probe) -> None:
        """A line about a SIGTERM may be no more than a user's text in the log."""
        told = self._drain_told_at
        if self.sigterm_at is None or told is None or o.inv != self.inv or self.stop_asked_at is not None:
            return
        if o.probe == "health" and o.outcome == "ok" and o.t - (o.total_s or 0.0) > told + DRAIN_TOLD_S:
            self.sigterm_at = self._drain_told_at = None

    def before_us(self, t: float) -> bool:
        """Whether this was before the unit was first looked at."""
        return self.first_seen is not None and t < self.first_seen

    def see_answered(self, t: float) -> None:
        """The log says that it answers, or is ready: long after a fatal line, it has outlived it."""
        if self.dying_at is not None and t > self.dying_at + ENDS_S:
            self.survived()

    def survived(self) -> None:
        """It serves on after a fatal line: the line was not about its life."""
        self.dying_at, self.dying_line, self.cause, self.end_announced = None, None, None, False

    def doubt(self) -> None:
        """Nobody listens on its port and no work of it was ever seen: that it was ready once was only assumed."""
        if self.ready_how == ASSUMED and not self.answered:
            self.ready_at, self.ready_how, self.doubted = None, "", True

    def see_work(self, t: float) -> None:
        """It works: wherever it listens, it is ready."""
        if self.doubted and self.ready_at is None:
            self.ready_at, self.ready_how = t, "its batches"

    def see_server(self, o: Server) -> None:
        """Take in what the engine says of itself."""
        if o.inv == self.inv or self.inv is None:
            self.server = o

    def _end(self, t: float, unit: Unit) -> None:
        if self.ended:
            return
        self.ended = True
        by_job = self.stop_asked_at is not None or self.ours
        asked = by_job or (self.sigterm_at is not None and self.dying_at is None)
        code = f"{unit.exec_main_code or 'exited'} with status {unit.exec_main_status}"
        if unit.result == "oom-kill":
            code = "oom-kill"
        elif unit.result == "timeout" and self.ready_at is None:
            code = "start timeout"
        cause = self.cause
        death = Death(
            t=t,
            lived_s=None if self.since is None else max(0.0, t - self.since),
            ready=self.surely_ready(t),
            served_s=None if self.ready_at is None else max(0.0, t - self.ready_at),
            asked=asked,
            signalled=asked and not by_job,
            code=code,
            mark=cause.mark if cause else None,
            text=cause.message if cause else "",
            inv=self.inv,
        )
        self.deaths.add(death, self._unseen)
        self._unseen = 0
        for inv, written, line in self._unplaced:
            if inv == self.inv:
                self._last_words(death, written, line)
        self._blame_raised()

    # ---- what others ask

    @property
    def proven(self) -> bool:
        """True once the API of this very life has answered as only a ready server does, or its ready line was read."""
        return self._told_ready or (self._health_told and self._health_waits() is not False)

    def surely_ready(self, t: float) -> bool:
        """Whether it was ready by the moment `t`, and had not merely opened its port for its warm-up."""
        if self.ready_at is None:
            return False
        port_only = self._health_told and not self._told_ready and self._health_waits() is not True
        return not port_only or t - self.ready_at > WARM_UP_S

    def _health_waits(self) -> bool | None:
        """Whether this version's /health waits for readiness; None where the version is not known."""
        return at_least(self.server.version if self.server is not None else None, HEALTH_WAITS)

    @property
    def active(self) -> bool:
        """Whether systemd holds the unit active, on its way there, or on its way down."""
        return self.unit is not None and self.unit.active_state in ("active", "activating", "reloading", "deactivating")

    @property
    def down(self) -> bool:
        """Whether the unit is inactive or failed, and nothing of systemd's own brings it back."""
        return self.unit is not None and self.unit.active_state in ("inactive", "failed")

    @property
    def limited(self) -> bool:
        """Whether systemd has given up because of its start limit."""
        return self.gave_up_at is not None or (self.unit is not None and self.unit.result == "start-limit-hit")

    def looping(self, now: float) -> bool:
        """Whether its starts die one after another, and fast; systemd still goes on with them."""
        if self.down or self.ready_at is not None or self.stop_asked_at is not None or self.ours:
            return False
        early = self.deaths.early()
        return len(early) >= 3 and now - early[-3].t < LOOP_S

    @property
    def ours(self) -> bool:
        """Whether a job of ours ends this life, or has ended it."""
        return self.our_job or (self.inv is not None and self.inv == self.ended_by_us)

    @property
    def in_transit(self) -> bool:
        """Whether systemd is at work on the unit by itself: auto-restart, start-*, stop-*."""
        if self.unit is None:
            return False
        sub = self.unit.sub_state or ""
        return (
            self.unit.active_state in ("deactivating",)
            or sub.startswith(("auto-restart", "stop", "final"))
            or (self.unit.active_state == "activating" and sub.startswith(("start-pre", "auto-restart")))
        )

    @property
    def port_taken(self) -> bool:
        """Whether somebody outside the unit listens on the server's port."""
        return self.listener.stranger is not None

    @property
    def headless(self) -> bool:
        """Whether this node has no API of its own: rank 1 and later of several (server_args.py, --node-rank)."""
        return (self.number("node_rank") or 0) > 0

    def phase(self) -> Phase:
        """Where the unit is in its life now."""
        u = self.unit
        if u is None or u.active_state is None:
            return Phase.UNKNOWN
        if u.active_state == "deactivating":
            return Phase.STOPPING
        if u.active_state in ("inactive", "failed") or (u.sub_state or "").startswith("auto-restart"):
            return Phase.OFF
        if self.sigterm_at is not None or (self.stop_asked_at is not None and self.job in JOBS_THAT_STOP):
            return Phase.DRAINING
        return Phase.SERVING if self.ready_at is not None else Phase.STARTING

    def disaggregated(self) -> bool:
        """Whether prompts and answers are computed by different servers: then requests wait and end elsewhere."""
        return self.arg("disaggregation_mode", "null") not in (None, "null", "")

    def arg(self, name: str, default: object = None) -> object:
        """A launch argument of this life, as far as it is known."""
        return default if self.server is None else self.server.args.get(name, default)

    def number(self, name: str) -> float | None:
        """A numeric launch argument of this life; None if unknown."""
        value = self.arg(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _over(unit: Unit) -> bool:
    """Whether the main process of the life is gone, whatever systemd does next."""
    return (
        unit.active_state in ("inactive", "failed")
        or unit.sub_state == "auto-restart"
        or (unit.active_state == "deactivating" and unit.main_pid is None)
    )
