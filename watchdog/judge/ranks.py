"""The processes of the server: is every rank still there, does one die and not end, is a compiler at work?"""

from collections.abc import Sequence

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import DEATHS_OF_CHILDREN, ENDS_S, Phase
from watchdog.judge.facts.probes import CANARIES
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.judge.vetoes import oom_advice
from watchdog.observation import Proc
from watchdog.sglang import processes
from watchdog.wording import ago, counted, quoted, span

SPARED_S = 25.0
"""So long after any other fatal line SGLang must have noticed the death by itself (it looks once a second, 0.5.10 and later)."""
SIGKILLED = (-9, 137)
"""Exit codes of a child that got SIGKILL, as Python and a shell tell them."""
DISPROVED_S = 2.0
"""What the engine did so long after a process was first missed, it did not do without it."""
NAMED = 4
"""So many processes are named in a sentence."""


def judge(f: Facts, now: float) -> Verdict:
    """The condition ProcessesPresent."""
    kind = "ProcessesPresent"
    r = f.ranks
    phase = f.life.phase()
    if f.life.looping(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message="The server dies soon after each start.")
    if phase not in (Phase.SERVING, Phase.STARTING):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotRunning", message=f"The server is {phase.value}.")
    dying = _dying(f, now)
    if dying is not None:
        return dying
    if r.last is None:
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="NotSeen", message="The unit's processes have not been looked at yet."
        )
    gone = _gone(f, now)
    absent = _absent(f)
    if not gone and not r.known:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotSeen", message="No engine process was seen yet.")
    stopped = r.stopped(now)
    if stopped and not gone and not absent:
        message = f"Stopped by a signal (state T), so that it does nothing: {_names(stopped)}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="Stopped", message=message)
    if not gone and not absent:
        # How many are to come in a start is not known.
        rest = " so far, none gone" if phase is Phase.STARTING else ", all present"
        return Verdict(
            type=kind,
            status=Status.TRUE,
            reason="AllPresent",
            message=f"{counted(len(r.known), 'engine process', 'engine processes')}{rest}.",
        )
    killed = _killed(f, gone) if gone else None
    names = _names(gone, absent) + (f", {killed}" if killed is not None else "")
    message = f"Gone from the unit while its main process lives on: {names}; nobody will answer for it."
    replicas = f.life.arg("dp_size", 1) not in (1, None) and not f.life.arg("enable_dp_attention")
    # Without the controller, which hands the requests out, or the detokenizer no replica serves.
    if replicas and gone and all(processes.role(x.name) == "scheduler" for x in gone):
        message = f"Gone from the unit: {names}; one data-parallel replica is dead, its requests hang, the others serve."
    call = Call(
        want=Want.RESTART,
        reason="ProcessGone",
        message=message,
        severity=Severity.CRITICAL,
        advice=oom_advice(f) if killed is not None else "Look at the kernel log and at a core dump for why it ended.",
        evidence=(
            f"engine processes expected: {len(r.known) + len(absent)}, left: {len(r.known) - len(gone)}",
            "the main process is alive",
        ),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="ProcessGone", message=message, calls=(call,))


def _gone(f: Facts, now: float) -> list[Proc]:
    """Processes that are surely gone. What goes on and cannot without one of them disproves the look that missed it."""
    gone = f.ranks.gone(now)
    if f.life.arg("dp_size", 1) not in (1, None):
        return gone  # the other replicas go on
    answered, stepped = f.probes.last_answer(CANARIES), f.work.surely_stepped_at

    def needed(x: Proc) -> bool:
        since = f.ranks.missing[x.pid][0] + DISPROVED_S
        steps = stepped is not None and stepped > since and processes.role(x.name) == "scheduler"
        return steps or (answered is not None and answered > since)

    wrong = {f.ranks.missing[x.pid][0] for x in gone if needed(x)}
    return [x for x in gone if f.ranks.missing[x.pid][0] not in wrong]


