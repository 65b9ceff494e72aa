"""Servers of which probes tell nothing: refused on the way, not made, or not the ones that could fail; and what else tells."""

from tests.incidents import wording
from tests.incidents.case import MAY, case, must
from tests.incidents.cases_hang import freeze
from tests.incidents.sim import Sim

T = 600.0


@case("sgl-deepgemm-warmup-23min", until=1800, variants=("plain", "no-metrics", "bare"), rate=0.05, watchdog_s=20000.0)
def compiles_within_the_ranks_after_readiness(s: Sim) -> None:
    """No compiler is to be seen: only the log tells of it."""

    def begin() -> None:
        s.log("Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)", "TP0")
        s.log("Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=7168, K=8192, num_groups=1 with all Ms.", "TP0")
        s.engine.stuck = True

    def end() -> None:
        s.engine.stuck = False
        s.engine._busy = False
        s.engine.wake()

    s.at(T, begin)
    s.at(T + 720, end)


def refused(s: Sim) -> None:
    """A gateway lets nothing of ours through, from the first minute on."""
    no = {"outcome": "status", "status": 403, "total_s": 0.002, "body": "Forbidden"}
    s.looks.health_as = s.looks.chat_as = lambda: dict(no)


@case("sgl-100util-lowpower-deepseek", until=1800, variants=("plain", "0.5.9"), watchdog_s=20000.0, restart=must(T + 60, T + 600))
def hang_behind_a_gateway(s: Sim) -> None:
    """No probe of ours can tell; counters of each step and the GPUs do."""
    refused(s)
    freeze(s, power=(1.0, 115.0))


@case(
    "sgl-100util-lowpower-deepseek",
    until=1800,
    variants=("no-metrics", "one-gpu-no-metrics"),
    watchdog_s=20000.0,
    alert=must(0, T + 900, "no batch"),
)
def hang_behind_a_gateway_without_counters(s: Sim) -> None:
    """A silent log and GPUs that spin: too little to end a server for, and too much to say nothing."""
    refused(s)
    freeze(s, power=(1.0, 115.0))


@case(
    "sgl-heartbeat-6min-old",
    until=1800,
    variants=("no-metrics",),
    watchdog_s=20000.0,
    probes=False,
    restart=must(T + 60, T + 600),
)
def hang_told_by_health_checks_of_others(s: Sim) -> None:
    freeze(s, power=(0.0, 95.0))

    def asked() -> None:
        s.log(wording.health_failed(s.clock(s.now - 20), s.clock(s.engine.heartbeat_at)))
        s.after(30, asked)

    s.at(T + 20, asked)


@case("slime-403-300-retries", until=3000, variants=("no-metrics", "one-gpu-no-metrics"), alert=MAY, rate=0.01)
def rest_behind_a_gateway(s: Sim) -> None:
    """The last batch line before a rest tells of a request that ended a moment later; nothing is hung."""
    refused(s)


@case(
    "vllm-12-days-zero-completions",
    until=2000,
    variants=("one-gpu-no-metrics", "no-metrics", "bare"),
    shallow_health=True,
    watchdog_s=20000.0,
    rate=0.0,
    restart=MAY,
    alert=must(500, 1700, "no answer"),
)
def hung_since_before_we_looked(s: Sim) -> None:
    """No batch was ever seen, and /health asks nobody: only canaries tell. With GPUs in sight, it is restarted; else told."""
    freeze(s, 0.5, power=(1.0, 115.0))


@case("somebody between us and the server", until=2400, variants=("plain", "no-metrics", "0.5.9", "one-gpu"), rate=0.004)
def turned_away_on_the_way_at_night(s: Sim) -> None:
    """A firewall answers in the server's place: the port is held, and the few who ask are served."""
    no = {"outcome": "refused", "connect_s": 0.001, "total_s": 0.001}
    s.at(
        T,
        lambda: [setattr(s.looks, kind, lambda: dict(no)) for kind in ("health_as", "chat_as", "models_as", "ready_as")] and None,
    )


@case("somebody between us and the server", until=2400, variants=("plain", "no-metrics", "0.5.9", "one-gpu"), rate=0.006)
def reset_on_the_way_at_night(s: Sim) -> None:
    no = {"outcome": "reset", "connect_s": 0.001, "total_s": 0.002}
    s.at(
        T,
        lambda: [setattr(s.looks, kind, lambda: dict(no)) for kind in ("health_as", "chat_as", "models_as", "ready_as")] and None,
    )


@case(
    "hang-with-health-ok",
    until=2900,
    variants=("plain", "one-gpu"),
    metrics=False,
    logs=False,
    shallow_health=True,
    watchdog_s=20000.0,
    restart=must(T + 300, T + 1700),
)
def only_canaries_and_gpus_tell(s: Sim) -> None:
    """No line, no counter, and a /health that asks nobody: GPUs that do nothing while eight canaries wait in vain."""
    freeze(s, power=(1.0, 115.0))
