"""The shape of the canary's answers: where their parts land. Kept over lives, since it is after a deployment that it changes."""

from collections.abc import Sequence

from msgspec import structs

from watchdog.judge import text
from watchdog.judge.facts.learned import Learned
from watchdog.judge.text import Quality, Shape
from watchdog.observation import Probe

STEADY = 3
"""So many answers in a row that agree make a shape, or a change of it."""


class Shapes:
    """Folds good answers of the chat canary. The usual shape is remembered in what was learned."""

    def __init__(self, learned: Learned) -> None:
        self._learned = learned
        self._candidate: Shape | None = None
        self._agreeing = 0
        self.changed: list[tuple[float, str]] = []
        """The present run of answers that differ from the usual shape, its first ones and the newest: (t, what changed)."""
        self.unparted: list[Shape] = []
        """The present run of answers without reasoning, of a model that reasons first and has its parser."""

    @property
    def usual(self) -> Shape | None:
        """The shape that answers have as a rule; None before enough were seen."""
        return self._learned.shape

    def see(self, o: Probe, served: Sequence[str] = ()) -> None:
        """Take in a chat probe, and the names that are served meanwhile."""
        if o.probe != "chat" or o.outcome != "ok" or o.answer is None:
            return
        if text.grade(o.answer, o.expects).quality is not Quality.GOOD:
            return
        shape = text.shape(o.answer, served[0] if served else None)
        if o.reasons and shape.text and not shape.reasoning and not shape.tool_calls:
            self.unparted = [*self.unparted, shape][-STEADY:]
        else:
            self.unparted.clear()
        if self.usual is None:
            self._learn(shape)
            return
        change = text.drift(self.usual, shape)
        if change is None:
            self.changed.clear()
            if self.usual.served is None and shape.served is not None:
                self._learned.shape = structs.replace(self.usual, served=shape.served)
        else:
            self.changed = [*self.changed[: STEADY - 1], (o.t, change)]

    def _learn(self, shape: Shape) -> None:
        before = self._candidate
        if before is not None and before.served is None:
            before = structs.replace(before, served=shape.served)  # /v1/models is asked later than the first canary
        self._agreeing = self._agreeing + 1 if shape == before else 1
        self._candidate = shape
        if self._agreeing >= STEADY:
            self._learned.shape = shape

    def accept(self) -> None:
        """A person says that the answers are as they should be: learn their shape anew."""
        self._learned.shape = None
        self._candidate, self._agreeing = None, 0
        self.changed.clear()
        self.unparted.clear()
