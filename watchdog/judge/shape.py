"""Has the shape of answers changed, as it does when a deployment gets its parsers wrong? A finding, never a reason to restart."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.shapes import STEADY
from watchdog.judge.text import Shape
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import span


def judge(f: Facts, now: float) -> Verdict:
    """The condition AnswersInShape."""
    kind = "AnswersInShape"
    s = f.shapes
    if len(s.unparted) >= STEADY:
        return _unparted(kind, s.unparted[-1])
    if s.usual is None:
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="NotLearned", message="Too few answers to know their usual shape."
        )
    if not s.changed:
        return Verdict(type=kind, status=Status.TRUE, reason="AsUsual", message=f"Answers have their usual shape: {s.usual}.")
    since, change = s.changed[0][0], s.changed[-1][1]
    if len(s.changed) < STEADY:
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="OddShape", message=f"The last answer had another shape: {change}."
        )
    message = f"Answers have had another shape for {span(now - since)}: {change}."
    advice = "Compare the parsers, the chat template and the model with the deployment before; if it is meant, `acknowledge` it."
    call = Call(want=Want.ALERT, reason="AnswerShapeChanged", message=message, advice=advice, evidence=(change,))
    return Verdict(type=kind, status=Status.FALSE, reason="AnswerShapeChanged", message=message, calls=(call,))


def _unparted(kind: str, shape: Shape) -> Verdict:
    message = f"The model thinks before it answers, and its last {STEADY} answers have no reasoning apart from the text: {shape}."
    call = Call(
        want=Want.ALERT,
        reason="ReasoningNotParted",
        message=message,
        advice=(
            "The reasoning parser does not fit the model or its chat template: check --reasoning-parser and --chat-template. If "
            "this model does not think first, name another profile for its canary."
        ),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="ReasoningNotParted", message=message, calls=(call,))
