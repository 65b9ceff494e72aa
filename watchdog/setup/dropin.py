"""What a server's unit should have for its watchdog's sake, and why: only lines that change something."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from watchdog.systemd import INFINITY_USEC
from watchdog.units import format_gb

WATCHDOG = "sglang-watchdog.service"
STOP_S = 180
"""Enough for SGLang's own end after a failure (82 s measured with 0.5.23) and for pinned memory up to a quarter of a TiB."""
STOP_BYTES_PER_S = 2 * 10**9
"""How fast the kernel gives pinned memory back, at worst. A rule of thumb: SGLang speaks of tens of seconds for large pools
(pool_host/base.py), and a limit that is too long costs less than a SIGKILL in the middle."""
OOM_SCORE = -300
SECOND = 1_000_000


class Line(NamedTuple):
    """One line of the drop-in."""

    section: str
    key: str
    value: str
    reason: str


def stop_s(pinned: int | None) -> int:
    """TimeoutStopSec= for a server that pins so many bytes of host memory; a multiple of 30."""
    return max(STOP_S, -(-(90 + (pinned or 0) // STOP_BYTES_PER_S) // 30) * 30)


def lines(properties: Mapping[str, Any], pinned: int | None, own: Mapping[str, str] | None = None) -> list[Line]:
    """The lines that differ from what the unit has.

    Args:
        properties: the unit's properties under systemd's own names (org.freedesktop.systemd1(5)).
        pinned: host memory that the server pins, in bytes; None if unknown.
        own: what an earlier drop-in of ours set, and what therefore stays. Its stop limit never becomes shorter: a server that is
            down or starts shows less of what it pins than one that serves.
    """
    own = own or {}
    barred = _barred(properties)
    return [line for line, needed in _all(properties, pinned, own) if (needed or line.key in own) and line.key not in barred]


def _barred(has: Mapping[str, Any]) -> frozenset[str]:
    """Keys with which systemd would refuse the unit (systemd.service(5), "Restart="; seen with systemd 252)."""
    return frozenset(("Restart",)) if has.get("Type") == "oneshot" else frozenset()


def misfit(has: Mapping[str, Any]) -> str | None:
    """What the unit's type keeps from it that its drop-in should set, as one sentence; None if nothing."""
    if not _barred(has):
        return None
    return (
        "with Type=oneshot systemd refuses Restart=always, so the drop-in leaves it out: systemd itself does not restart the "
        "server after an exit with status 0; Type=exec (or notify, as for podman) would let it"
    )


def _all(has: Mapping[str, Any], pinned: int | None, own: Mapping[str, str]) -> list[tuple[Line, bool]]:
    def number(name: str) -> int:
        value = has.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    limit = longest(stop_s(pinned), own)
    stop = number("TimeoutStopUSec")
    interval, burst = number("StartLimitIntervalUSec"), number("StartLimitBurst")
    memory = f" It pins about {format_gb(pinned, 0)}." if pinned else ""
    if limit > stop_s(pinned):
        memory = " An earlier look at the server found that it pins so much."
    return [
        (
            Line(
                "Unit",
                "Wants",
                WATCHDOG,
                "Starting the server starts its watchdog. Only in this direction: were it the watchdog that wants the server, "
                "a restart of the watchdog would start a server that a person has stopped. And in no order: else systemd would "
                "keep the watchdog down while the server starts or stops.",
            ),
            WATCHDOG not in (has.get("Wants") or []),
        ),
        (
            Line(
                "Unit",
                "StartLimitIntervalSec",
                "1800",
                "systemd gives up after five starts within half an hour. Its default of 10 s never ends a loop of slow starts; "
                "the watchdog has a stricter budget of its own.",
            ),
            interval < 600 * SECOND,
        ),
        (Line("Unit", "StartLimitBurst", "5", "See above."), interval < 600 * SECOND or not 0 < burst <= 10),
        (
            Line("Service", "Restart", "always", "A crashed SGLang can exit with status 0, which on-failure takes for a wish."),
            has.get("Restart") != "always",
        ),
        (
            Line("Service", "RestartSec", "10", "Time for the GPUs and the port of the old processes to be free again."),
            number("RestartUSec") < 5 * SECOND,
        ),
        (
            Line(
                "Service",
                "TimeoutStopSec",
                str(limit),
                f"Time for a drain and for the kernel to unpin host memory, but an end to a drain that never ends.{memory}",
            ),
            stop < limit * SECOND or stop >= INFINITY_USEC,
        ),
        (
            Line(
                "Service",
                "KillMode",
                "mixed",
                "SIGTERM to the main process alone: it drains, and its schedulers have no handler and would die before the "
                "requests are done. At the end SIGKILL goes to all, so that none survives to hold a GPU.",
            ),
            has.get("KillMode") != "mixed",
        ),
        (
            Line(
                "Service",
                "LogRateLimitIntervalSec",
                "1s",
                'The line that says "ready" must not be lost in a flood of others. (0 would mean journald\'s own limit.)',
            ),
            _log_limited(has),
        ),
        (Line("Service", "LogRateLimitBurst", "1000000", "See above."), _log_limited(has)),
        (
            Line("Service", "LimitMEMLOCK", "infinity", "The hierarchical cache and the interconnect lock host memory."),
            number("LimitMEMLOCK") < INFINITY_USEC,
        ),
        (
            Line(
                "Service",
                "OOMScoreAdjust",
                str(OOM_SCORE),
                "When the host runs out of memory the kernel should not choose the server first: its start is dear.",
            ),
            number("OOMScoreAdjust") > OOM_SCORE,
        ),
        (
            Line("Service", "IOAccounting", "yes", "How much is read from disk says whether weights are still being loaded."),
            has.get("IOAccounting") is not True,
        ),
    ]


def _log_limited(has: Mapping[str, Any]) -> bool:
    """Whether lines can be lost: fewer than 100,000 a second are let through, or journald's own limit holds (interval 0)."""
    interval, burst = has.get("LogRateLimitIntervalUSec"), has.get("LogRateLimitBurst")
    if not isinstance(interval, int) or not isinstance(burst, int) or interval == 0:
        return True
    return burst < interval / SECOND * 100_000


def text(wanted: list[Line], unit: str) -> str:
    """The drop-in as a file."""
    parts = [f"# Written by `sglang-watchdog setup` for {unit}; `sglang-watchdog setup --undo` takes it away.\n"]
    for section in ("Unit", "Service"):
        mine = [line for line in wanted if line.section == section]
        if mine:
            parts.append(f"\n[{section}]\n" + "".join(f"# {line.reason}\n{line.key}={line.value}\n" for line in mine))
    return "".join(parts)


def settings(content: str) -> dict[str, str]:
    """What a drop-in sets."""
    return dict(re.findall(r"^(\w+)=(.*)$", content, re.MULTILINE))


def longest(limit: int, own: Mapping[str, str]) -> int:
    """The stop limit in seconds, not shorter than that of an earlier drop-in."""
    earlier = own.get("TimeoutStopSec", "")
    return max(limit, int(earlier)) if re.fullmatch(r"[0-9]{1,6}", earlier) else limit
