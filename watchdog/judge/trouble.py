"""Lines of the log that tell of trouble without an end: hicache that does not work, NaN, unbalanced memory."""

from collections.abc import Iterator

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.trouble import TRANSFERS, Trouble
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
BEHIND_THE_POOL = ("storage-write", "storage-attach", "prefetch")
STORAGE_ADVICE = (
    "What is behind the host pool, {backend}, does not take or give its pages: look whether that service runs, and at its log, "
    "its space and the network to it. Answers stay right, prefixes are computed anew; a restart of the server does not mend it."
)
FADE_S = 3600.0
TRANSFERS_S = 300.0
"""Transfers that fail must be so dense to be told."""
TRANSFERS_FADE_S = 600.0
TRANSFERS_ADVICE = (
    "Look at the servers on the other side (prefill or decode), and at the network and its devices between them: a restart of "
    "this one seldom helps."
)


def judge(f: Facts, now: float) -> Verdict:
    """The condition LogClean."""
    kind = "LogClean"
    calls = (*_transfers(f, now), *_lines(f, now))
    if calls:
        return Verdict(type=kind, status=Status.FALSE, reason=calls[0].reason, message=calls[0].message, calls=calls)
    life = f.life
    if life.looping(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message="The server dies soon after each start.")
    if life.dying_line is not None and life.dying_at is not None:
        message = f"The log said {ago(now - life.dying_at)}: {quoted((life.cause or life.dying_line).message, 200)}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="FatalLine", message=message)
    if life.phase() is Phase.OFF:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message=f"The server is {life.phase().value}.")
    return Verdict(type=kind, status=Status.TRUE, reason="NothingOdd", message="No line of this life tells of trouble.")


def _transfers(f: Facts, now: float) -> Iterator[Call]:
    """Requests that fail because nothing comes from the server that computes the other half of them."""
    times = f.troubles.transfers
    if len(times) == TRANSFERS and times[-1] - times[0] <= TRANSFERS_S and now - times[-1] < TRANSFERS_FADE_S:
        message = f"Requests fail as their KV cache is not transferred between servers, the last {ago(now - times[-1])}."
        yield Call(want=Want.ALERT, reason="TransfersFail", message=message, severity=Severity.WARNING, advice=TRANSFERS_ADVICE)


def _lines(f: Facts, now: float) -> Iterator[Call]:
    """Each kind of trouble that lasts, the newest first."""
    for x in sorted(f.troubles.told.values(), key=lambda x: x.last, reverse=True):
        mark = x.line.mark
        if now - x.last < FADE_S or mark is Mark.HICACHE_TROUBLE:
            message = _said(x, now)
            advice = _advice(f, x)
            yield Call(want=Want.ALERT, reason=_reason(mark), message=message, severity=Severity.WARNING, advice=advice)


def _advice(f: Facts, x: Trouble) -> str:
    if x.line.mark is Mark.HICACHE_TROUBLE and x.line.text.get("cause", "") in BEHIND_THE_POOL:
        backend = f.life.arg("hicache_storage_backend")
        return STORAGE_ADVICE.format(backend=f"the storage back end {backend}" if backend else "its storage back end")
    return ADVICE[x.line.mark]


def _said(x: Trouble, now: float) -> str:
    line = quoted(x.line.message, 200)
    if x.last - x.first < 1:  # each rank says it
        return f"The log said {ago(now - x.last)}: {line}."
    return f"The log said it {x.count} times in {span(x.last - x.first)}, the last time {ago(now - x.last)}: {line}."


def _reason(mark: Mark) -> str:
    return "".join(word.capitalize() for word in str(mark).split("-"))
