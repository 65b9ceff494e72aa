"""One watched server: its engine, its flight record, and what its sources are told. Only here the state is changed."""

import math
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from watchdog import config
from watchdog.act import redact
from watchdog.act.stop import Stop
from watchdog.clean import without_secrets
from watchdog.clock import Clock
from watchdog.incidents import Incidents
from watchdog.judge.decide import stand_down
from watchdog.judge.engine import Engine, Settings
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.probes import CANARIES
from watchdog.judge.sentence import sentence, worst
from watchdog.judge.verdict import DOUBTS, Condition, Event, Intent, Status
from watchdog.log import get
from watchdog.observation import Acted, Header, Job, Observation, Operator, Probe, Self, Unit
from watchdog.observe.source import Target
from watchdog.recall import Recall, state_file
from watchdog.recorder import Recorder
from watchdog.replay import config_of
from watchdog.state import Saved, boot_id
from watchdog.tally import Tally

PROVEN_S = 30.0
"""Real traffic proves health for so long after a request was seen to end."""
CLOSER_S = 300.0
"""So long after readiness, canaries come at a shorter interval."""
NOTHING_YET = frozenset(
    {"NotServing", "NotStarting", "NotStarted", "NotRunning", "NotSeen", "NotRead", "NotLearned", "NotCounted", "NotAnnounced"}
    | {"NotTold", "NothingSeen", "NoReport", "NoTraffic", "NoHostPool", "NoBaseline", "NoSpeculation"}
)
"""Reasons for which a condition is not known that say no more than that nothing was seen yet. At each change of phase there are
a dozen of them: in the log they would bury what matters."""
DIARY = 200
"""So many remarks are kept."""
FAULT_S = 600.0
"""The same fault of a judge is told again after so long."""


class Remark(msgspec.Struct, frozen=True):
    """One line of the diary: something that was decided or done.

    Attributes:
        t: when, on the daemon's clock.
        what: "intent", "would", "acted", "condition" or "operator".
        text: one sentence.
        reason: CamelCase word, where there is one.
    """

    t: float
    what: str
    text: str
    reason: str = ""