def _absent(f: Facts) -> list[str]:
    """Schedulers that had gone before we first looked: the arguments say how many there should be."""
    life = f.life
    if life.ready_at is None or life.server is None or life.phase() is not Phase.SERVING:
        return []
    args = life.server.args
    if "nnodes" not in args or (args.get("dp_size") != 1 and "enable_dp_attention" not in args):
        return []  # a command line that leaves them out, or a logged line that was cut before them: too little to restart for
    return f.ranks.absent(processes.expected_ranks(args), life.ready_at)


def _names(gone: list[Proc], absent: Sequence[str] = ()) -> str:
    names = [f"{x.name} (pid {x.pid})" for x in gone] + [f"{name} (gone before we looked)" for name in absent]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _killed(f: Facts, gone: list[Proc]) -> str | None:
    """Whether the kernel killed them for memory; inferred only where nothing else explains their end."""
    cause = f.life.cause
    code = cause.fields.get("exit_code") if cause is not None else None
    unexplained = (cause is None or cause.mark in DEATHS_OF_CHILDREN) and code in (None, *SIGKILLED)
    pids = {x.pid for x in gone}
    first = min(f.ranks.missing[pid][0] for pid in pids)
    return f.kills.said(first, f.life.inv, pids, guess=unexplained)


def _dying(f: Facts, now: float) -> Verdict | None:
    """A server that says that it dies gets the time that this takes; then it is taken for a zombie."""
    life = f.life
    if life.dying_at is None or life.dying_line is None:
        return None
    age = now - life.dying_at
    text = quoted((life.cause or life.dying_line).message)
    gone = _gone(f, now)
    killed = _killed(f, gone) if gone else None
    dead = f"; gone from the unit: {_names(gone)}{f', {killed}' if killed is not None else ''}" if gone else ""
    diagnose = Call(want=Want.DIAGNOSE, reason="FatalLine", message=f"A fatal line: {text}", severity=Severity.WARNING)
    calls = () if life.before_us(life.dying_at) else (diagnose,)
    answered_at = f.probes.last_answer(("chat",))
    served_since = answered_at is not None and answered_at > life.dying_at
    stepped_at = f.work.surely_stepped_at
    if stepped_at is not None and stepped_at > life.dying_at + 10 and age > 20:
        message = f"It printed a fatal line {ago(age)} ({text}), but goes on working."
        return Verdict(type="ProcessesPresent", status=Status.UNKNOWN, reason="FatalLineSurvived", message=message, calls=calls)
    limit = ENDS_S if life.end_announced else SPARED_S
    if age >= limit and gone and not life.end_announced:
        return None
    failed = f.probes.failures_since(life.dying_at, ("health", "chat", "prefix", "models"))
    if life.before_us(life.dying_at) and not gone and not failed:
        message = f"It printed a fatal line {ago(age)}, before we looked ({text}); nothing has failed since we look."
        return Verdict(type="ProcessesPresent", status=Status.UNKNOWN, reason="FatalLineBefore", message=message)
    if age < max(limit, ENDS_S if not gone else limit) or served_since:
        message = f"Dying{f' for {span(age)}' if age >= 1 else ''}: {text}{dead}"
        return Verdict(type="ProcessesPresent", status=Status.FALSE, reason="Dying", message=message, calls=(diagnose,))
    if not life.end_announced and not failed:
        message = f"It printed a line that servers die of {ago(age)} ({text}), but nothing has failed since."
        return Verdict(
            type="ProcessesPresent", status=Status.UNKNOWN, reason="FatalLineAlone", message=message, calls=(diagnose,)
        )
    message = f"It printed a fatal line {ago(age)} and neither ended nor worked since: {text}{dead}"
    call = Call(want=Want.RESTART, reason="DyingNeverEnded", message=message, severity=Severity.CRITICAL, evidence=(text,))
    return Verdict(
        type="ProcessesPresent", status=Status.FALSE, reason="DyingNeverEnded", message=message, calls=(diagnose, call)
    )
