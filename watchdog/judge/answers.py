"""Does the server still say the right thing? Judged by its canaries' answers, against the answers it gave before."""

from msgspec import structs

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.judge.facts.answers import Answers, InARow
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.probes import CANARIES
from watchdog.judge.text import Quality
from watchdog.judge.verdict import Call, Severity, Status, Verdict, Want
from watchdog.sglang.marks import Mark
from watchdog.wording import ago, counted, span

OLD_S = 1800.0
"""An answer that is older, and older than two of the usual intervals, tells nothing of the server's answers of now."""
ERRORS_S = 120.0
LASTING_S = 600.0
"""Odd answers must go on for so long to be told, as episodes pass."""
RESTART_S = 1800.0
"""Garbage alone, without a second sign, must last so long before a restart is worth its price: it is told long before, and a
fault of the software comes back."""
WITNESSED_S = 600.0
"""The same where the log says that the model computes not-a-number."""
MIXED_SHARE = 0.15
"""Such a part of the last canaries that was answered with garbage, between good answers, is no accident."""
EMPTY_LEAST = 3
EMPTY_RATE = 0.1
"""So many canaries, and such a part of them, with an answer but no content are more than chance."""
STORE_ADVICE = (
    "It may come from the storage tier ({}), which outlives a restart: ask by hand with a prompt that is new, clear the store, "
    "and restart it then. Keep the transcripts."
)


def judge(f: Facts, policy: Judging, now: float) -> Verdict:
    """The condition AnswersSane."""
    kind = "AnswersSane"
    a = f.answers
    if f.life.phase() is not Phase.SERVING or f.pause.holds(now):
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NotServing", message=f"The server is {f.life.phase().value}.")
    # What is sure comes before what is in doubt: an odd answer hides no canary that fails.
    sure = _bad(f, policy, now) or _wrong(f, policy, now) or _mixed(f, policy, now)
    found = sure or _errors(f, now) or _empty(f) or _odd(a, now)
    if found is not None:
        return found
    if a.last_good_at is None:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message="No canary has been answered yet.")
    old = now - a.last_good_at
    if old > max(OLD_S, 2 * a.between_s()):
        message = f"A canary was last answered well {ago(old)}: what the server says now is not known."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="AnsweredLongAgo", message=message)
    return Verdict(
        type=kind,
        status=Status.TRUE,
        reason="Sane",
        message=f"The last canary's answer, {ago(now - a.last_good_at)}, made sense.",
    )


def _said(run: InARow, now: float) -> str:
    """What came of the canaries since the last good answer, without a full stop."""
    when = _when(run.since, run.last, now)
    many = f"{run.count} canaries in a row were" if run.count > 1 else "1 canary was"
    if run.plain == run.count:
        return f"{many} answered with {run.grade} text {when}: {run.reason}"
    plainly = f", {run.plain} of them with {run.grade} text" if run.plain else ""
    return f"{many} answered oddly {when}{plainly}: {run.reason}"


def _odd(a: Answers, now: float) -> Verdict | None:
    """Answers that may become a finding."""
    if a.run is None:
        return None
    return Verdict(type="AnswersSane", status=Status.UNKNOWN, reason="OddAnswer", message=f"{_said(a.run, now)}.")


def _bad(f: Facts, policy: Judging, now: float) -> Verdict | None:
    kind = "AnswersSane"
    a, run = f.answers, f.answers.run
    if run is None or not run.plain:
        return None
    message = _said(run, now)
    latest, usual = f.accepted.latest(now), f.accepted.baseline()
    rejected = latest is not None and usual is not None and latest <= 1.01 and usual > 1.2
    if run.plain < policy.garbage_count and not rejected and not _weighty(run, policy, now):
        return None
    evidence = [counted(run.count, "bad answer", "bad answers in a row"), run.reason]
    if a.good_ever:
        evidence.append(f"{counted(a.good_ever, 'good answer')} before")
    if rejected:
        evidence.append("no draft token is accepted any more")
    if not a.good_ever:
        call = Call(
            want=Want.VETO,
            reason="GarbageFromTheStart",
            message=f"{message}; it never gave a good answer.",
            severity=Severity.CRITICAL,
            advice=(
                "A restart repeats it: check the weights, the quantisation and attention back ends, and the SGLang "
                "version for this GPU."
            ),
            evidence=tuple(evidence),
            unmet=True,
        )
        both = (structs.replace(call, want=Want.ALERT, unmet=False), call)
        return Verdict(type=kind, status=Status.FALSE, reason="GarbageFromTheStart", message=f"{message}.", calls=both)
    store = f.life.arg("hicache_storage_backend")
    advice = "If it comes back after a restart it is a fault of the software: keep the transcripts."
    if not a.good:
        advice = "It is so since this start: undo what was changed before it (arguments, template, weights, version)."
    alert = Call(
        want=Want.ALERT,
        reason="GarbageAnswers",
        message=f"{message}; {'it' if a.good else 'the life before this one'} answered well.",
        severity=Severity.CRITICAL,
        advice=STORE_ADVICE.format(store) if store else advice,
        evidence=tuple(evidence),
    )
    calls: tuple[Call, ...] = (alert,)
    # Without a second sign it must last: an episode passes by itself, and a restart costs everybody the cache. What comes from a
    # store outlives a restart: of the prefix canary alone, or where the cache has one beyond the host's memory, it is no sign.
    # A life that never gave a good answer began with the fault: weights, template, arguments. The next one would, too.
    nan = f.troubles.told.get(Mark.NAN)
    witnessed = nan is not None and nan.last >= run.plain_since - WITNESSED_S
    lasting = run.plain >= 2 * policy.garbage_count and now - run.plain_since >= (WITNESSED_S if witnessed else RESTART_S)
    chat = a.runs.get("chat")
    if rejected or (lasting and a.good and chat is not None and chat.plain and not store):
        calls = (alert, structs.replace(alert, want=Want.RESTART))
    return Verdict(type=kind, status=Status.FALSE, reason="GarbageAnswers", message=f"{message}.", calls=calls)


