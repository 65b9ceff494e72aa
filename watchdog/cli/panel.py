"""How one server is, in ten lines: from the view that the daemon gives of it (watchdog/view.py)."""

from typing import Any

from watchdog.cli.screen import moment, paint, plain, size, span

LABEL = 12


def ill(view: dict[str, Any]) -> bool:
    """Whether something is wrong with a server, or it does not serve (yet)."""
    return not view["well"]


def panel(view: dict[str, Any], columns: int, on: bool) -> str:
    """The ten lines.

    Args:
        view: of the server.
        columns: longer lines are cut.
        on: whether to colour.
    """
    kind = "odd" if view.get("doubts") else "ok" if view["well"] else "unknown"
    kind = "bad" if view["wrong"] else kind
    lines = [
        ("", f"{view['name']}: {view['sentence']}", kind),
        ("unit", _unit(view), ""),
        ("phase", _phase(view), ""),
        ("verified", _verified(view), ""),
        ("work", _work(view), ""),
        ("memory", _memory(view), ""),
        ("probes", _probes(view), ""),
        ("conditions", _conditions(view), "bad" if view["wrong"] else ""),
        ("restarts", _restarts(view), ""),
        ("last", _last(view), ""),
    ]
    return "\n".join(_line(label, text, colour, columns, on) for label, text, colour in lines)


def refused(answer: dict[str, Any], columns: int, on: bool) -> list[str]:
    """That the last reload was refused, from the answer to `status`; empty if it was not."""
    why = answer.get("daemon", {}).get("reload_refused")  # a daemon of an older version does not tell
    if not why:
        return []
    said = "the last reload was refused, the configuration before it goes on; `check-config` says what is wrong"
    return ["\n".join((_line("", said, "bad", columns, on), _line("refused", str(why), "", columns, on)))]


def _line(label: str, text: str, kind: str, columns: int, on: bool) -> str:
    room = columns - (LABEL if label else 0)
    text = plain(text)
    text = text if len(text) <= room else text[: room - 1] + "…"
    return (paint(label.ljust(LABEL), "dim", on) if label else "") + paint(text, kind, on)


def _unit(view: dict[str, Any]) -> str:
    state = view.get("unit_state") or {}
    life = (view["invocation"] or "none")[:8]
    shown = f"{state.get('active_state') or '?'} ({state.get('sub_state') or '?'})"
    since = f" since {moment(view['since_at'])}" if view["since_at"] else ""
    return f"{view['unit']} {shown}, life {life}{since}, mode {view['mode']}"


def _phase(view: dict[str, Any]) -> str:
    start = view["starting"]
    if start is None:
        return str(view["phase"]) + (f", ready at {moment(view['ready_at'])}" if view["ready_at"] else "")
    if start.get("unsure"):
        return "not known yet"
    return f"{bar(start['done'])} {progress(start)}; last sign {span(start['progress_age_s'])} ago: {start['progress_by']}"


def bar(ratio: float, cells: int = 20) -> str:
    """A progress bar: "[######--------------]"."""
    full = round(min(max(ratio, 0.0), 1.0) * cells)
    return f"[{'#' * full}{'-' * (cells - full)}]"


def progress(start: dict[str, Any]) -> str:
    """Where a start is: "weights 45 % (2 of 7), about 3 min to go"."""
    step = start["step"] or "begins"
    part = "" if start["ratio"] is None else f" {start['ratio']:.0%}"
    left = "" if start["eta_s"] is None else f", about {span(start['eta_s'])} to go"
    return f"{step}{part} ({start['at'] + 1} of {len(start['steps'])}){left}"


def _verified(view: dict[str, Any]) -> str:
    told = "yes" if view["verified"] else "no"
    if view["paused"]:
        reason = f": {view['pause_reason']}" if view["pause_reason"] else ""
        return f"{told}; paused{reason}"
    return f"{told}; stands down: {view['stand_down']}" if view["stand_down"] else told


def _work(view: dict[str, Any]) -> str:
    work = view["work"]

    def figure(value: float | None) -> str:
        return "?" if value is None else f"{value:.0f}"

    parts = [f"{figure(work['running'])} running", f"{figure(work['queued'])} waiting"]
    if work["token_usage"] is not None:
        parts.append(f"KV cache {work['token_usage']:.0%}")
    if work["step_age_s"] is not None:
        parts.append(f"last step {span(work['step_age_s'])} ago")
    if work["accept_length"] is not None:
        parts.append(f"accept length {work['accept_length']:.2f}")
    return ", ".join(parts)


def _memory(view: dict[str, Any]) -> str:
    memory = view["memory"]
    pool = f"host pool {size(memory['announced'])} announced, " if memory["announced"] else "no host pool announced, "
    seen = f"{size(memory['seen'])} seen, " if memory["seen"] is not None and memory["announced"] else ""
    return f"{pool}{seen}{size(memory['room'])} left"


def _probes(view: dict[str, Any]) -> str:
    told = []
    for name, probe in view["probes"].items():
        took = f" {probe['total_s']:.2f} s" if isinstance(probe.get("total_s"), int | float) else ""
        result = probe["outcome"] if probe["outcome"] != "status" else str(probe.get("status"))
        told.append(f"{name} {result}{took}")
    return ", ".join(told) or "none yet"


def _conditions(view: dict[str, Any]) -> str:
    conditions = view["conditions"]
    count = {status: sum(c["status"] == status for c in conditions) for status in ("True", "False", "Unknown")}
    wrong = [c for c in conditions if c["type"] in view["wrong"]]
    named = "; ".join(f"{c['type']} ({c['reason']}) for {span(c.get('reason_age_s', c['since_age_s']))}" for c in wrong)
    return f"{count['True']} hold, {count['False']} do not, {count['Unknown']} unknown" + (f": {named}" if named else "")


def _restarts(view: dict[str, Any]) -> str:
    budget, done = view["budget"], view["restarts"]
    text = f"{budget['spent']} of {budget['restarts']} within {span(budget['window_s'])}"
    if budget["forbidden"]:
        text += f", no more now: {budget['forbidden']}"
    elif budget["backoff_s"]:
        text += f", the next in {span(budget['backoff_s'])} at the earliest"
    if done:
        last = done[-1]
        would = "would have been, " if last["dry"] else ""
        text += f"; the last {would}{moment(last['at'])} for {last['reason']}"
    return text


def _last(view: dict[str, Any]) -> str:
    observed = view.get("observed")  # a daemon of an older version does not tell
    if observed is not None and observed["week"]:
        would = observed["would_restart"]
        if not would:
            return 'a week without a restart that it would have made: it is time for mode = "act"'
        times = "once" if would == 1 else f"{would} times"
        return f'it would have restarted {times} within a week (`history` has them): if that was right, set mode = "act"'
    if not view["diary"]:
        return "nothing was decided yet"
    last = view["diary"][-1]
    return f"{moment(last['at'])} {last['text']}"
