"""Looks whether a life has proved itself, whoever began it, and whether the incident is over; says so, and ends what stood."""

from collections.abc import Callable

from watchdog.judge.verdict import Want
from watchdog.people import People
from watchdog.state import UnderWay
from watchdog.view import verified
from watchdog.watch import Watch
from watchdog.wording import span


class Proving:
    """One for each server.

    Args:
        watch: the server.
        people: who is told; None: nobody.
        follow: takes what followed in an incident, with its moment.
    """

    def __init__(self, watch: Watch, people: People | None, follow: Callable[[float, str], None]) -> None:
        self._watch = watch
        self._people = people
        self._follow = follow
        self._proved: str | None = None
        """The last life that was seen to be verified."""

    def look(self) -> None:
        """Done means verified: a new life, ready, answered, its footprint as announced."""
        watch = self._watch
        order = watch.saved.under_way
        now = watch.clock.now()
        if order is not None and order.stage == "recovery":
            self._look_at_ours(order, now)
            return
        if order is None:
            self._look_at_life(now)
        self._look_at_incident(now)

    def _look_at_ours(self, order: UnderWay, now: float) -> None:
        watch = self._watch
        took_s = now - order.t
        life = watch.engine.facts.life
        if life.inv is not None and life.inv != order.inv and verified(watch):
            self._proved = life.inv
            said = f"{self._said()}; {span(took_s)} after the restart was ordered"
            watch.log.info("verified", message=said, reason=order.reason, invocation=watch.target.inv)
            self._recovered(said)
        elif took_s > watch.server.restart.recover_limit_s:
            said = f"not verified within {span(took_s)} of the restart: {watch.sentence()}"
            watch.log.error("acted", message=said, reason=order.reason, action="restart", result="not-verified")
            if self._people is not None:
                self._people.acted(watch, order.reason, "not-verified", said)
        else:
            return
        watch.note(now, "acted", said, order.reason)
        watch.incidents.done(now, said)
        self._follow(now, said)
        watch.saved.under_way = None
        watch.dirty = True

    def _look_at_life(self, now: float) -> None:
        """A life that no order of ours waits for: systemd or a person has begun it, or it has come late."""
        watch = self._watch
        life, incident = watch.engine.facts.life, watch.incidents.open
        if life.inv is None or life.inv == self._proved or not verified(watch):
            return
        self._proved = life.inv
        met = life.first_seen is not None and life.ready_at is not None and life.ready_at < life.first_seen
        said = self._said(met=met)
        self._recovered(said)
        if met and incident is None:
            return  # it served before we looked: whoever watched it then has said so
        watch.log.info(
            "verified", message=said, reason=None if incident is None else incident.reason, invocation=watch.target.inv
        )
        watch.note(now, "acted", said, "" if incident is None else incident.reason)
        if incident is not None:
            watch.incidents.done(now, said)
            self._follow(now, said)
            watch.dirty = True

    def _said(self, *, met: bool = False) -> str:
        """What is known of the life that has proved itself; `met`: it was ready before we looked, its start was not seen."""
        life, sentence = self._watch.engine.facts.life, self._watch.sentence()
        ready = "" if life.ready_at is None or life.since is None else f", ready after {span(life.ready_at - life.since)}"
        which = "the life that was met" if met else f"a new life{ready}"
        # The sentence may tell of something else, such as that we were blind: beside "verified" that contradicts itself.
        how = f", {sentence}" if sentence.startswith("serving") else ""
        return f"verified: {which}{how}"

    def _recovered(self, said: str) -> None:
        if self._people is not None:
            self._people.recovered(self._watch, said)

    def _look_at_incident(self, now: float) -> None:
        """An incident is over when the server serves again, or a person wants it stopped."""
        watch = self._watch
        if watch.incidents.open is None:
            return
        active = watch.engine.conditions.get("UnitActive")
        stopped = active is not None and active.reason == "StoppedByRequest"
        well = verified(watch) and not self._called_for(now)
        if not watch.incidents.look(now, well=well, stopped=stopped, alerts=set(watch.engine.ledger.alerts)):
            return
        incident = watch.incidents.all[-1]
        said = f"over: {incident.outcome}, {span((incident.ended or now) - incident.begun)} after it began"
        watch.log.info("over", message=said, reason=incident.reason, invocation=watch.target.inv)
        self._recovered(incident.outcome)
        self._follow(now, said)
        watch.dirty = True

    def _called_for(self, now: float) -> bool:
        """Whether something calls for a restart, though one that is held back may not come."""
        try:
            return any(c.want is Want.RESTART for v in self._watch.engine.judge(now) for c in v.calls)
        except Exception:  # noqa: BLE001  # told where the judges are asked on their grid
            return False
