"""Are we asking rightly? Refusals of our requests are about us or something in between, never about the server's health."""

from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Call, Status, Verdict, Want

MANY = 4
WINDOW_S = 600.0


ADVICE = {
    401: "The API key is missing or wrong: set api_key_file for this server.",
    403: "The key or something in between forbids it: check api_key_file, a proxy and the server's --api-key.",
    404: "The path or the model's name does not exist there: check base_url and model.",
    429: "Something limits the rate of our requests: exempt the watchdog.",
}


def judge(f: Facts, now: float) -> Verdict:
    """The condition ProbesAccepted."""
    kind = "ProbesAccepted"
    recent = [o for o in f.refusals.recent if now - o.t <= WINDOW_S]
    last_served = f.refusals.served[-1] if f.refusals.served else None
    served = last_served if last_served is not None and now - last_served <= WINDOW_S else None
    if not recent:
        known = served is not None
        return Verdict(
            type=kind,
            status=Status.TRUE if known else Status.UNKNOWN,
            reason="Accepted" if known else "NothingSeen",
            message="The server accepts our requests." if known else "No request was answered yet.",
        )
    last = recent[-1]
    same = [o for o in recent if o.status == last.status]
    first = same[0].t
    only = {o.probe for o in same}
    if len(same) < MANY or now - first < 60:
        return Verdict(
            type=kind, status=Status.UNKNOWN, reason="SomeRefused", message=f"{len(same)} of our requests got {last.status}."
        )
    logged = sum(1 for t, status in f.refusals.logged if t >= first - 2 and status == last.status)
    log_seen = f.work.stepped_at is not None and f.work.stepped_at > first
    what = ", ".join(sorted(only))
    message = f"{len(same)} of our requests ({what}) got {last.status} since {now - first:.0f} s"
    if logged == 0 and log_seen:
        message += (
            f"; the server's own access log does not have a {last.status}, so it comes from something in between, such as a proxy"
        )
    advice = ADVICE.get(
        last.status or 0, "Check base_url, model and api_key_file with `sglang-watchdog check-config` and `verify`."
    )
    call = Call(
        want=Want.ALERT,
        reason="ProbesRefused",
        message=f"{message}.",
        advice=advice,
        evidence=(f"{logged} such lines in the access log",),
    )
    return Verdict(type=kind, status=Status.FALSE, reason="ProbesRefused", message=f"{message}.", calls=(call,))
