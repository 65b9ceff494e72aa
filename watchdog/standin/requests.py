"""Requests on the scheduler's side."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from watchdog.standin import model
from watchdog.standin.channel import Message


@dataclass
class Request:
    """One request from its arrival to its end.

    Attributes:
        tokens: what the model still has to say.
        prompt: tokens of the prompt; prefilled: how many of them are done.
        wanted: tokens to generate at most.
        busy: seconds that its prefill takes in one piece, for the long prompts of the fault "busy"; 0 for others.
        health: a probe of /health.
    """

    rid: str
    question: str
    tokens: Iterator[str]
    prompt: int
    wanted: int
    arrived: float
    blocks: list[str] = field(default_factory=list)
    busy: float = 0.0
    health: bool = False
    admitted: bool = False
    prefilled: int = 0
    cached: int = 0
    cached_host: int = 0
    generated: int = 0

    @property
    def to_prefill(self) -> int:
        return self.prompt - self.prefilled

    @property
    def held(self) -> int:
        """Slots of the KV cache that it occupies."""
        return self.prefilled + self.generated


def from_message(message: Message, now: float, fault: str | None) -> Request:
    """The request that a message of the parent asks for."""
    question = str(message.get("question", ""))
    if message.get("ignore_eos") and fault is None:
        tokens = model.never_ending(question)
    else:
        tokens = model.tokens(question, thinks=bool(message.get("thinks")), fault=fault)
    return Request(
        rid=message["rid"],
        question=question,
        tokens=tokens,
        prompt=int(message.get("prompt", 1)),
        wanted=int(message.get("wanted", 1)),
        arrived=now,
        blocks=list(message.get("blocks", ())),
        busy=float(message.get("busy", 0.0)),
        health=bool(message.get("health")),
    )
