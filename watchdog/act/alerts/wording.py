"""A message in words: plain text whose first line fits a phone, and JSON for programs."""

import re
import unicodedata
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from watchdog import __version__
from watchdog.act.alerts.notice import ENDED, Cause, Item, Message, News
from watchdog.clock import rfc3339
from watchdog.config import Mode
from watchdog.judge.verdict import Action
from watchdog.wording import NOT_RESTARTED, span

TITLE_CAP = 140
"""Characters of the first line: what the lock screen of a phone shows."""
FULL_ITEMS = 8
"""So many causes of one message are told in full, the others in a line each."""
LINE_ITEMS = 40

LATE = timedelta(minutes=10)

DID = {
    Action.RESTART: {
        "act": "restarts the unit now, after it has saved evidence.",
        "alert": "does not restart in mode alert; `systemctl restart {unit}` would help.",
        "observe": "would restart the unit now, but only looks on (mode observe).",
    },
    Action.WITHHOLD: {
        "act": "holds a restart back: it would not help.",
        "alert": "would hold a restart back: it would not help.",
        "observe": "would hold a restart back: it would not help.",
    },
    Action.PLAN_RESTART: {
        "act": "does not restart now; a restart in a quiet hour, after draining, would help.",
        "alert": "does not restart; a restart in a quiet hour, after draining, would help.",
        "observe": "does not restart; a restart in a quiet hour, after draining, would help.",
    },
    Action.ALERT: {
        "act": "only tells of this; it does not restart for it.",
        "alert": "only tells of this; it does not restart for it.",
        "observe": "only tells of this; it does not restart for it.",
    },
}
"""What the watchdog does, by the decision that weighs most and by mode; "The watchdog" goes before it."""

HELD_BACK = {
    "MayNotRestart": "cannot restart the unit: polkit does not let it. It asks every 10 s, and restarts once it may.",
    "UnitMissing": "cannot restart a unit that systemd has not loaded. It restarts it once that is mended.",
    "BusDown": "cannot restart the unit: systemd cannot be asked. It restarts it once that is mended.",
    "BudgetSpent": "does not restart again: its restart budget is spent.",
    "RestartFailed": "does not order another restart: systemd has not carried out the last one.",
    "NotCured": "does not restart again: the last restart did not cure it.",
}
FIRST = {News.STILL: "First told: ", News.OVER: "It was: ", News.PASSED: "It was: "}
WEIGHT = (Action.WITHHOLD, Action.RESTART, Action.PLAN_RESTART, Action.ALERT)


LEFT = {
    "MayNotRestart": "asks for the right every 10 s, and restarts nothing without it.",
    "UnitMissing": "restarts nothing that systemd has not loaded.",
    "RestartRefused": "tries again by itself, as long as a restart is called for.",
    "RestartFailed": "has tried to restart the unit, in vain.",
    "ServerDied": "leaves this restart to systemd (Restart= of the unit).",
}
"""What others do about it, in place of "does not restart for it"."""
IF_IT_LASTS = ("GarbageAnswers", "TurnedAwayAtRest")
"""Told before they call for a restart: one that passes by itself costs nobody the cache."""
UNDONE = {
    "refused": "The watchdog has not restarted the unit, though it tried: {why}. It tries again by itself.",
    "dropped": "The watchdog has not restarted the unit: {why}. As long as a restart is called for, it tries again by itself.",
    "paused": "The watchdog has not restarted the unit: {why}. Nobody but you will restart it while the pause lasts.",
    "canceled": "The watchdog's restart was not carried out: {why}. As long as one is called for, it tries again by itself.",
    "unknown": "What came of the watchdog's restart is not known: {why}. `sglang-watchdog status` says how the server is.",
}
"""What came of a restart that was not made, or was not seen to its end, by its result."""
DID_NOT_HELP = "The watchdog's restart did not help: {failed}"
NO_HURRY = "You need not do anything now: how it ends will be told."


def did(cause: Cause, unit: str, mode: Mode) -> str:
    """What the watchdog does about a cause, or will not do: a sentence or two."""
    action = next(action for action in WEIGHT if action in cause.actions)
    if action is Action.RESTART and cause.failed is not None:
        why = cause.failed.removeprefix(NOT_RESTARTED).rstrip(".")
        return UNDONE.get(cause.result, UNDONE["refused"] if cause.refused else DID_NOT_HELP).format(why=why, failed=cause.failed)
    said = HELD_BACK.get(cause.reason) if action is Action.WITHHOLD and mode == "act" else None
    said = LEFT.get(cause.reason) if action is Action.ALERT and (mode == "act" or cause.reason == "ServerDied") else said
    if action is Action.ALERT and mode == "act" and cause.reason in IF_IT_LASTS:
        said = "only tells of this so far; if it lasts, and a restart can help, it restarts the unit."
    whole = f"The watchdog {said or DID[action][mode].format(unit=unit)}"
    return f"{whole} {NO_HURRY}" if action is Action.RESTART and mode == "act" else whole


