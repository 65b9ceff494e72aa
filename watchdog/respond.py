"""Carries out what was decided for one server: evidence first, then the restart, then a word about what came of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from watchdog import config, durable
from watchdog.act import evidence
from watchdog.act.alerts.book import MOOT, PAUSED
from watchdog.act.attempt import Outcome, Terms
from watchdog.act.followed import Followed
from watchdog.act.restart import patience, restart, see_through
from watchdog.act.scene import Scene
from watchdog.act.stop import Stop, engine_left
from watchdog.background import Background
from watchdog.judge.decide import OF_AN_ORDER, barriers
from watchdog.judge.onset import onset
from watchdog.judge.verdict import Action, Intent, Severity, Want
from watchdog.observation import Acted, Procs
from watchdog.people import People
from watchdog.proving import Proving
from watchdog.state import UnderWay
from watchdog.systemd import Bus, SystemdError
from watchdog.view import verified
from watchdog.watch import Watch
from watchdog.wording import NOT_RESTARTED, span
from watchdog.worker import BusyError, Worker, unanswered

EVIDENCE_AGE_S = 120.0
"""Evidence that is no older is not gathered again before a restart."""
REFUSED_EVIDENCE_S = 3600.0
"""Nor is it for so long where the restart was refused and is ordered anew."""
EVIDENCE_OVER_S = 5.0
"""Evidence keeps to its own limit; after so many seconds more it is given up."""
NEW_LIFE = "the unit has begun a new life meanwhile"
RECOVERED = "the server has recovered meanwhile"
RECORD_S = 1800.0
SAVE_LIMIT_S = 10.0
BUS_LOOK_S = 30.0


class Responder:
    """One for each server. At most one collection of evidence and one restart are under way.

    Attributes:
        last_bundle: where the last incident's bundle lies.
        trouble: why the state cannot be written down; None while it can.
    """

    def __init__(
        self,
        watch: Watch,
        bus: Bus,
        whole: config.Config,
        tasks: Background,
        people: People | None = None,
        *,
        denied: Callable[[], None] = lambda: None,
    ) -> None:
        """One for each server.

        Args:
            watch: the server.
            bus: the shared client.
            whole: the configuration.
            tasks: what runs in the background.
            people: who is told; None: nobody.
            denied: called when polkit has refused a restart, before that is told.
        """
        self._watch = watch
        self._home = watch.home / "incidents"
        self._people = people
        self._denied = denied
        self._bus = bus
        self._whole = whole
        self._tasks = tasks
        self._evidence: asyncio.Task[Path | None] | None = None
        self._evidence_at: float | None = None
        self._restart: asyncio.Task[None] | None = None
        self._asked = False
        """Whether systemd has been asked for the restart that is under way, or may have been."""
        self._disk = Worker("state")
        self._writing: asyncio.Task[None] | None = None
        self._order: tuple[float, Intent] | None = None
        """The last decision to restart."""
        self._followed = Followed(watch.clock)
        self._proving = Proving(watch, people, self._follow)
        self._saving = asyncio.Lock()
        self.last_bundle: Path | None = None
        self.trouble: str | None = None
        self.take_over()

    def reconfigure(self, whole: config.Config) -> None:
        """Go on with other settings."""
        self._whole = whole

    def handle(self, t: float, intent: Intent) -> None:
        """Say what was decided, and begin to carry it out if the mode allows it."""
        watch = self._watch
        acts = watch.mode == "act" or intent.action is not Action.RESTART
        say = {Severity.INFO: watch.log.info, Severity.WARNING: watch.log.warning, Severity.CRITICAL: watch.log.error}[
            intent.severity
        ]
        event = "intent" if acts else "would"
        word = str(intent.action) if acts else f"would {intent.action} (mode {watch.mode})"
        advice = f" Advice: {intent.advice}" if intent.advice else ""
        say(
            event,
            message=f"{word}: {intent.message}{advice}",
            action=str(intent.action),
            reason=intent.reason,
            severity=str(intent.severity),
            advice=intent.advice,
            evidence=intent.evidence,
            invocation=watch.target.inv,
            mode=watch.mode,
        )
        watch.note(t, event, f"{word}: {intent.message}", intent.reason)
        since = onset(watch.engine, intent)
        if watch.incidents.decided(t, intent, f"{word} ({intent.reason})", well=verified(watch), since=since):
            self._followed.begin()
        if intent.action in (Action.RESTART, Action.WITHHOLD):
            self._follow(t, f"{word} ({intent.reason}): {intent.message}")
        watch.tally.intent(intent)
        if intent.action is Action.DIAGNOSE:
            self._diagnose(intent, t)
        elif intent.action is Action.RESTART:
            self._order = (t, intent)
            if not acts:
                self._report("dry", intent.reason, f"mode {watch.mode}: nothing was done")
            elif self._restart is None or self._restart.done():
                self._restart = self._tasks.create_task(self._carry_out(intent, t), name=f"restart {watch.server.name}")

    # ---- evidence

    def _diagnose(self, intent: Intent, t: float) -> "asyncio.Task[Path | None]":
        if self._evidence is None or self._evidence.done():
            self._evidence_at = t
            self._evidence = self._tasks.create_task(self._collect(intent, t), name=f"evidence {self._watch.server.name}")
        return self._evidence

    async def _collect(self, intent: Intent, t: float) -> Path | None:
        watch = self._watch
        watch.log.info("evidence", message=f"collecting evidence: {intent.reason}", reason=intent.reason)
        limit = watch.server.restart.evidence_limit_s
        if self._order is not None and self._order[0] == t:
            intent = self._order[1]  # the decision that this evidence belongs to came in the same moment
        try:
            scene = Scene(
                server=watch.server,
                intent=intent,
                clock=watch.clock,
                t=t,
                inv=watch.target.inv,
                latest=dict(watch.latest),
                conditions=list(watch.engine.conditions.values()),
                record=watch.recorder.lines(t - RECORD_S, until=t),
            )
            bundle = await evidence.collect(scene, self._home, limit_s=limit, limits=self._whole.record)
        except Exception as e:  # noqa: BLE001  # evidence is wanted, but nothing may hang on it
            why = f"evidence could not be collected: {e!r}"
            watch.log.error("evidence", message=why, reason=intent.reason)  # noqa: TRY400
            return None
        where = str(bundle.path) if bundle.path else "lost"
        said = f"evidence saved in {bundle.took_s:.1f} s: {where}" if bundle.path else str(bundle.warning)
        say = watch.log.info if bundle.path else watch.log.error
        say("evidence", message=said, reason=intent.reason, bundle=where)
        now = watch.clock.now()
        watch.note(now, "acted", said, intent.reason)
        kept = bundle.name if bundle.path else None
        watch.incidents.done(now, f"evidence saved: {kept}" if kept else said, bundle=kept)
        self.last_bundle = bundle.path
        if bundle.path is not None:
            self._followed.saved(bundle.path, t)
            self._write_down()
        return bundle.path

    def _follow(self, t: float, text: str) -> None:
        """What followed goes into the summaries of the incident's bundles too."""
        self._followed.add(t, text)
        self._write_down()

    def _write_down(self) -> None:
        if self._followed.pending and (self._writing is None or self._writing.done()):
            self._writing = self._tasks.create_task(
                self._followed.write(SAVE_LIMIT_S), name=f"summary of {self._watch.server.name}"
            )

    # ---- restart

    async def _carry_out(self, intent: Intent, t: float) -> None:
        watch = self._watch
        order = UnderWay(t=t, reason=intent.reason, inv=watch.target.inv)
        watch.saved.under_way = order
        down = watch.engine.facts.life.down
        self._asked = False
        await self._to_its_end(order, lambda: self._ordered(intent, order, down=down))

    async def _to_its_end(self, order: UnderWay, work: Callable[[], Awaitable[Outcome]]) -> None:
        """Do what carries the order out. A fault of ours must not end the daemon, nor count where nothing was done."""
        try:
            outcome = await work()
        except Exception as e:  # noqa: BLE001
            fault = f"a fault of the watchdog itself: {type(e).__name__}: {e}"
            failed, dropped = Outcome(result="failed", message=fault), Outcome(result="dropped", message=NOT_RESTARTED + fault)
            outcome = failed if self._asked else dropped
        self._over(order, outcome)
        await self.save()

    async def idle(self) -> None:
        """Wait until no order is being carried out."""
        while self._restart is not None and not self._restart.done():
            await asyncio.wait([self._restart])

    async def _ordered(self, intent: Intent, order: UnderWay, *, down: bool) -> Outcome:
        watch, unread = self._watch, self._watch.unread
        await self.save()  # the order is on disk before anything is done, so that SIGKILL cannot make us forget it
        age_s = EVIDENCE_AGE_S if watch.engine.ledger.refused is None else REFUSED_EVIDENCE_S
        if self._evidence is None or self._evidence_at is None or order.t - self._evidence_at > age_s:
            self._diagnose(intent, order.t)
        assert self._evidence is not None
        await asyncio.wait([self._evidence], timeout=watch.server.restart.evidence_limit_s + EVIDENCE_OVER_S)
        self._evidence.cancel()  # nothing is gathered from a server that is being restarted
        changed = self._no_longer(order.inv)
        if changed is not None:
            return Outcome(result="dropped", message=f"{NOT_RESTARTED}{changed}", stand_down=True)
        if unread is not None:  # the budget that allowed it may be spent
            return Outcome(result="refused", message=f"{NOT_RESTARTED}{unread}")
        order.stage = "job"
        await self.save()

        def forbidden() -> str | None:
            why = self._no_longer(order.inv)
            self._asked = why is None
            return why

        return await restart(
            self._bus,
            watch.server.unit,
            watch.clock,
            self._terms(order),
            inv=order.inv,
            down=down,
            forbidden=forbidden,
            begun=self._remember,
        )

    def _terms(self, order: UnderWay) -> Terms:
        watch = self._watch
        stop_s, kill_s = patience(order.reason, watch.server.restart.stop_limit_s)
        return Terms(
            stop_s=stop_s,
            kill_s=kill_s,
            gone=self._engine_gone(order.inv, watch.clock.now()),
            closing=lambda: watch.engine.facts.life.inv == order.inv and watch.engine.facts.ranks.closing_at is not None,
            may_kill=lambda: watch.mode == "act",
            told=self._stopping,
        )

    def _remember(self, job: str) -> None:
        order = self._watch.saved.under_way
        if order is not None:
            order.job = job
            self._report("begun", order.reason, f"restarting {self._watch.server.unit}")
        self._tasks.create_task(self.save(), name=f"state of {self._watch.server.name}")

    def _engine_gone(self, inv: str | None, since: float) -> Callable[[], bool]:
        """What tells whether no engine process of the life `inv`, which stops since then, is left."""
        watch = self._watch

        def gone() -> bool:
            look, known = watch.latest.get(Procs), watch.engine.facts.ranks.known
            return not engine_left(look if isinstance(look, Procs) else None, known, inv, since)

        return gone

    def _stopping(self, stop: Stop) -> None:
        """The stop that we ordered has begun, or something has changed in it."""
        watch = self._watch
        watch.stop = stop
        if stop.killed_at is not None:
            said = f"SIGKILL: the stop had not ended after {span(stop.killed_at - stop.began)}"
        elif stop.hastened_at is not None:
            said = f"no engine process is left, nothing in flight can end: {stop.end(stop.hastened_at)}"
        else:
            return
        now = watch.clock.now()
        watch.log.warning("acted", message=said, action="restart", result="begun", invocation=watch.target.inv)
        watch.note(now, "acted", said)
        watch.incidents.done(now, said)
        self._follow(now, said)

    def _no_longer(self, inv: str | None) -> str | None:
        """Why the restart is not called for any more, after the time that the evidence took."""
        watch, now = self._watch, self._watch.clock.now()
        engine = watch.engine
        if watch.mode != "act":
            return f"the mode is {watch.mode} by now"
        if watch.target.inv != inv:
            return NEW_LIFE
        calls = [c for v in engine.judge(now) for c in v.calls]
        for barrier in barriers(engine.facts, calls, engine.ledger, watch.server.restart, now):
            if barrier.guard not in OF_AN_ORDER:
                return barrier.why
        if not any(c.want is Want.RESTART for c in calls):
            return RECOVERED
        return None

    def _over(self, order: UnderWay, outcome: Outcome) -> None:
        """The order came to this: forget it, take it back, or wait for the new life to prove itself."""
        watch = self._watch
        watch.stop = None
        if outcome.denied:
            self._denied()
        if outcome.result == "done":
            order.stage, order.job = "recovery", None
        else:
            watch.saved.under_way = None
        watch.dirty = True
        # What a person or the host wants otherwise is no refusal that anybody would have to mend.
        given_up = outcome.stand_down and outcome.result == "refused"
        self._report("dropped" if given_up else outcome.result, order.reason, outcome.message)

    def _report(self, result: str, reason: str, detail: str) -> None:
        watch = self._watch
        watch.tally.restart(reason, result)
        watch.log.warning(
            "acted", message=f"{result}: {detail}", action="restart", reason=reason, result=result, invocation=watch.target.inv
        )
        now = watch.clock.now()
        watch.note(now, "acted", f"restart {result}: {detail}", reason)
        watch.incidents.done(now, f"restart {result}: {detail}", restart=result == "done")
        self._follow(now, f"restart {result}: {detail}")
        watch.take(Acted(t=now, inv=watch.target.inv, action="restart", result=result, reason=reason, detail=detail))
        if self._people is not None:
            self._people.acted(watch, reason, self._to_people(result, detail), detail)

    def _to_people(self, result: str, detail: str) -> str:
        """What was given up is over where the fault was gone; else the fault stands, and people may have to act."""
        if result != "dropped":
            return result
        if detail.endswith((NEW_LIFE, RECOVERED)):
            return MOOT
        return PAUSED if self._watch.engine.facts.paused(self._watch.clock.now()) else result

    def cancel(self) -> None:
        """The server is no longer watched, or the daemon ends: a restart job goes on in systemd, evidence is given up."""
        for task in (self._evidence, self._restart):
            if task is not None:
                task.cancel()

    def look_at_recovery(self) -> None:
        """Done means verified."""
        self._proving.look()

    # ---- after our own end

    def take_over(self) -> None:
        """What the daemon before us left in the middle, as soon as it is known."""
        lasting = self._watch.incidents.open
        for name in lasting.bundles if lasting is not None else ():
            self._followed.saved(self._home / name, self._watch.clock.now())
        order = self._watch.saved.under_way
        if order is None:
            return
        if order.stage == "evidence":
            # Nothing was done to the unit. What called for the restart will call for it again, if it still holds.
            never = "the watchdog ended before anything was done: judged anew"
            self._over(order, Outcome(result="dropped", message=never, stand_down=True))
        elif order.stage == "job" and order.job is not None:
            self._bus.own(order.job, "restart")

    def resume(self) -> None:
        """Begin to see a restart through that the daemon before us had begun."""
        order = self._watch.saved.under_way
        if order is not None and order.stage == "job":
            self._asked = True
            name = f"restart {self._watch.server.name}"
            self._restart = self._tasks.create_task(self._to_its_end(order, lambda: self._see_through(order)), name=name)

    async def _see_through(self, order: UnderWay) -> Outcome:
        watch = self._watch
        while True:
            if not await self._bus.until_connected(BUS_LOOK_S):
                continue
            terms = self._terms(order)
            try:
                outcome = await see_through(self._bus, watch.server.unit, watch.clock, terms, order.job, inv=order.inv)
            except SystemdError:
                await asyncio.sleep(1.0)
                continue
            never = "the watchdog ended before systemd was asked: judged anew"
            return outcome or Outcome(result="dropped", message=never, stand_down=True)

    async def save(self) -> None:
        """Write the state down; a disk that does not take it is told, and nothing waits for it longer than `SAVE_LIMIT_S`."""
        watch = self._watch
        if watch.unread is not None:
            self.trouble = watch.unread
            return
        why = None
        async with self._saving:
            data = watch.file.encode(watch.snapshot_state())
            watch.dirty = False
            try:
                await self._disk.call(lambda: watch.file.write(data), SAVE_LIMIT_S)
            except (TimeoutError, BusyError) as e:
                why = unanswered(e)
            except OSError as e:
                why = f"{e.strerror or e}: {durable.mend(watch.file.path, e)}"
        if why is not None and why != self.trouble:
            watch.log.error("state-lost", message=f"{watch.file.path} cannot be written ({why}); it goes on in memory")
        elif why is None and self.trouble is not None:
            watch.log.info("state-saved", message=f"{watch.file.path} can be written again")
        self.trouble = why
