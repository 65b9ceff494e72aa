"""Why the watchdog holds what it holds, in plain words, from what the daemon answers to "explain"."""

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
        f"A restart ({view['budget']['spent']} of {view['budget']['restarts']} are spent):",
        *(f"  {plain(line)}" for line in restart(view)),
    ]
    return "\n".join(lines)


def _phase(view: dict[str, Any]) -> list[str]:
    began = {"serving": view["ready_at"] or view["since_at"], "starting": view["since_at"]}.get(view["phase"])
    since = f" since {moment(began)}" if began else ""
    proven = "its readiness was seen" if view["proven"] else "its readiness was not seen"
    verified = "it is verified" if view["verified"] else "it is not verified"
    return [plain(f"Phase: {view['phase']}{since}; {proven}, {verified}.")]


def _conditions(view: dict[str, Any], on: bool) -> list[str]:
    lines = []
    for condition in sorted(view["conditions"], key=lambda c: ORDER.index(c["status"])):
        word, kind = MARKS[condition["status"]]
        since = span(condition.get("reason_age_s", condition["since_age_s"]))  # a daemon of an older version does not tell
        head = f"{condition['type']} {word} ({condition['reason']}, for {since})"
        lines.append(f"  {paint(plain(head), kind, on)}: {plain(condition['message'])}")
    return lines or ["  nothing was judged yet"]


def restart(view: dict[str, Any]) -> list[str]:
    """What stands in the way of a restart, or would call for one: the judges' words (judge/explain.py), and the mode's."""
    said = [str(line) for line in view["why"]["restart"]]
    if view["mode"] != "act":
        said.insert(0, f'Only said, not done, since the mode is {view["mode"]}; mode = "act" would do it.')
    return said
