"""Has the shape of answers changed, as it does when a deployment gets its parsers wrong? A finding, never a reason to restart."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.shapes import STEADY
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.wording import span


def judge(f: Facts, now: float) -> Verdict:
    """The condition AnswersInShape."""
    kind = "AnswersInShape"
    s = f.shapes
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
