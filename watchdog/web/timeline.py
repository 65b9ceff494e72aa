"""A day of one server: when its phase and its conditions changed, and what was decided.

Kept while the page is served, also on disk: what was seen before the daemon's last start is shown too, and that nobody looked
in between.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from watchdog.act import redact
from watchdog.clock import Clock, rfc3339
from watchdog.watch import Remark, Watch

VERSION = 1
DAY_S = 86400.0
WEEK_S = 7 * DAY_S
MOST = 400
"""So many changes of one row are kept; a row that flaps more shows its newest ones."""
ROWS = 64
REMARKS = 200
WORD_CAP = 80
MESSAGE_CAP = 300
NOBODY = "NotWatched"
GUESSES = {"starting": ("unknown",), "serving": ("unknown", "starting")}
"""What a phase was taken for until its beginning was known: a life that goes on is read back from the journal."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """From `t` (the daemon's clock; in a file: Unix time) on, a row of the timeline shows `value`."""

    t: float
    value: str
    reason: str = ""
    message: str = ""


class Kept(msgspec.Struct, kw_only=True):
    """A timeline in a file; all moments are Unix seconds.

    Attributes:
        seen: when it was written: until then somebody looked.
        diary: what was decided and done, without what was only seen.
    """

    version: int = VERSION
    seen: float
    phases: list[Change] = []
    conditions: dict[str, list[Change]] = {}
    diary: list[Remark] = []


class Timeline:
    """The rows of one server: its phase, and each of its conditions.

    Attributes:
        past: the diary of the daemons before this one.
    """

    def __init__(self) -> None:
        self.begun: float | None = None
        self.phases: deque[Change] = deque(maxlen=MOST)
        self.conditions: dict[str, deque[Change]] = {}
        self.past: list[Remark] = []

    def look(self, watch: Watch) -> None:
        """Note what is different from the last look. Cheap: called at each tick of the daemon."""
        now = watch.clock.now()
        if self.begun is None:
            self.begun = now
        self._look_at_phase(watch, now)
        for c in watch.engine.conditions.values():
            row = self.conditions.get(c.type)
            if row is None:
                if len(self.conditions) >= ROWS:
                    continue
                row = self.conditions[c.type] = deque(maxlen=MOST)
            if not row or row[-1].value != str(c.status) or row[-1].reason != c.reason:
                same = bool(row) and row[-1].value == str(c.status)
                t = now if same else max(c.since, row[-1].t) if row else c.since
                row.append(Change(t, str(c.status), c.reason[:WORD_CAP], redact.line(c.message, MESSAGE_CAP)))
        for row in (self.phases, *self.conditions.values()):
            while len(row) > 1 and row[1].t < now - DAY_S:
                row.popleft()

    def _look_at_phase(self, watch: Watch, now: float) -> None:
        """A life that was under way before anybody looked began when systemd says so."""
        life = watch.engine.facts.life
        phase = life.phase().value
        if self.phases and self.phases[-1].value == phase:
            return
        guesses = GUESSES.get(phase, ())
        begun = life.ready_at if phase == "serving" else life.since
        begun = begun if guesses and begun is not None else now
        while self.phases and self.phases[-1].value in guesses and begun <= self.phases[-1].t:
            self.phases.pop()
        last = self.phases[-1] if self.phases else None
        if last is None or last.value != phase:
            t = begun if last is None else max(begun, last.t) if last.value in guesses else now
            self.phases.append(Change(t, phase))

    def view(self, watch: Watch) -> dict[str, Any]:
        """The rows with wall-clock times (RFC 3339), for the API."""

        def shown(c: Change) -> dict[str, str]:
            words = {"at": at(watch.clock, c.t), "value": c.value, "reason": c.reason, "message": c.message}
            return {name: word for name, word in words.items() if word}

        return {
            "from_at": at(watch.clock, self.begun) if self.begun is not None else None,
            "phases": [shown(c) for c in self.phases],
            "conditions": {kind: [shown(c) for c in row] for kind, row in self.conditions.items()},
        }

    # ---- from one daemon to the next

    def kept(self, watch: Watch) -> Kept:
        """What the next daemon is to know."""
        shift = watch.clock.origin.timestamp()
        diary = [*self.past, *(r for r in watch.diary if r.what != "condition")]
        return Kept(
            seen=watch.clock.now() + shift,
            phases=_shifted(self.phases, shift),
            conditions={kind: _shifted(row, shift) for kind, row in self.conditions.items()},
            diary=[msgspec.structs.replace(r, t=r.t + shift) for r in diary[-REMARKS:]],
        )

    def restore(self, kept: Kept, clock: Clock) -> None:
        """Put what was kept in front of what has been seen since; a clock that was set back cannot bring the future."""
        shift, now = -clock.origin.timestamp(), clock.now()
        seen = min(kept.seen + shift, now)
        begin = now - DAY_S
        if seen < begin:
            return
        nobody = "The watchdog did not run, or did not serve this page."
        self.phases = _joined(_shifted(kept.phases, shift), self.phases, Change(seen, "unknown", NOBODY, nobody))
        for kind, row in list(kept.conditions.items())[:ROWS]:
            gap = Change(seen, "Unknown", NOBODY, nobody)
            self.conditions[kind] = _joined(_shifted(row, shift), self.conditions.get(kind, ()), gap)
        diary = (msgspec.structs.replace(r, t=r.t + shift) for r in kept.diary[-REMARKS:])
        self.past = [r for r in diary if now - WEEK_S <= r.t <= seen]
        starts = [row[0].t for row in (self.phases, *self.conditions.values()) if row]
        self.begun = max(begin, min(starts, default=seen))


def at(clock: Clock, t: float) -> str:
    """A moment as RFC 3339."""
    return rfc3339(clock.wall(t))


def _shifted(row: Iterable[Change], seconds: float) -> list[Change]:
    return [msgspec.structs.replace(c, t=c.t + seconds) for c in row]


def _joined(old: Iterable[Change], new: Iterable[Change], gap: Change) -> deque[Change]:
    """The old row, the gap, and the new one: what goes on from before the gap fills it."""
    row = [msgspec.structs.replace(c, t=max(c.t, gap.t - DAY_S)) for c in old if c.t <= gap.t] + [gap]
    for c in new:
        while row and c.t <= row[-1].t and row[-1] is gap:
            row.pop()
        if not row or (row[-1].value, row[-1].reason) != (c.value, c.reason):
            row.append(msgspec.structs.replace(c, t=max(c.t, gap.t)))
    return deque(row, maxlen=MOST)
