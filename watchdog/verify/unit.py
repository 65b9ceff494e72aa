"""The unit, its processes, its port, and the units that it leans on. Pure."""

from watchdog.sglang import processes
from watchdog.verify.findings import Item, bad, odd, ok, unknown
from watchdog.verify.seen import Seen
from watchdog.wording import counted

AREA = "unit"


def check(seen: Seen) -> list[Item]:
    """The findings of the unit."""
    items = [state(seen)]
    if seen.unit is not None and seen.unit.load_state != "not-found":
        items += [restarts(seen), ranks(seen)]
        if seen.server.endpoint:
            items.append(port(seen))
    return [*items, *deps(seen)]


def state(seen: Seen) -> Item:
    """Whether it runs."""
    expected = "active (running)"
    unit = seen.unit
    if unit is None:
        return unknown(AREA, "state", expected, seen.no_systemd or "systemd did not answer in time")
    if unit.load_state == "not-found":
        return bad(AREA, "state", expected, f"systemd knows no {seen.server.unit}", "check unit in the configuration")
    shown = f"{unit.active_state} ({unit.sub_state})"
    if unit.active_state is None:
        return unknown(AREA, "state", expected, "systemd did not tell it")
    if unit.active_state == "active":
        life = f", life {unit.invocation[:8]}" if unit.invocation else ""
        return ok(AREA, "state", expected, shown + life)
    if unit.active_state == "failed":
        shown += f", result {unit.result}"
    return bad(AREA, "state", expected, shown, f"look at: systemctl status {seen.server.unit}")


def restarts(seen: Seen) -> Item:
    """How often systemd had to start it anew."""
    expected = "no restart by systemd"
    unit = seen.unit
    if unit is None or unit.n_restarts is None:
        return unknown(AREA, "restarts", expected, "systemd did not tell them")
    starts = "" if seen.starts is None else f", {seen.starts} {'start' if seen.starts == 1 else 'starts'} within a day"
    if unit.n_restarts:
        return odd(AREA, "restarts", expected, f"{unit.n_restarts}{starts}", "find out what ended it: `journalctl -u UNIT`")
    return ok(AREA, "restarts", expected, f"none{starts}")


def ranks(seen: Seen) -> Item:
    """Whether each rank, the detokenizer and the main process are there."""
    procs = seen.procs
    wanted = processes.expected_ranks(seen.args) if seen.args else None
    expected = (
        f"{counted(len(wanted), 'scheduler')} and a detokenizer" if wanted else "a scheduler for each rank and a detokenizer"
    )
    if procs is None or (not procs.procs and seen.unit is not None and seen.unit.up):
        return unknown(AREA, "processes", expected, "they could not be read", "run this as root")
    titles = [p.name for p in procs.procs]
    if not titles:
        return bad(AREA, "processes", expected, "none", f"start it: systemctl start {seen.server.unit}")
    roles = [processes.role(title) for title in titles]
    found = {processes.rank(title) for title, role in zip(titles, roles, strict=True) if role == "scheduler"}
    engine = ", ".join(counted(roles.count(role), role) for role in ("scheduler", "detokenizer"))
    shown = f"{engine}, {counted(len(titles), 'process', 'processes')} in all"
    if not any(titles):
        return unknown(
            AREA, "processes", expected, f"{counted(len(titles), 'process', 'processes')} whose titles could not be read"
        )
    if wanted is None:
        return unknown(AREA, "processes", expected, f"{shown}; how many it should have is not known")
    missing = [rank or "the scheduler" for rank in wanted if rank not in found]
    if missing and roles.count("scheduler") < len(wanted):
        cure = "a rank that is gone does not come back: restart the unit"
        return bad(AREA, "processes", expected, f"{shown}; missing: {', '.join(missing)}", cure)
    if "detokenizer" not in roles and seen.server.endpoint:
        return bad(
            AREA, "processes", expected, f"{shown}; the detokenizer is missing", "no answer can come without it: restart the unit"
        )
    held = next((p for p, role in zip(procs.procs, roles, strict=True) if role != "other" and p.state in ("T", "t")), None)
    if held is not None:
        how = "held by a debugger" if held.state == "t" else "stopped by a signal"
        what = f"{shown}; {held.name} (pid {held.pid}) is {how} (state {held.state})"
        return bad(AREA, "processes", expected, what, "find out who holds it; `kill -CONT PID` lets a stopped one go on")
    return ok(AREA, "processes", expected, shown)


def port(seen: Seen) -> Item:
    """Whether it is this unit that listens on the server's port."""
    expected = f"this unit listens on {seen.server.base_url}"
    found = seen.port
    if found is None or found.listening is None:
        return unknown(AREA, "port", expected, "sockets could not be read")
    if not found.listening:
        return bad(AREA, "port", expected, "nobody listens", "it has not come so far yet, or --port differs from base_url")
    holder = f"pid {found.pid}" if found.pid else "a process"
    if found.in_unit is None:
        return unknown(AREA, "port", expected, "somebody listens; whether it is this unit is not to be seen", "run this as root")
    if not found.in_unit:
        return bad(AREA, "port", expected, f"{holder} of another unit listens", "end it, or give the server another port")
    connections = "" if found.established is None else f", {counted(found.established, 'connection')}"
    return ok(AREA, "port", expected, f"{holder} of this unit{connections}")


def deps(seen: Seen) -> list[Item]:
    """The units that the server leans on, as far as they are installed."""
    if seen.deps is None:
        return []
    items = []
    for name, state in sorted(seen.deps.units.items()):
        if state == "active":
            items.append(ok(AREA, name.removesuffix(".service"), "active", state))
        elif state == "failed":
            items.append(bad(AREA, name.removesuffix(".service"), "active", state, f"look at: systemctl status {name}"))
        else:
            items.append(odd(AREA, name.removesuffix(".service"), "active", state, f"start it: systemctl start {name}"))
    return items
