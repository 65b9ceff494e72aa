"""Why the watchdog holds what it holds, in plain words, from the view that the daemon gives of a server."""

from typing import Any

from watchdog.cli.screen import moment, paint, plain, span

MARKS = {"True": ("holds", "ok"), "False": ("does not hold", "bad"), "Unknown": ("unknown", "unknown")}
ORDER = ("False", "Unknown", "True")


def explained(view: dict[str, Any], on: bool) -> str:
    """The text: phase, conditions, what forbids a restart, what would have to change."""
    lines = [
        paint(plain(f"{view['name']}: {view['sentence']}"), "strong", on),
        "",
        *_phase(view),
        "",
        "Conditions:",
        *_conditions(view, on),
        "",
        "A restart:",
        *(f"  {plain(line)}" for line in restart(view)),
    ]
    return "\n".join(lines)


def _phase(view: dict[str, Any]) -> list[str]:
    since = f" since {moment(view['since_at'])}" if view["since_at"] else ""
    proven = "its readiness was seen" if view["proven"] else "its readiness was not seen"
    verified = "it is verified" if view["verified"] else "it is not verified"
    return [plain(f"Phase: {view['phase']}{since}; {proven}, {verified}.")]


def _conditions(view: dict[str, Any], on: bool) -> list[str]:
    lines = []
    for condition in sorted(view["conditions"], key=lambda c: ORDER.index(c["status"])):
        word, kind = MARKS[condition["status"]]
        since = span(condition["since_age_s"])
        head = f"{condition['type']} {word} ({condition['reason']}, for {since})"
        lines.append(f"  {paint(plain(head), kind, on)}: {plain(condition['message'])}")
    return lines or ["  nothing was judged yet"]


def restart(view: dict[str, Any]) -> list[str]:
    """Whether a restart could come, and what stands in its way."""
    budget = view["budget"]
    lines = []
    if view["mode"] != "act":
        lines.append(f'is only said, since the mode is {view["mode"]}; mode = "act" would do it')
    if view["stand_down"]:
        lines.append(f"is forbidden now: {view['stand_down']}")
    for reason in view["withheld"]:
        lines.append(f"was withheld ({reason}); `history` has its sentence and what helps")
    if budget["forbidden"]:
        lines.append(f"is not in the budget: {budget['forbidden']}; `resume` after the cause was found")
    elif budget["backoff_s"]:
        lines.append(f"would have to wait {span(budget['backoff_s'])} after the last one")
    if not lines:
        left = budget["restarts"] - budget["spent"]
        lines.append(f"would be carried out if the conditions called for one; {left} of {budget['restarts']} are left")
    if not view["wrong"]:
        lines.append("is not called for: no condition fails")
    return lines
