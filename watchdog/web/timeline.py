"""A day of one server in memory: when its phase and its conditions changed. Kept by the daemon while the page is served."""

from collections import deque
from typing import Any

import msgspec

from watchdog.act import redact
from watchdog.watch import Watch

DAY_S = 86400.0
MOST = 400
"""So many changes of one row are kept; a row that flaps more shows its newest ones."""
ROWS = 64
WORD_CAP = 80
MESSAGE_CAP = 300


class Change(msgspec.Struct, frozen=True):
    """From `t` (the daemon's clock) on, a row of the timeline shows `value`."""

    t: float
    value: str
    reason: str = ""
    message: str = ""


class Timeline:
    """The rows of one server: its phase, and each of its conditions."""

    def __init__(self) -> None:
        self.begun: float | None = None
        self.phases: deque[Change] = deque(maxlen=MOST)
        self.conditions: dict[str, deque[Change]] = {}

    def look(self, watch: Watch) -> None:
        """Note what is different from the last look. Cheap: called at each tick of the daemon."""
        now = watch.clock.now()
        if self.begun is None:
            self.begun = now
        life = watch.engine.facts.life
        phase = life.phase().value
        if not self.phases or self.phases[-1].value != phase:
            # What went on before the daemon looked is not known, but a life that was under way began when systemd says so.
            t = life.since if not self.phases and life.since is not None and phase in ("starting", "serving") else now
            self.phases.append(Change(t, phase))
        for c in watch.engine.conditions.values():
            row = self.conditions.get(c.type)
            if row is None:
                if len(self.conditions) >= ROWS:
                    continue
                row = self.conditions[c.type] = deque(maxlen=MOST)
            if not row or row[-1].value != str(c.status) or row[-1].reason != c.reason:
                same = bool(row) and row[-1].value == str(c.status)
                message = redact.line(c.message, MESSAGE_CAP)
                row.append(Change(now if same else c.since, str(c.status), c.reason[:WORD_CAP], message))
        for row in (self.phases, *self.conditions.values()):
            while len(row) > 1 and row[1].t < now - DAY_S:
                row.popleft()

    def view(self, watch: Watch) -> dict[str, Any]:
        """The rows with wall-clock times (RFC 3339), for the API."""

        def at(t: float) -> str:
            return watch.clock.wall(t).isoformat(timespec="milliseconds").replace("+00:00", "Z")

        def shown(c: Change) -> dict[str, str]:
            words = {"at": at(c.t), "value": c.value, "reason": c.reason, "message": c.message}
            return {name: word for name, word in words.items() if word}

        return {
            "from_at": at(self.begun) if self.begun is not None else None,
            "phases": [shown(c) for c in self.phases],
            "conditions": {kind: [shown(c) for c in row] for kind, row in self.conditions.items()},
        }
