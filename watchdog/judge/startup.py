"""Starting or stuck? A deadline on progress, not on total time."""

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.sglang.startup import Phase as Step
from watchdog.wording import ago, quoted, span

CPU_BUSY_CORES = 0.5
AFTER_GRAPHS = (Step.GRAPHS, Step.HOST_POOL, Step.WARM_UP, Step.READY)
"""A node without an API tells of no step after these, and says no word when it is ready."""

LATE_S = 60.0
"""A life that had gone on for so long when first seen may have taken steps that nobody told us of."""


def judge(f: Facts, policy: Judging, now: float) -> Verdict:
    """The condition Started."""
    kind = "Started"
    life, start = f.life, f.start
    phase = life.phase()
    if phase is Phase.SERVING:
        how = life.ready_how
        return Verdict(type=kind, status=Status.TRUE, reason="Ready", message=f"Ready: told by {how}.")
    if life.looping(now):
        return Verdict(type=kind, status=Status.FALSE, reason="StartFails", message="The start fails, again and again.")
    if phase is not Phase.STARTING:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotStarting", message=f"The server is {phase.value}.")
    if life.headless and start.step in AFTER_GRAPHS:
        return Verdict(
            type=kind, status=Status.TRUE, reason="Ready", message="All steps that this node tells of are done; it has no API."
        )
    since = life.since if life.since is not None else now
    if life.headless and start.step is None and life.first_seen is not None and life.first_seen - since > LATE_S:
        message = "Whether its start is over is not known: this node has no API, and the steps of its start were not seen."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NoEndpoint", message=message)
    title = start.step.value if start.step else "its first lines"
    back = f.devices.storage.back_at
    last = max(t for t in (start.progress_at, since, f.forgiven_at, life.first_seen, back) if t is not None)
    silence = now - last
    limit = policy.start_silence_s
    learned = f.learned_step_s(title)
    if learned is not None and 3 * learned > limit:
        limit = 3 * learned
    unseen = f.ranks.last is None
    if unseen or (f.ranks.cpu_rate is not None and f.ranks.cpu_rate > CPU_BUSY_CORES * max(1, f.rank_count())):
        limit *= 2
    where = f"{title}{f' {start.bar:.0%}' if start.bar is not None else ''}"
    if life.dying_at is not None:
        return Verdict(type=kind, status=Status.FALSE, reason="StartFails", message=f"The start fails in {where}: {_cause(f)}.")
    if silence < limit:
        eta = f.eta_s(now)
        left = f", about {span(eta)} to go" if eta is not None else ""
        sign = f"last progress {ago(silence)} ({start.progress_by})"
        message = f"Starting{f' for {span(now - since)}' if now - since >= 1 else ''}: {where}{left}; {sign}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="Starting", message=message)
    if not unseen and not f.ranks.begun and start.step is None:
        return _not_begun(f, silence)
    evidence = (
        f"phase {where}",
        f"last progress {ago(silence)}: {start.progress_by}",
        "memory, GPU memory and reading stand still",
        "the unit's processes were not seen" if unseen else "no compiler",
    )
    still = f"no line, no growing memory, no reading{'' if unseen else ', no compiler'}"
    message = f"Stuck in {where} for {span(silence)}: {still}; the last sign: {start.progress_by}."
    call = Call(
        want=Want.RESTART,
        reason="StartStuck",
        message=message,
        severity=Severity.CRITICAL,
        advice="If the next start stops at the same place, look at what the ranks do (`sglang-watchdog setup --stacks` puts "
        "their stacks into the incident's bundle).",
        evidence=evidence,
    )
    return Verdict(type=kind, status=Status.FALSE, reason="StartStuck", message=message, calls=(call,))


def _not_begun(f: Facts, silence: float) -> Verdict:
    """What runs before the server, such as the pull of an image or a download, may work where we do not see it."""
    procs = f.ranks.last.procs if f.ranks.last is not None else []
    there = ", ".join(quoted(x.name, 40) for x in procs[:3]) or "none at all"
    message = f"The server's own process has not come yet, and nothing has moved for {span(silence)}; there is: {there}."
    call = Call(
        want=Want.ALERT,
        reason="StartNotBegun",
        message=message,
        advice="See what runs before the server: the pull of an image, a download, a mount that is waited for. A restart would "
        "begin it anew.",
        evidence=(f"processes of the unit: {there}", f"last progress {ago(silence)}: {f.start.progress_by}"),
    )
    return Verdict(type="Started", status=Status.FALSE, reason=call.reason, message=message, calls=(call,))


def _cause(f: Facts) -> str:
    line = f.life.cause or f.life.dying_line
    return quoted(line.message) if line else "unknown"
