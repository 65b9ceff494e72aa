"""What is wrong with a text for people: words that a program left in it, numbers that are none, wrong plurals, endless sentences."""

import re
from collections.abc import Iterator
from typing import Any

from watchdog import config
from watchdog.act.alerts import wording
from watchdog.act.alerts.notice import Item, Message, News
from watchdog.act.scene import Scene
from watchdog.act.summary import summary
from watchdog.clock import FakeClock
from watchdog.judge.engine import Engine
from watchdog.judge.explain import explain, text
from watchdog.judge.sentence import LONGEST, sentence
from watchdog.judge.verdict import Action, Event, Intent, Want
from watchdog.observation import Observation

QUOTED = re.compile(r"“[^“”]*(?:”|…$)|'[^']*'…?")
"""Somebody else's words may be as they like."""
FAULTS = {
    "a word of Python": re.compile(r"\b(?:None|True|False|NoneType)\b|<[a-z_.]+ object|[\[{]“”[:,\]]|\b\w+\(\)"),
    "a number that is none": re.compile(r"(?<![\w-])-?(?:nan|inf)(?!\w)"),
    "one thing in the plural": re.compile(r"(?<![\d.,:/-])(?<!of )\b1 (?!(?:as|is|was|has|s)\b)[A-Za-z-]+s\b(?<!process)"),
    "no time at all": re.compile(r"\b0 (?:s|min|h) ago|\bfor 0 (?:s|min|h)\b"),
    "a span that should be in minutes": re.compile(r"\b\d{3,} s\b(?! of the record)"),
    "nothing in hand": re.compile(r"in hand: 0 running, 0 queued"),
    "two marks": re.compile(r"(?<!\.)\.\.(?!\.)|[,;][,;:]|:[,;]|  "),
}
AGAINST = re.compile(r"\ba restart (?:would (?:only )?lose|loses|changes nothing|repeats|cannot|does not|is (?:no|of no))")
"""Advice that must not stand beside a restart of the same moment: people would not know whom to believe."""
LONGEST_MESSAGE = 420
TOLD_EVERY_S = 60.0


def faults(said: str, longest: int = LONGEST_MESSAGE) -> list[str]:
    """What is wrong with a text, each fault with the place."""
    bare = QUOTED.sub("“”", said)
    found = [f"{name} in {said!r}" for name, pattern in FAULTS.items() if pattern.search(bare)]
    return found + ([f"{len(said)} characters: {said!r}"] if len(said) > longest else [])


class Reader:
    """Reads along while an engine judges: what it says at each event, and how the server is said to be meanwhile."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.latest: dict[type[Observation], Observation] = {}
        self.found: list[str] = []
        self._told = -TOLD_EVERY_S

    def read(self, x: Observation, events: list[Event]) -> None:
        """Take in one observation and what it led to."""
        self.latest[type(x)] = x
        for event in events:
            for said in words_of(event.as_line()):
                self.found += faults(said)
        intents = [e.intent for e in events if e.intent is not None]
        if not events and x.t - self._told < TOLD_EVERY_S:
            return
        self._told = x.t
        if any(i.action is Action.RESTART for i in intents):
            advice = [c.advice for v in self.engine.verdicts for c in v.calls if c.want is not Want.RESTART and c.advice]
            self.found += [f"beside a restart: {a!r}" for a in advice if AGAINST.search(a)]
        self.found += faults(sentence(self.engine, x.t), LONGEST)
        for intent in intents:
            for page in (text(explain(self.engine, x.t)), self._summary(intent, x.t), self._alert(intent)):
                for line in page.splitlines():
                    self.found += faults(line.strip(), 2 * LONGEST_MESSAGE)

    def _summary(self, intent: Intent, t: float) -> str:
        scene = Scene(
            server=config.Server(name="kimi", unit="sglang-kimi.service"),
            intent=intent,
            clock=FakeClock(),
            t=t,
            latest=self.latest,
            conditions=list(self.engine.conditions.values()),
        )
        return summary(scene, {"gpu.txt": 1, "unit.txt": 2048}, {}).partition("## Versions")[0]

    def _alert(self, intent: Intent) -> str:
        if intent.action in (Action.CLEAR, Action.DIAGNOSE):
            return ""
        at = FakeClock().wall(0.0)
        item = Item(
            server="kimi",
            unit="sglang-kimi.service",
            reason=intent.reason,
            news=News.NEW,
            severity=intent.severity,
            actions=[intent.action],
            message=intent.message,
            since=at,
            advice=intent.advice,
            evidence=list(intent.evidence),
            did=wording.DID[intent.action]["act"],
        )
        return wording.text(Message(id="1", host="gpu1", created=at, items=[item]), at)


def words_of(event: dict[str, Any]) -> Iterator[str]:
    """All texts for people in an event."""
    yield event["message"]
    if event["event"] == "intent":
        yield from event["evidence"]
        if event["advice"]:
            yield event["advice"]
