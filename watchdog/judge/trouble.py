"""Lines of the log that tell of trouble without an end: hicache that does not work, NaN, unbalanced memory."""

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.sglang.loglines import Mark
from watchdog.wording import ago, quoted

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
    recent = [
        (t, line)
        for t, line in f.trouble.values()
        if line.mark in ADVICE and (now - t < FADE_S or line.mark is Mark.HICACHE_TROUBLE)
    ]
    life = f.life
    if not recent and life.looping(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message="The server dies soon after each start.")
    if not recent and life.dying_line is not None and life.dying_at is not None:
        message = f"The log said {ago(now - life.dying_at)}: {quoted((life.cause or life.dying_line).message, 200)}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="FatalLine", message=message)
    if not recent and life.phase() is Phase.OFF:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message=f"The server is {life.phase().value}.")
    if not recent:
        return Verdict(type=kind, status=Status.TRUE, reason="NothingOdd", message="No line of this life tells of trouble.")
    t, line = recent[-1]
    message = f"The log said {ago(now - t)}: {quoted(line.message, 200)}."
    call = Call(want=Want.ALERT, reason=_reason(line.mark), message=message, severity=Severity.WARNING, advice=ADVICE[line.mark])
    return Verdict(type=kind, status=Status.FALSE, reason=call.reason, message=message, calls=(call,))


def _reason(mark: Mark) -> str:
    return "".join(word.capitalize() for word in str(mark).split("-"))