def title(message: Message) -> str:
    """The first line: how bad, which server, what; at most 140 characters."""
    if message.test:
        return f"TEST from sglang-watchdog on {message.host}: nothing is wrong"
    first, more = message.items[0], len(message.items) - 1
    end = f" (+{more} more)" if more else ""
    lasted = f" after {span(seconds)}" if (seconds := _lasted_s(first, message.created)) else ""
    return _cut(f"{_word(first)} {first.server} on {message.host}{lasted}: {first.message}", TITLE_CAP - len(end)) + end


def text(message: Message, now: datetime) -> str:
    """The whole message in plain text, the title as its first line."""
    return f"{title(message)}\n\n{body(message, now)}"


def body(message: Message, now: datetime) -> str:
    """What stands below the title."""
    if message.test:
        return f"This message shows that alerts of sglang-watchdog on {message.host} arrive here. Sent {when(message.created)}.\n"
    blocks = ["\n".join(_lines(item, message)) for item in message.items[:FULL_ITEMS]]
    rest = message.items[FULL_ITEMS:]
    if rest:
        lines = [_cut(f"* {_word(item)} {item.server}: {item.message}", TITLE_CAP) for item in rest[:LINE_ITEMS]]
        if len(rest) > LINE_ITEMS:
            lines.append(f"* and {len(rest) - LINE_ITEMS} more")
        blocks.append("Further:\n" + "\n".join(lines))
    if now - message.created > LATE:
        blocks.append(f"This message was made {when(message.created)} and could not be delivered before.")
    return "\n\n".join(blocks) + "\n"


def payload(message: Message, now: datetime) -> dict[str, Any]:
    """The message as JSON. `text` makes it readable for Slack, Mattermost and their like as it is."""
    return {
        "version": 1,
        "id": message.id,
        "status": "test" if message.test else "firing" if message.firing else "resolved",
        "severity": str(message.severity),
        "host": message.host,
        "created": rfc3339(message.created),
        "watchdog": __version__,
        "title": title(message),
        "text": text(message, now),
        "alerts": [_entry(item) for item in message.items],
    }


def when(at: datetime) -> str:
    """A moment for people, in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def plain(line: str) -> str:
    """One line without control characters and without words that ring everybody in a chat room."""
    line = "".join(" " if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in line)
    return re.sub(r"@(?=(?:everyone|here|channel|all)\b)|<(?=[!@])", lambda found: f"{found[0]} ", line)


def _lasted_s(item: Item, now: datetime) -> float | None:
    """For how long it has been so, or was; None where that is no news."""
    if item.news is News.STILL:
        return (now - item.since).total_seconds()
    return (item.until - item.since).total_seconds() if item.until is not None else None


def _lines(item: Item, message: Message) -> list[str]:
    lasted = f" ({span(seconds)})" if (seconds := _lasted_s(item, message.created)) else ""
    lines = [
        plain(f"{_word(item)}: {item.reason} on {item.server} ({item.unit})"),
        # What it says of time was so when it was told first.
        plain(f"{FIRST.get(item.news, '')}{item.message}"),
        f"Since: {when(item.since)}" + (f", until {when(item.until)}" if item.until else "") + lasted,
    ]
    if item.news not in ENDED:
        lines += _evidence(item)
    lines.append(_sentence(plain(item.did)))
    if item.advice and item.news not in ENDED:
        lines.append(f"What helps: {plain(item.advice)}")
    if item.news not in ENDED:
        lines.append(f"More: {item.runbook or f'sglang-watchdog explain --server {item.server}, on {message.host}'}")
    return lines


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:].rstrip('.')}." if line else line


def _evidence(item: Item) -> list[str]:
    """What the message does not say itself, each once."""
    said = plain(item.message).lower()
    counts = Counter(plain(each) for each in item.evidence)
    return [
        f"Evidence: {each}" + (f" ({count} times)" if count > 1 else "")
        for each, count in counts.items()
        if each.rstrip(".").lower() not in said
    ]


def _entry(item: Item) -> dict[str, Any]:
    return {
        "server": item.server,
        "unit": item.unit,
        "reason": item.reason,
        "status": "resolved" if item.news in ENDED else "firing",
        "news": str(item.news),
        "severity": str(item.severity),
        "actions": [str(action) for action in item.actions],
        "message": plain(item.message),
        "since": rfc3339(item.since),
        "until": rfc3339(item.until) if item.until else None,
        "evidence": [plain(each) for each in item.evidence],
        "advice": plain(item.advice) if item.advice else None,
        "did": item.did,
        "runbook": item.runbook,
    }


def _word(item: Item) -> str:
    match item.news:
        case News.OVER:
            return "OVER"
        case News.PASSED:
            return "CAME AND WENT"
        case News.STILL:
            return f"STILL {item.severity.upper()}"
    if item.actions == [Action.RESTART]:
        made = "RESTART FAILED" if item.failed else "RESTART"
        return made if not item.not_made else "NOT RESTARTED" if item.failed else item.severity.upper()
    return item.severity.upper()


def _cut(line: str, cap: int) -> str:
    line = plain(line)
    return line if len(line) <= cap else f"{line[: cap - 1].rstrip()}…"
