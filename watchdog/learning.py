"""Learns from one server's lives: how long its starts take, and its baseline, made from a verified life."""

import socket
from typing import Any

import msgspec

from watchdog import durable
from watchdog.baseline import Kept, chosen, compared, completed, learn, present, shown, with_first
from watchdog.clock import rfc3339
from watchdog.judge.facts.baseline import Baseline
from watchdog.judge.facts.learned import OneStart
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Status
from watchdog.recall import Recall, baseline_file
from watchdog.sglang import startup
from watchdog.view import verified
from watchdog.watch import Watch
from watchdog.worker import BusyError, Worker, unanswered

AFTER_S = 300.0
"""A first baseline is made when the server has served for so long, so that memory has settled."""
COMPLETE_S = 600.0
"""What a baseline lacks is looked for so often."""
WRITE_LIMIT_S = 10.0
MUST_HOLD = ("FootprintAsAnnounced", "MemoryHolds", "SpeculationEffective", "DecodeSpeed", "DevicesHealthy")
"""A life in which one of these is False is no model for others."""


class RefusedError(Exception):
    """A baseline cannot be made now; the message says why."""


class Learner:
    """One for each server. `keep` is called every few seconds; the rest are a person's orders."""

    def __init__(self, watch: Watch, host: str | None = None, known: Recall | None = None) -> None:
        """One for each server.

        Args:
            watch: the server.
            host: the name of this host; None: as it calls itself.
            known: what its files remember; None: the baseline is read now, which blocks.
        """
        self._watch = watch
        self._host = host or socket.gethostname()
        self._file = baseline_file(watch.home)
        self._disk = Worker("baseline")
        self._unwritten = False
        self._looked_at = float("-inf")
        watch.engine.facts.host = self._host
        self._remember(*(self._file.load() if known is None else (known.kept, known.wrong)))

    def remember(self, known: Recall) -> None:
        """Take in what could not be read when we began."""
        self._remember(known.kept, known.wrong)

    def _remember(self, kept: Kept, trouble: str | None) -> None:
        self._kept = kept
        self._watch.engine.facts.baseline = chosen(kept, None)
        if trouble is not None:
            self._watch.log.error("baseline-lost", message=trouble)

    async def keep(self) -> None:
        """Learn what this life teaches, and write it down; a disk that does not take it is told, and tried again."""
        if self._watch.unread is not None:
            return
        try:
            self.look()
        except Exception as e:  # noqa: BLE001  # what is learned is a help; whoever calls us has more to keep
            why = f"a fault of the watchdog itself: {type(e).__name__}: {e}"
            self._watch.log.error("baseline-lost", message=why)  # noqa: TRY400
        if not self._unwritten:
            return
        kept = self._kept
        try:
            await self._disk.call(lambda: self._file.save(kept), WRITE_LIMIT_S)
        except (OSError, BusyError) as e:  # TimeoutError is an OSError
            said = unanswered(e)
            if isinstance(e, OSError) and not isinstance(e, TimeoutError):
                said = f"{e.strerror or e}: {durable.mend(self._file.path, e)}"
            self._watch.log.error("baseline-lost", message=f"{self._file.path} cannot be written ({said})")  # noqa: TRY400
        else:
            self._unwritten = self._kept is not kept

    def look(self) -> None:
        """Take in what this life teaches."""
        watch, f = self._watch, self._watch.engine.facts
        self._learn_start()
        here = present(f, self._host)
        if f.baseline is None or here is not None:
            f.baseline = chosen(self._kept, here)
        now = watch.clock.now()
        if here is None or f.life.ready_at is None or now - f.life.ready_at < AFTER_S or self._why_not() is not None:
            return
        if f.baseline is None:
            self._set(learn(f, here, self._stamp(), "first verified life"))
            watch.note(now, "baseline", "a baseline was made from this verified life")
        elif now - self._looked_at >= COMPLETE_S and not f.baseline.identity.differences(here):
            self._looked_at = now
            more = completed(f.baseline, learn(f, f.baseline.identity, f.baseline.made_at, f.baseline.made_by))
            if more is not None:
                self._put(more)

    def _learn_start(self) -> None:
        f = self._watch.engine.facts
        life, took = f.life, f.start.took
        if (
            life.ready_at is None
            or life.since is None
            or life.ready_how != "its ready line"
            or startup.Phase.LAUNCH.value not in took
        ):
            return
        if not f.learned.starts or f.learned.starts[-1].inv != life.inv:
            f.learned.add_start(OneStart(inv=life.inv, total_s=life.ready_at - life.since, phases=dict(took)))
            self._watch.dirty = True

    def _why_not(self) -> str | None:
        """Why this life cannot be a model now; None if it can."""
        watch = self._watch
        if watch.engine.facts.life.phase() is not Phase.SERVING:
            return f"the server is {watch.engine.facts.life.phase().value}"
        if not verified(watch):
            return "this life is not verified (ready, answered, and nothing that matters against it)"
        conditions = watch.engine.conditions
        bad = next((c for kind in MUST_HOLD if (c := conditions.get(kind)) is not None and c.status is Status.FALSE), None)
        if bad is not None:
            return f"{bad.type} does not hold: {bad.message}"
        footprint = conditions.get("FootprintAsAnnounced")
        # A watchdog that has just begun knows of a verified life before it has looked at its memory.
        return footprint.message if footprint is not None and footprint.reason == "NotRead" else None

    # ---- a person's orders

    def accept(self, made_by: str, *, changed_too: bool) -> Baseline:
        """Make the present life the baseline.

        Args:
            made_by: "learn" or "accept".
            changed_too: whether a deployment that differs from the accepted one may become it.

        Raises:
            RefusedError: this life is no model, or it is of a changed deployment.
        """
        f = self._watch.engine.facts
        here, why = present(f, self._host), self._why_not()
        if self._watch.unread is not None:
            why = f"{self._file.path} cannot be read yet"
        if why is not None:
            raise RefusedError(f"no baseline is made: {why}")
        if here is None:
            raise RefusedError("no baseline is made: the server has not told its version and arguments (GET /server_info)")
        known = self._kept.baselines[0] if self._kept.baselines else None
        if not changed_too and known is not None and known.identity.differences(here):
            names = ", ".join(name for name, _, _ in known.identity.differences(here))
            raise RefusedError(f"the deployment has changed ({names}): if that was meant, `sglang-watchdog baseline accept`")
        self._set(learn(f, here, self._stamp(), made_by))
        assert f.baseline is not None
        return f.baseline

    def describe(self) -> dict[str, Any]:
        """The accepted baseline and the present life, for the commands."""
        f = self._watch.engine.facts
        here = present(f, self._host)
        known = chosen(self._kept, here)
        fresh = learn(f, here, "", "") if here is not None else None
        return {
            "server": self._watch.server.name,
            "file": str(self._file.path),
            "baseline": msgspec.to_builtins(known) if known is not None else None,
            "rows": [msgspec.to_builtins(r) for r in shown(known)] if known is not None else [],
            "compared": [msgspec.to_builtins(r) for r in compared(known, fresh)]
            if known is not None and fresh is not None
            else None,
            "others": max(0, len(self._kept.baselines) - 1),
        }

    def _set(self, made: Baseline) -> None:
        self._kept = with_first(self._kept, made)
        self._changed(made)

    def _put(self, more: Baseline) -> None:
        """Put a completed baseline in the place of the one that it completes."""
        known = self._watch.engine.facts.baseline
        self._kept = msgspec.structs.replace(self._kept, baselines=[more if b is known else b for b in self._kept.baselines])
        self._changed(more)

    def _changed(self, made: Baseline) -> None:
        self._kept = Kept(server=self._watch.server.name, baselines=self._kept.baselines)
        self._watch.engine.facts.baseline = made
        self._unwritten = True

    def _stamp(self) -> str:
        return rfc3339(self._watch.clock.wall(self._watch.clock.now()), "seconds")
