"""The daemon's figures at one moment, for the exporter."""

import platform
from collections.abc import Sequence

from watchdog import __version__
from watchdog.act.alerts import Counts
from watchdog.clock import Clock
from watchdog.sources import Run
from watchdog.view import server_view
from watchdog.watch import Watch
from watchdog.web.metrics import Figures, ServerFigures


def figures(
    clock: Clock,
    watches: Sequence[Watch],
    runs: Sequence[Run],
    counts: Counts | None,
    tick_lag_s: float,
    *,
    reload_ok: bool = True,
) -> Figures:
    """Everything that GET /metrics shows.

    Args:
        clock: the program's clock.
        watches: the watched servers.
        runs: all sources; of several of one name, one that fails counts.
        counts: of the alert channels.
        tick_lag_s: how late the last tick was, in seconds.
        reload_ok: whether the last configuration that was read was taken.
    """
    up: dict[str, bool | None] = {}
    for r in runs:
        up[r.source.name] = r.error is None and up.get(r.source.name) is not False
    return Figures(
        version=__version__,
        python=platform.python_version(),
        started=clock.wall(0.0).timestamp(),
        reload_ok=reload_ok,
        sources=up,
        tick_lag_s=tick_lag_s,
        dropped=sum(w.recorder.dropped for w in watches),
        alerts_sent=counts.sent if counts else {},
        alerts_failed=counts.failed if counts else {},
        alerts_dropped=counts.dropped if counts else {},
        alerts_waiting=counts.waiting if counts else {},
        servers=[_server(w) for w in watches],
    )


def _server(watch: Watch) -> ServerFigures:
    view = server_view(watch)
    policy, ledger, now = watch.server.restart, watch.engine.ledger, watch.clock.now()
    spent_short = sum(now - r.t < policy.budget_s for r in ledger.restarts)
    spent_long = sum(now - r.t < policy.budget_long_s for r in ledger.restarts)
    starting, memory = view["starting"] or {}, view["memory"]
    good = watch.engine.facts.answers.last_good_at
    return ServerFigures(
        name=watch.server.name,
        unit=watch.server.unit,
        mode=watch.mode,
        phase=view["phase"],
        well=view["well"] if view["phase"] != "unknown" else None,
        paused=view["paused"],
        conditions=list(watch.engine.conditions.values()),
        restarts=watch.tally.restarts,
        withheld=watch.tally.withheld,
        alerts=watch.tally.alerts,
        probe_durations=watch.tally.probe_durations,
        probe_failures=watch.tally.probe_failures,
        observations=watch.counts,
        budget_remaining={"short": max(0, policy.budget - spent_short), "long": max(0, policy.budget_long - spent_long)},
        host_pool={kind: memory[kind] for kind in ("expected", "announced", "seen")},
        start_progress=starting.get("ratio"),
        start_eta_s=starting.get("eta_s"),
        progress_age_s=view["work"]["step_age_s"],
        canary_age_s=None if good is None else now - good,
    )
