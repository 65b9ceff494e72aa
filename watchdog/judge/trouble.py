"""Lines of the log that tell of trouble without an end: hicache that does not work, NaN, unbalanced memory."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.trouble import Trouble
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.sglang.loglines import Mark
from watchdog.wording import ago, quoted, span

ADVICE: dict[Mark, str] = {
    Mark.HICACHE_TROUBLE: (
        "The hierarchical cache does not do its work: check --hicache-ratio, --hicache-size and the write "
        "policy; a restart repeats it."
    ),
    Mark.NAN: "Read some answers: the model computes not-a-number. Check weights, quantisation and attention back end.",
    Mark.MEMORY_UNBALANCED: "Something else holds GPU memory: look at nvidia-smi.",
}
FADE_S = 3600.0


def judge(f: Facts, now: float) -> Verdict:
    """The condition LogClean."""
    kind = "LogClean"
    lasting = [x for x in f.troubles.told.values() if now - x.last < FADE_S or x.line.mark is Mark.HICACHE_TROUBLE]
    lasting.sort(key=lambda x: x.last, reverse=True)
    life = f.life
    if not lasting and life.looping(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message="The server dies soon after each start.")
    if not lasting and life.dying_line is not None and life.dying_at is not None:
        message = f"The log said {ago(now - life.dying_at)}: {quoted((life.cause or life.dying_line).message, 200)}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="FatalLine", message=message)
    if not lasting and life.phase() is Phase.OFF:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message=f"The server is {life.phase().value}.")
    if not lasting:
        return Verdict(type=kind, status=Status.TRUE, reason="NothingOdd", message="No line of this life tells of trouble.")
    calls = tuple(
        Call(
            want=Want.ALERT,
            reason=_reason(x.line.mark),
            message=_said(x, now),
            severity=Severity.WARNING,
            advice=ADVICE[x.line.mark],
        )
        for x in lasting
    )
    return Verdict(type=kind, status=Status.FALSE, reason=calls[0].reason, message=calls[0].message, calls=calls)


def _said(x: Trouble, now: float) -> str:
    line = quoted(x.line.message, 200)
    if x.last - x.first < 1:  # each rank says it
        return f"The log said {ago(now - x.last)}: {line}."
    return f"The log said it {x.count} times in {span(x.last - x.first)}, the last time {ago(now - x.last)}: {line}."


def _reason(mark: Mark) -> str:
    return "".join(word.capitalize() for word in str(mark).split("-"))
