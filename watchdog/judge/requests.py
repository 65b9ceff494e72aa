"""Are we asking rightly? Refusals of our requests are about us or something in between, never about the server's health."""

from itertools import takewhile

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.facts.probes import Attempt, refused_us
from watchdog.judge.verdict import Call, Status, Verdict, Want
from watchdog.observation import Probe
from watchdog.wording import ago, counted, lasting, span

MANY = 4
WINDOW_S = 1800.0
UNASKED_S = 20.0
"""A file that is just being written anew is no news."""
UNREACHED_S = 120.0
"""What does not connect for so long is no accident of a crowded moment."""
OTHERWISE = 2
"""When so many newer probes in a row of a kind that was refused went otherwise, all refusals before them are the past."""

ADVICE = {
    401: "The API key is missing or wrong: set api_key_file for this server.",
    403: "The key or something in between forbids it: check api_key_file, a proxy and the server's --api-key.",
    404: "The path or the model's name does not exist there: check base_url and model.",
    429: "Something limits the rate of our requests: exempt the watchdog.",
}
GATEWAY = "Something in between, such as a proxy, answers in the server's place: set base_url to the server's own address."


def judge(f: Facts, now: float) -> Verdict:
    """The condition ProbesAccepted."""
    kind = "ProbesAccepted"
    unasked = _unasked(f, now)
    if unasked is not None:
        return unasked
    if f.life.phase() is Phase.OFF:
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message="The server is off.")
    unreached = _unreached(f, now)
    if unreached is not None:
        return unreached
    recent = [o for o in f.refusals.recent if now - o.t <= WINDOW_S]
    since_then = {probe: _otherwise(f, probe) for probe in {o.probe for o in recent}}
    overtaken_at = max((run[0].ended for run in since_then.values() if len(run) >= OTHERWISE), default=-1e18)
    standing = [o for o in recent if o.t > overtaken_at]
    if not standing:
        return _none_stands(f, recent, now)
    last = standing[-1]
    same = [o for o in standing if o.status == last.status]
    first = same[0].t
    only = {o.probe for o in same}
    count = counted(len(same), "request")
    when = ago(now - last.t) if len(same) == 1 else f"for {span(now - first)}, the last {ago(now - last.t)}"
    newer = since_then[last.probe]
    since = "" if not newer else "; the newest was answered" if newer[-1].probe.outcome == "ok" else "; the newest got no answer"
    if len(same) < MANY or now - first < 60:
        message = f"{count} of ours got {last.status} ({when}){since}."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="SomeRefused", message=message)
    logged = sum(1 for t, status in f.refusals.logged if t >= first - 2 and status == last.status)
    log_seen = f.work.stepped_at is not None and f.work.stepped_at > first
    what = ", ".join(sorted(only))
    message = f"{count} of ours ({what}) got {last.status} {when}{since}"
    if logged == 0 and log_seen:
        message += (
            f"; the server's own access log does not have a {last.status}, so it comes from something in between, such as a proxy"
        )
    usual = "Check base_url, model and api_key_file with `sglang-watchdog check-config` and `verify`."
    advice = GATEWAY if (last.status or 0) >= 500 else ADVICE.get(last.status or 0, usual)
    if f.life.disaggregated() and last.status == 400:
        advice = "It computes prompts or answers only and is asked through a router: set probe.chat=false for it."
    call = Call(
        want=Want.ALERT,
        reason="ProbesRefused",
        message=f"{message}.",
        advice=advice,
        evidence=(f"{counted(logged, 'such line')} in the access log",),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="ProbesRefused", message=f"{message}.", calls=(call,))


def _unasked(f: Facts, now: float) -> Verdict | None:
    """We cannot ask because of our own settings, such as a key file that cannot be read: who does not ask sees no hang."""
    since = f.refusals.unasked_since
    if since is None:
        return None
    last = max(f.refusals.unasked.values(), key=lambda o: o.t)
    why, _, cure = (last.detail or "our own settings do not allow it").partition("; ")
    message = f"Requests ({', '.join(sorted(f.refusals.unasked))}) are not made {lasting(now - since)}: {why}."
    if now - since < UNASKED_S:
        return Verdict(type="ProbesAccepted", status=Status.UNKNOWN, reason="CannotAsk", message=message)
    advice = f"{cure[:1].upper()}{cure[1:]}. " if cure else ""
    advice += "It is read again at each request: no restart is needed."
    call = Call(want=Want.ALERT, reason="CannotAsk", message=message, advice=advice)
    return Verdict(type="ProbesAccepted", status=Status.FALSE, reason="CannotAsk", message=message, calls=(call,))


def _unreached(f: Facts, now: float) -> Verdict | None:
    """Our requests do not come to the server's door, though it works, or has nothing to do: the way there is blocked."""
    ready_at = f.life.ready_at
    if ready_at is None or f.life.phase() is not Phase.SERVING or f.senses.blind(now):
        return None
    run = list(takewhile(lambda a: not a.connected and a.began > ready_at, reversed(f.probes.attempts)))
    if len(run) < MANY:
        return None
    first, last = run[-1], run[0]
    lasting = now - first.began
    works = f.work.stepped_at is not None and f.work.stepped_at > first.ended
    refused = last.probe.outcome == "refused"
    at_the_door = refused and not f.life.listener.held
    if lasting < UNREACHED_S or (not works and (at_the_door or f.work.in_hand(now))):
        return None
    how = "were refused" if refused else "did not connect"
    message = f"{counted(len(run), 'request')} of ours {how} for {span(lasting)}"
    message += "; its log and counters show that it works meanwhile." if works else "; nothing else tells of trouble."
    advice = "Check base_url, and what lies between: a firewall, a network namespace, a limit of connections."
    call = Call(want=Want.ALERT, reason="ProbesDoNotConnect", message=message, advice=advice, evidence=(f"{len(run)} in a row",))
    return Verdict(type="ProbesAccepted", status=Status.FALSE, reason="ProbesDoNotConnect", message=message, calls=(call,))


def _otherwise(f: Facts, probe: str) -> list[Attempt]:
    """The attempts of this kind of probe after its last refusal, oldest first."""
    of_kind = (a for a in reversed(f.probes.attempts) if a.probe.probe == probe)
    return list(takewhile(lambda a: not refused_us(a.probe), of_kind))[::-1]


def _none_stands(f: Facts, before: list[Probe], now: float) -> Verdict:
    """No refusal, or none that newer probes have not overtaken."""
    kind = "ProbesAccepted"
    last_served = f.refusals.served[-1] if f.refusals.served else None
    vain = list(takewhile(lambda a: not a.connected, reversed(f.probes.attempts)))
    if vain and last_served is not None and vain[-1].ended > last_served:
        count = "The newest request" if len(vain) == 1 else f"The {len(vain)} newest requests"
        message = f"{count} did not come to the server ({vain[0].probe.outcome}, {ago(now - vain[0].ended)})."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message=message)
    if last_served is not None and now - last_served <= WINDOW_S and (not before or last_served > before[-1].t):
        return Verdict(type=kind, status=Status.TRUE, reason="Accepted", message="The server accepts our requests.")
    message = "No request was answered of late."
    if before:
        message = f"Requests got {before[-1].status} until {ago(now - before[-1].t)}; since then they have had no answer at all."
    return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message=message)