def _mixed(f: Facts, policy: Judging, now: float) -> Verdict | None:
    """Garbage between good answers, as from one replica of several, or from some slots of a batch."""
    graded = f.answers.graded
    bad = [x for x in graded if x[1] is not Quality.GOOD]
    plain = [x for x in bad if x[1] is not Quality.SUSPICIOUS]
    if len(bad) + len(plain) < 2 * policy.garbage_count or len(bad) < MIXED_SHARE * len(graded) or not f.answers.good_ever:
        return None
    runs = sum(b[1] is not Quality.GOOD and (i == 0 or graded[i - 1][1] is Quality.GOOD) for i, b in enumerate(graded))
    if runs < 2:
        return None  # an episode: it lasts, and is told as such, or it is over
    sure = len(plain) >= policy.garbage_count
    if not sure and now - bad[0][0] < LASTING_S:
        return None
    kind = "AnswersSane"
    since, last, reason = bad[0][0], bad[-1][0], (plain or bad)[-1][2]
    how = "with garbage" if len(plain) == len(bad) else "oddly"
    message = f"{len(bad)} of the last {len(graded)} canaries were answered {how} {_when(since, last, now)}: {reason}."
    alert = Call(
        want=Want.ALERT,
        reason="GarbageAtTimes",
        message=message,
        severity=Severity.CRITICAL if sure else Severity.WARNING,
        advice="Keep the transcripts: users get the same share of garbage. See whether it is one replica or one kind of request.",
        evidence=(f"{len(bad)} of {len(graded)}", reason),
    )
    calls: tuple[Call, ...] = (alert,)
    if len(plain) >= 2 * policy.garbage_count and now - plain[0][0] >= LASTING_S:
        calls = (alert, structs.replace(alert, want=Want.PLAN_RESTART))
    return Verdict(type=kind, status=Status.FALSE, reason="GarbageAtTimes", message=message, calls=calls)


def _empty(f: Facts) -> Verdict | None:
    """Answers that ended by themselves and whose whole text was filed under reasoning."""
    kind = "AnswersSane"
    ended = f.answers.content
    empty = [t for t, has_content in ended if not has_content]
    if len(empty) < EMPTY_LEAST or len(empty) < EMPTY_RATE * len(ended):
        return None
    message = (
        f"{len(empty)} of the last {len(ended)} canaries ended with finish_reason stop and empty content: the "
        f"whole answer is under reasoning."
    )
    call = Call(
        want=Want.ALERT,
        reason="EmptyContent",
        message=message,
        advice=(
            "The reasoning parser does not fit the model: check --reasoning-parser and the chat template; a "
            "restart changes nothing."
        ),
        evidence=(f"{len(empty)} of {len(ended)} without content",),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="EmptyContent", message=message, calls=(call,))


def _weighty(run: InARow, policy: Judging, now: float) -> bool:
    """Whether answers that are not all plainly bad are enough, and have gone on for long enough."""
    return run.weight >= 2 * policy.garbage_count and now - run.since >= LASTING_S


