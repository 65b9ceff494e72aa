"""Carries out what was decided for one server: evidence first, then the restart, then a word about what came of it."""

import asyncio
from pathlib import Path

from watchdog import config
from watchdog.act import evidence
from watchdog.act.restart import restart, stop_kill
from watchdog.act.scene import Scene
from watchdog.judge.verdict import Action, Intent, Severity, Want
from watchdog.observation import Acted
from watchdog.systemd import Bus
from watchdog.view import verified
from watchdog.watch import Watch

EVIDENCE_AGE_S = 120.0
"""Evidence that is no older is not gathered again before a restart."""
RECORD_S = 1800.0


class Responder:
    """One for each server. At most one collection of evidence and one restart are under way."""

    def __init__(self, watch: Watch, bus: Bus, whole: config.Config, tasks: asyncio.TaskGroup) -> None:
        self._watch = watch
        self._bus = bus
        self._whole = whole
        self._tasks = tasks
        self._evidence: asyncio.Task[Path | None] | None = None
        self._evidence_at: float | None = None
        self._restart: asyncio.Task[None] | None = None
        self.last_bundle: Path | None = None
        self._recovering: tuple[float, str] | None = None
        """Since when a life that we ordered is to prove itself, and for which reason the one before was ended."""

    def reconfigure(self, whole: config.Config) -> None:
        """Go on with other settings."""
        self._whole = whole

    def handle(self, t: float, intent: Intent) -> None:
        """Say what was decided, and begin to carry it out if the mode allows it."""
        watch = self._watch
        acts = watch.mode == "act" or intent.action not in (Action.RESTART,)
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
        if intent.action is Action.DIAGNOSE:
            self._diagnose(intent, t)
        elif intent.action is Action.RESTART:
            if acts:
                if self._restart is None or self._restart.done():
                    self._restart = self._tasks.create_task(self._carry_out(intent, t))
            else:
                self._report("dry", intent.reason, f"mode {watch.mode}: nothing was done")

    # ---- evidence

    def _diagnose(self, intent: Intent, t: float) -> asyncio.Task[Path | None]:
        if self._evidence is None or self._evidence.done():
            self._evidence_at = t
            self._evidence = self._tasks.create_task(self._collect(intent, t))
        return self._evidence

    async def _collect(self, intent: Intent, t: float) -> Path | None:
        watch = self._watch
        watch.log.info("evidence", message=f"collecting evidence: {intent.reason}", reason=intent.reason)
        scene = Scene(
            server=watch.server,
            intent=intent,
            clock=watch.clock,
            t=t,
            inv=watch.target.inv,
            latest=dict(watch.latest),
            conditions=list(watch.engine.conditions.values()),
            record=watch.recorder.lines(t - RECORD_S),
        )
        limit = watch.server.restart.evidence_limit_s
        try:
            bundle = await evidence.collect(scene, watch.home / "incidents", limit_s=limit, limits=self._whole.record)
        except Exception as e:  # noqa: BLE001  # evidence is wanted, but nothing may hang on it
            watch.log.error("evidence", message=f"evidence could not be collected: {e!r}", reason=intent.reason)
            return None
        where = str(bundle.path) if bundle.path else "memory only"
        said = f"evidence saved in {bundle.took_s:.1f} s: {where}" if bundle.path else str(bundle.warning)
        watch.log.info("evidence", message=said, reason=intent.reason, bundle=where)
        watch.note(watch.clock.now(), "acted", said, intent.reason)
        self.last_bundle = bundle.path
        return bundle.path

    # ---- restart

    async def _carry_out(self, intent: Intent, t: float) -> None:
        watch = self._watch
        inv = watch.target.inv
        down = watch.engine.facts.life.down
        await self.save()  # the order is on disk before anything is done, so that SIGKILL cannot make us forget it
        if self._evidence is None or self._evidence_at is None or t - self._evidence_at > EVIDENCE_AGE_S:
            self._diagnose(intent, t)
        assert self._evidence is not None
        await asyncio.wait([self._evidence], timeout=watch.server.restart.evidence_limit_s + 5.0)
        changed = self._no_longer(intent, inv)
        if changed is not None:
            self._withdraw(intent)
            self._report("dropped", intent.reason, f"not restarted: {changed}")
            await self.save()
            return
        self._report("begun", intent.reason, f"restarting {watch.server.unit}")
        self._recovering = (t, intent.reason)
        outcome = await restart(
            self._bus,
            watch.server.unit,
            watch.clock,
            stop_limit_s=watch.server.restart.stop_limit_s,
            inv=inv,
            down=down,
            begun=self._remember,
        )
        watch.saved.job = None
        if outcome.stand_down:
            self._withdraw(intent)
        if outcome.result != "done":
            self._recovering = None
        self._report(outcome.result, intent.reason, outcome.message)
        await self.save()

    def _remember(self, job: str) -> None:
        self._watch.saved.job = job
        self._watch.dirty = True

    def _no_longer(self, intent: Intent, inv: str | None) -> str | None:
        """Why the restart is not called for any more, after the time that the evidence took."""
        watch = self._watch
        why = watch.stand_down()
        if why is not None:
            return why
        if watch.target.inv != inv:
            return "the unit has begun a new life meanwhile"
        now = watch.clock.now()
        calls = [c for v in watch.engine.judge(now) for c in v.calls]
        if not any(c.want is Want.RESTART for c in calls):
            return "the server has recovered meanwhile"
        if any(c.want is Want.VETO for c in calls):
            return "a restart would not help any more"
        return None

    def _withdraw(self, intent: Intent) -> None:
        """An order that was not carried out does not count."""
        ledger = self._watch.engine.ledger
        if ledger.restarts and ledger.restarts[-1].reason == intent.reason:
            ledger.restarts.pop()
        ledger.condemned, ledger.condemned_at = None, None

    def _report(self, result: str, reason: str, detail: str) -> None:
        watch = self._watch
        watch.log.warning(
            "acted", message=f"{result}: {detail}", action="restart", reason=reason, result=result, invocation=watch.target.inv
        )
        watch.note(watch.clock.now(), "acted", f"restart {result}: {detail}", reason)
        watch.take(
            Acted(t=watch.clock.now(), inv=watch.target.inv, action="restart", result=result, reason=reason, detail=detail)
        )

    def cancel(self) -> None:
        """The daemon ends: a restart job goes on in systemd, evidence is given up."""
        for task in (self._evidence, self._restart):
            if task is not None:
                task.cancel()

    def look_at_recovery(self) -> None:
        """Done means verified: a new life, ready, answered, its footprint as announced."""
        if self._recovering is None:
            return
        since, reason = self._recovering
        watch = self._watch
        now = watch.clock.now()
        life = watch.engine.facts.life
        if life.since is not None and life.since > since - 1.0 and verified(watch):
            took = "" if life.ready_at is None else f", ready after {life.ready_at - life.since:.0f} s"
            said = f"verified: a new life{took}, {watch.sentence()}; {now - since:.0f} s after the restart was ordered"
            watch.log.info("verified", message=said, reason=reason, invocation=watch.target.inv)
            watch.note(now, "acted", said, reason)
            self._recovering = None
        elif now - since > watch.server.restart.recover_limit_s:
            said = f"not verified within {now - since:.0f} s of the restart: {watch.sentence()}"
            watch.log.error("acted", message=said, reason=reason, action="restart", result="not-verified")
            watch.note(now, "acted", said, reason)
            self._recovering = None

    async def resume_job(self) -> None:
        """After our own end in mid-restart: the job goes on in systemd; see that its stop ends, and name what came of it."""
        watch = self._watch
        job = watch.saved.job
        if job is None:
            return
        self._bus.own(job, "restart")
        if not await self._bus.until_connected(30.0):
            return
        await asyncio.sleep(watch.server.restart.stop_limit_s)
        outcome = await stop_kill(self._bus, watch.server.unit, watch.clock)
        if outcome.result != "refused":
            self._report(outcome.result, "Resumed", outcome.message)
        watch.saved.job = None
        watch.dirty = True

    async def save(self) -> None:
        """Write the state down; a disk that does not take it is told, and nothing waits for it."""
        watch = self._watch
        saved = watch.snapshot_state()
        watch.dirty = False
        try:
            watch.file.save(saved)
        except OSError as e:
            watch.log.error(
                "state-lost",
                message=f"{watch.file.path} cannot be written ({e.strerror or e}): free space, or mend its owner and mode",
            )
