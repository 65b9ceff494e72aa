"""Settings of the unit and of the host that only show when something goes wrong, each with its cure. Pure.

Sources: systemd.exec(5), systemd.kill(5), systemd.service(5), journald.conf(5). That LogRateLimitIntervalSec=0 in a unit does not
turn the limit off was seen with systemd 252: it exports only what is not 0, and journald then takes its own default.
"""

from watchdog.units import GIB, format_gib
from watchdog.verify.findings import Item, odd, ok, unknown
from watchdog.verify.seen import Seen
from watchdog.wording import counted

AREA = "host"
LINES_A_SECOND = 3000.0
"""Eight ranks in trouble write so much; a limit above it cannot swallow the readiness line."""
SHM_LEAST = GIB
STOP_LEAST_S = 90.0


def check(seen: Seen) -> list[Item]:
    """The findings of the settings."""
    if seen.unit is None or seen.unit.load_state == "not-found":
        return [shm(seen)]
    return [rate_limit(seen), kill_mode(seen), stop(seen), restart(seen), memlock(seen), shm(seen), hugepages(seen)]


def rate_limit(seen: Seen) -> Item:
    """Whether journald may drop lines of the unit."""
    expected = "lines are never dropped"
    s = seen.settings
    interval = s.rate_interval_s or s.journald_interval_s
    burst = s.rate_burst or s.journald_burst
    cure = "set LogRateLimitIntervalSec=1s and LogRateLimitBurst=1000000 in the unit (an interval of 0 does not turn it off)"
    if interval is None or burst is None:
        if s.rate_interval_s == 0 and s.journald_interval_s == 0:
            return ok(AREA, "LogRateLimit", expected, "off")
        return unknown(AREA, "LogRateLimit", expected, "not read")
    if interval == 0 or burst == 0 or burst / interval >= LINES_A_SECOND:
        return ok(
            AREA, "LogRateLimit", expected, "off" if 0 in (interval, burst) else f"{counted(burst, 'line')} in {interval:g} s"
        )
    whose = "the unit's" if s.rate_burst or s.rate_interval_s else "journald's own"
    return odd(
        AREA, "LogRateLimit", expected, f"{counted(burst, 'line')} in {interval:g} s ({whose}): readiness can get lost", cure
    )


def kill_mode(seen: Seen) -> Item:
    """Whether a stop ends all processes."""
    expected = "control-group or mixed"
    mode = seen.settings.kill_mode
    if mode is None:
        return unknown(AREA, "KillMode", expected, "not read")
    if mode in ("control-group", "mixed"):
        return ok(AREA, "KillMode", expected, mode)
    return odd(AREA, "KillMode", expected, mode, "set KillMode=mixed: schedulers that survive a stop hold GPU and host memory")


def stop(seen: Seen) -> Item:
    """Whether a stop has time for pinned memory, and an end."""
    expected = f"{STOP_LEAST_S:.0f} s to 30 min"
    if seen.settings.timeout_stop_s is None:
        return unknown(AREA, "TimeoutStopSec", expected, "not read")
    limit = seen.settings.timeout_stop_s
    if limit == float("inf"):
        return odd(AREA, "TimeoutStopSec", expected, "infinity", "set TimeoutStopSec=180: SGLang's drain has no end of its own")
    if limit < STOP_LEAST_S and (seen.hicache or seen.hicache is None):
        cure = "set TimeoutStopSec=180: unpinning hundreds of GB takes tens of seconds"
        return odd(AREA, "TimeoutStopSec", expected, f"{limit:g} s", cure)
    if limit > 1800:
        return odd(AREA, "TimeoutStopSec", expected, f"{limit:g} s", "set TimeoutStopSec=180")
    return ok(AREA, "TimeoutStopSec", expected, f"{limit:g} s")


def restart(seen: Seen) -> Item:
    """Whether systemd starts it again after a crash."""
    expected = "always"
    policy = seen.settings.restart
    if policy is None:
        return unknown(AREA, "Restart", expected, "not read")
    if policy == "always":
        return ok(AREA, "Restart", expected, policy)
    return odd(AREA, "Restart", expected, policy, "set Restart=always: a crashed SGLang can exit with status 0")


def memlock(seen: Seen) -> Item:
    """The limit on locked memory: CUDA pins without it, RDMA (InfiniBand, Mooncake) does not."""
    expected = "infinity"
    limit = seen.settings.memlock
    if limit is None:
        return unknown(AREA, "LimitMEMLOCK", expected, "not read")
    if limit == float("inf"):
        return ok(AREA, "LimitMEMLOCK", expected, "infinity")
    return odd(
        AREA, "LimitMEMLOCK", expected, format_gib(limit, 2), "set LimitMEMLOCK=infinity in the unit: pinning over RDMA needs it"
    )


def shm(seen: Seen) -> Item:
    """Room in /dev/shm, which NCCL and SGLang's own channels use."""
    expected = f"{format_gib(SHM_LEAST, 0)} free or more"
    host = seen.host
    if host is None or host.shm_free is None or host.shm_total is None:
        return unknown(AREA, "/dev/shm", expected, "not read")
    shown = f"{format_gib(host.shm_free)} of {format_gib(host.shm_total)} free"
    if host.shm_free < SHM_LEAST:
        return odd(AREA, "/dev/shm", expected, shown, "remove leftovers there, or mount it larger (size= of the tmpfs)")
    return ok(AREA, "/dev/shm", expected, shown)


def hugepages(seen: Seen) -> Item:
    """Huge pages: enough of them where the pool is to lie in them, none set aside in vain where not."""
    wanted = (seen.engine.env if seen.engine is not None else {}).get("SGLANG_HUGEPAGE_SIZE", "")
    expected = f"enough for the host pool ({wanted})" if wanted else "none set aside"
    host = seen.host
    if host is None or host.hugepages_total is None or host.hugepage_size is None or not host.mem_total:
        return unknown(AREA, "huge pages", expected, "not read")
    reserved = host.hugepages_total * host.hugepage_size
    shown = f"{format_gib(reserved)} set aside"
    if wanted and (seen.announced or 0) > reserved:
        return odd(AREA, "huge pages", expected, shown, "raise vm.nr_hugepages: SGLang falls back to small pages without a word")
    if not wanted and reserved > 0.02 * host.mem_total:
        return odd(AREA, "huge pages", expected, shown, "lower vm.nr_hugepages: nothing of this server uses them")
    return ok(AREA, "huge pages", expected, shown if reserved else "none")