def _wrong(f: Facts, policy: Judging, now: float) -> Verdict | None:
    """A canary that is answered oddly each time, whatever others are answered: words may be wrong without being degenerate."""
    found = ((canary, run) for canary, run in f.answers.runs.items() if _weighty(run, policy, now))
    canary, run = next(found, ("", None))
    if run is None:
        return None
    before = f.answers.good_of[canary]
    odd = f"oddly {run.count} times in a row {_when(run.since, run.last, now)}: {run.reason}."
    evidence = (f"{run.count} odd answers in a row", run.reason)
    if before:
        alert = Call(
            want=Want.ALERT,
            reason="WrongAnswers",
            message=f"The {canary} canary was answered well {counted(before, 'time')}, and then {odd}",
            severity=Severity.CRITICAL,
            advice=(
                "Read its transcripts and ask by hand: if users get the same, restart it, and clear a storage tier that it "
                "reads from (--hicache-storage-backend), which outlives the restart."
            ),
            evidence=evidence,
        )
    else:
        alert = Call(
            want=Want.ALERT,
            reason="OddFromTheStart",
            message=f"The {canary} canary was not answered well yet, but {odd}",
            severity=Severity.CRITICAL if run.odd else Severity.WARNING,
            advice=(
                "Ask by hand. If users get the same, a restart repeats it: check the weights, the quantisation and attention "
                "back ends, the chat template, and the SGLang version for this GPU. If what they get makes sense, the question "
                "does not fit the model: set chat_expects, or name another profile."
            ),
            evidence=evidence,
        )
    calls: tuple[Call, ...] = (alert,)
    # Its prompt is new each time, so no store is to blame. Others are answered well: the restart can wait.
    if before and canary == "chat" and run.plain >= 2 * policy.garbage_count:
        calls = (alert, structs.replace(alert, want=Want.PLAN_RESTART))
    return Verdict(type="AnswersSane", status=Status.FALSE, reason=alert.reason, message=alert.message, calls=calls)


def _errors(f: Facts, now: float) -> Verdict | None:
    kind = "AnswersSane"
    a = f.answers
    errors = list(a.errors)
    if not errors:
        return None
    lasting = now - errors[0].t
    last = errors[-1]
    what = f"HTTP {last.status}" if last.outcome == "status" else last.outcome
    said = last.detail or " ".join((last.body or "").split())
    ended = f.work.ended_at
    run = f"{len(errors)} canaries in a row" if len(errors) > 1 else "1 canary"
    message = f"{run} failed at once {_when(errors[0].t, last.t, now)} ({what}{f': {said[:120]}' if said else ''})"
    answered = f.refusals.answered_at
    reaching = any(t is not None and t > errors[0].t + 5 for t in (ended, answered))
    if reaching and len(errors) >= 4 and lasting >= LASTING_S:
        advice = "Something refuses the canary alone: look at what it asks (profile, model) and at what lies between."
        told = Call(want=Want.ALERT, reason="CanaryAloneFails", message=f"{message}; users are answered.", advice=advice)
        return Verdict(type=kind, status=Status.UNKNOWN, reason="CanaryAloneFails", message=told.message, calls=(told,))
    # A proxy resets connections, too: users may tell that they are served.
    limit = LASTING_S if last.outcome == "reset" else ERRORS_S
    if len(errors) < 4 or lasting < limit or reaching:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="CanaryErrors", message=f"{message}.")
    if last.outcome == "malformed":
        advice = "Look at the transcript of a canary: something answers that is not SGLang, or its API has changed."
        alert = Call(want=Want.ALERT, reason="MalformedAnswers", message=f"{message}.", severity=Severity.CRITICAL, advice=advice)
        return Verdict(type=kind, status=Status.FALSE, reason="MalformedAnswers", message=f"{message}.", calls=(alert,))
    if f.life.disaggregated() or f.troubles.transfers:
        advice = "Several servers answer a request: look at the others and at the log of this one, and ask through the router."
        alert = Call(want=Want.ALERT, reason="HalfFails", message=f"{message}.", severity=Severity.CRITICAL, advice=advice)
        return Verdict(type=kind, status=Status.FALSE, reason=alert.reason, message=alert.message, calls=(alert,))
    if not (a.good_ever or f.probes.last_answer(CANARIES) is not None or answered is not None or ended is not None):
        # A server that is ill answered once. This may be asked badly, or set up so that it cannot answer.
        alert = Call(
            want=Want.ALERT,
            reason="ErrorsFromTheStart",
            message=f"{message}; none was ever answered, and no request of a user was seen to end.",
            severity=Severity.CRITICAL,
            advice=(
                "Ask by hand. A restart repeats it: look at the chat template, the parsers, the model's name, and the request in "
                "the log. If users are served, what the canary asks does not fit: name another profile, or set probe.chat=false."
            ),
            evidence=(f"{len(errors)} canaries in a row: {what}", "no good answer before"),
        )
        return Verdict(type=kind, status=Status.FALSE, reason=alert.reason, message=alert.message, calls=(alert,))
    call = Call(
        want=Want.RESTART,
        reason="CanaryErrors",
        message=f"{message}, and no request of a user was seen to end.",
        severity=Severity.CRITICAL,
        evidence=(f"{len(errors)} canaries in a row: {what}", "no request ended meanwhile"),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="CanaryErrors", message=f"{message}.", calls=(call,))


def _when(first: float, last: float, now: float) -> str:
    """Since when, and how new the newest evidence is."""
    return ago(now - last) if first == last else f"for {span(now - first)}, the last {ago(now - last)}"