class Watch:
    """One server. `take` is the only way in; `decided` is called with each intent."""

    def __init__(
        self,
        server: config.Server,
        whole: config.Config,
        home: Path,
        clock: Clock,
        decided: Callable[["Watch", float, Intent], None],
        *,
        known: Recall | None = None,
    ) -> None:
        """One for each server.

        Args:
            server: its settings.
            whole: the configuration.
            home: its folder in the state directory.
            clock: the program's clock.
            decided: called with each intent.
            known: what its files remember; None: its state is read now, which blocks.
        """
        self.server = server
        self.clock = clock
        self.home = home
        self.target = Target(server)
        self.log = get(server=server.name, unit=server.unit)
        self.file = state_file(home, clock, server.unit)
        self.saved, trouble = self.file.load() if known is None else (known.saved, known.trouble)
        read = known is None or known.read
        self.unread = None if read else f"a pause or a spent budget may stand in {self.file.path}, which cannot be read yet"
        """Why we may neither restart nor write the state down: what the file remembers is not known, and must not be lost."""
        if not read:
            cure = f"look at the disk of {home}, or at what mounts it"
            self.log.error("state-lost", message=f"{self.unread}: until it is, nothing is restarted; {cure}")
        elif trouble is not None:
            self.log.error("state-lost", message=trouble)
        self.incidents = Incidents(self.saved.incidents)
        self.mode = server.mode or whole.daemon.mode
        self._counted_at = clock.now()
        self.engine = Engine(self._settings(whole), self.saved.ledger, self.saved.learned)
        self.engine.recall(self.saved.ends, clock.now())
        self._ends: object = None
        self.recorder = Recorder(home / "flight", self._header(), whole.record, clock)
        self.latest: dict[type[Observation], Observation] = {}
        self.failed_probes: deque[Probe] = deque(maxlen=20)
        self.last_probes: dict[str, Probe] = {}
        self.diary: deque[Remark] = deque(maxlen=DIARY)
        self.counts: dict[str, int] = {}
        self.tally = Tally()
        self.dirty = False
        self.stop: Stop | None = None
        """The stop that we have ordered, while its job lasts."""
        self._latest_t = -math.inf
        self.faults = 0
        """How often judging itself failed."""
        self._faults_told: dict[str, float] = {}
        self._ill: set[str] = set()
        """The conditions that do not hold."""
        self._unasked = ""
        self._decided = decided
        self._told_to_act = False
        """Whether a person has paused or resumed us in this life of ours."""
        self._stay_paused()

    def _stay_paused(self) -> None:
        """A pause outlives the daemon."""
        if self.saved.paused:
            until, why = self.saved.paused_until, self.saved.pause_reason
            self.take(Operator(t=self.clock.now(), action="pause", until=until, reason=why))

    def remember(self, known: Recall) -> None:
        """Take in what the files remember, which could not be read when we began; what was decided and said since then stays."""
        before, facts, said_since = known.saved, self.engine.facts, self._told_to_act
        self._count()
        before.ledger.go_on(self.engine.ledger)
        for start in facts.learned.starts:
            before.learned.add_start(start)
        learned = facts.learned  # its place is known to others: only what stands in it is changed
        learned.starts, learned.start_s, learned.phases = before.learned.starts, before.learned.start_s, before.learned.phases
        learned.shape = learned.shape or before.learned.shape
        self.incidents.go_on_from(before.incidents)
        now, self.saved = self.saved, before
        self.saved.incidents, self.saved.learned, self.engine.ledger = self.incidents.all, learned, before.ledger
        self.engine.recall(before.ends, self.clock.now())
        self.saved.observed_s += now.observed_s
        if said_since:  # a person's newer word
            self.saved.paused, self.saved.paused_until, self.saved.pause_reason = now.paused, now.paused_until, now.pause_reason
        self.unread = None
        if not said_since:
            self._stay_paused()
        self.dirty = True
        if known.trouble is not None:
            self.log.error("state-lost", message=known.trouble)
        else:
            self.log.info("state-saved", message=f"{self.file.path} has been read, and can be written again")

    def _settings(self, whole: config.Config) -> Settings:
        return Settings(
            judge=self.server.judge,
            restart=self.server.restart,
            dry=self.mode != "act",
            tick_s=whole.daemon.tick_s,
        )

    def _header(self) -> Header:
        return Header(
            server=self.server.name,
            unit=self.server.unit,
            base_url=redact.secrets(self.server.base_url),
            boot_id=boot_id(),
            config=config_of(self.engine.settings),
        )

    def reconfigure(self, server: config.Server, whole: config.Config) -> None:
        """Go on with other settings; what was observed and decided stays."""
        self._count()
        self.server = server
        self.target.server = server
        self.mode = server.mode or whole.daemon.mode
        self.engine.settings = self._settings(whole)
        self.recorder.reconfigure(self._header(), whole.record)

    # ---- observe and judge

    def take(self, x: Observation) -> None:
        """Take in one observation: record it, judge it, hand out what was decided. Raises nothing."""
        try:
            x = self._in_order(without_secrets(x))
            self._remember(x)
            for event in self.engine.observe(x):
                self._event(event)
            if isinstance(x, Unit | Job | Operator | Self | Acted):
                self._tell_sources(x.t)
                self._note_ends()
        except Exception as e:  # noqa: BLE001  # a fault in one judge must not take the sources along
            self._fault(e)

    def _in_order(self, x: Observation) -> Observation:
        """Sources look at the clock a moment before they are heard, and in between another may be: a record never goes back."""
        if x.t < self._latest_t:
            return msgspec.structs.replace(x, t=self._latest_t)
        self._latest_t = x.t
        return x

    def _record(self, x: Observation) -> None:
        """What cannot be written down is judged all the same."""
        try:
            self.recorder.take(x)
        except Exception as e:  # noqa: BLE001
            self._fault(e)

    def _remember(self, x: Observation) -> None:
        self._record(x)
        self.latest[type(x)] = x
        kind = type(x).__name__.lower()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if isinstance(x, Probe) and x.why == "config":
            self._cannot_ask(x.detail or "")
        elif isinstance(x, Probe) and x.outcome != "skipped":
            if x.probe != "health":  # which is asked without a key, too
                self._unasked = ""
            self.last_probes[x.probe] = x
            self.tally.probe(x)
            if x.outcome != "ok":
                self.failed_probes.append(x)
        if isinstance(x, Operator):
            self._operator(x)

    def _cannot_ask(self, why: str) -> None:
        """A key or a certificate that cannot be read is no fault of the server: said once, with its cure."""
        if why != self._unasked:
            self._unasked = why
            self.log.error("source-failed", message=f"the server cannot be asked: {why}", source="endpoint")

    def tick(self) -> None:
        """Judge now, whether or not anything was observed. Raises nothing."""
        now = self.clock.now()
        try:
            for event in self.engine.tick(now):
                self._event(event)
            self._tell_sources(now)
            self._note_ends()
        except Exception as e:  # noqa: BLE001
            self._fault(e)

    def _note_ends(self) -> None:
        """What is newly known of an end is written down: the last lines, which name its cause, may come after it."""
        deaths = self.engine.facts.life.deaths
        last = deaths[-1] if deaths else None
        newest = last and (last.inv, last.t, last.asked, last.mark, last.killed)
        self.dirty = self.dirty or newest != self._ends
        self._ends = newest

    def _fault(self, e: Exception) -> None:
        """A fault of our own while judging: told once in a while, with its place."""
        self.faults += 1
        now = self.clock.now()
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{type(e).__name__} at {Path(last.filename).name}:{last.lineno}"
        if now - self._faults_told.get(where, -FAULT_S) >= FAULT_S:
            self._faults_told[where] = now
            self.log.error(
                "internal-fault", message=f"judging failed ({where}: {e}); this is a fault of sglang-watchdog, please report it"
            )

    def _event(self, event: Event) -> None:
        if event.condition is not None:
            self._condition(event.t, event.condition)
        if event.intent is not None:
            self.dirty = True
            self._decided(self, event.t, event.intent)

    def _condition(self, t: float, c: Condition) -> None:
        was_ill = c.type in self._ill
        (self._ill.add if c.status is Status.FALSE else self._ill.discard)(c.type)
        if c.status is Status.UNKNOWN and c.reason in NOTHING_YET and not was_ill:
            return
        log = self.log.warning if c.status is Status.FALSE else self.log.info
        log(
            "condition",
            message=f"{c.type} is {c.status} ({c.reason}): {c.message}",
            condition=c.type,
            status=str(c.status),
            reason=c.reason,
        )
        if c.status is not Status.UNKNOWN or (c.type, c.reason) in DOUBTS:
            self.note(t, "condition", f"{c.type}: {c.message}", c.reason)

    def _operator(self, x: Operator) -> None:
        self.dirty = True
        self.saved.paused = x.action == "pause" or (self.saved.paused and x.action != "resume")
        self._told_to_act = self._told_to_act or x.action in ("pause", "resume")
        if x.action == "pause":
            self.saved.paused_until, self.saved.pause_reason = x.until, x.reason or ""
        elif x.action == "resume":
            self.saved.paused_until, self.saved.pause_reason = None, ""
        self.note(x.t, "operator", f"{x.action}{f': {x.reason}' if x.reason else ''}")

    def note(self, t: float, what: str, text: str, reason: str = "") -> None:
        """Write into the diary."""
        self.diary.append(Remark(t, what, text, reason))

    def _tell_sources(self, now: float) -> None:
        """What the prober needs to know: whether to ask at all, and how often."""
        f = self.engine.facts
        phase = f.life.phase()
        hold = None
        if f.paused(now):
            hold = "paused"
        elif phase is not Phase.SERVING:
            hold = "starting"
        elif self._traffic_proves(now):
            hold = "traffic"
        target = self.target
        before = (target.hold, target.alone, target.crowded, target.closer)
        target.hold = hold
        target.alone = f.alone()
        target.crowded = f.crowded(now)
        target.args = f.life.server.args if f.life.server is not None else {}
        self.recorder.history = "mid-life" if phase is Phase.SERVING else None
        young = f.life.ready_at is not None and now - f.life.ready_at < CLOSER_S
        target.closer = phase is Phase.SERVING and (
            young or bool(f.probes.first_failed) or f.answers.run is not None or worst(self.engine) is not None
        )
        if (target.hold, target.alone, target.crowded, target.closer) != before:
            target.tell()

    def _traffic_proves(self, now: float) -> bool:
        """Whether requests of users that end say all that a canary could say, but for what they are answered."""
        f = self.engine.facts
        ended = f.work.ended_at
        if not f.work.ends_seen or ended is None or now - ended >= PROVEN_S or f.answers.run is not None:
            return False
        ours, surely = f.probes.last_answer(CANARIES), f.work.surely_ended_at
        if ours is not None and (surely is None or surely < ours):
            return False  # what ended may have been our own canary
        failed = f.probes.first_failed.get("chat")
        return failed is None or ended > failed.ended

    # ---- what others ask

    def sentence(self, *, fresh: bool = False) -> str:
        """How the server is, in one sentence; `fresh`: a start as it is now, not as it was last judged."""
        said = sentence(self.engine, self.clock.now(), fresh=fresh)
        if self.stop is not None and self.engine.facts.life.phase() is Phase.STOPPING:
            return f"{said}, {self.stop.said(self.clock.running())}"
        return said

    def ill(self) -> bool:
        """Whether something that matters does not hold."""
        return worst(self.engine) is not None

    def stand_down(self) -> str | None:
        """Why nothing may be done to the unit now; None if nothing forbids it."""
        return stand_down(self.engine.facts, self.clock.now())

    def observed_s(self) -> float | None:
        """How long we have watched in mode observe, in seconds, without the time in which we did not run; None in other modes."""
        return self.saved.observed_s + self.clock.now() - self._counted_at if self.mode == "observe" else None

    def _count(self) -> None:
        self.saved.observed_s, self._counted_at = self.observed_s() or 0.0, self.clock.now()

    def snapshot_state(self) -> Saved:
        """The state as it is to be written down."""
        self._count()
        self.saved.ledger = self.engine.ledger
        self.saved.learned = self.engine.facts.learned
        self.saved.ends = self.engine.ends(self.clock.now())
        return self.saved
