"""Ends: crashes that systemd repairs or not, stops that somebody asked for, stops that never end."""

from tests.incidents import wording
from tests.incidents.case import MAY, NOT, case, must
from tests.incidents.sim import Sim

T = 600.0


def child_dies(s: Sim, name: str = "scheduler_3", code: int = -9, *, mute_s: float = 5.6) -> None:
    """One child is killed: 0.5.23 notices within a second, is mute for a while, then ends."""
    s.log(wording.child_crashed(name, s.pid + 5, code))
    s.log(wording.SIGQUIT)
    s.engine.stuck = True
    s.mute = True
    s.looks.gone.add("sglang::detokenizer" if name == "detokenizer" else "sglang::scheduler_TP3")
    s.after(6, lambda: s.log("Waiting 60.0 seconds for CUDA coredumps before exiting.") if s.mute else None)
    s.after(mute_s, lambda: s.exit(code="killed", status=9))


@case("sgl-duplicate-rid-crash", "sgl-probe-rid-collision-crash", until=1400, variants=("plain", "no-metrics", "busy"))
def rank_killed_and_noticed(s: Sim) -> None:
    s.at(T, lambda: child_dies(s))


@case(
    "sgl-scheduler-rss-60gb",
    until=1400,
    variants=("plain", "0.5.9", "no-metrics"),
    restart=must(T, T + 60, "killed by the kernel for memory"),
    alert=NOT,
)
def rank_killed_for_memory(s: Sim) -> None:
    """Nobody notices: the main process lives on, and what the rank held is free."""

    def act() -> None:
        s.looks.gone.add("sglang::scheduler_TP3")
        s.looks.oom_kills = 1
        s.looks.anon.go(0, 0, s.looks.anon.value(s.now) * 7 / 8)
        s.engine.stuck = True

    s.at(T, act)


@case(
    "sgl-duplicate-rid-crash", until=1400, variants=("plain", "0.5.9"), restart=must(T + 76, T + 150, "scheduler_tp3"), alert=MAY
)
def fatal_line_then_a_rank_dies_and_nothing_ends(s: Sim) -> None:
    def act() -> None:
        s.exception("RuntimeError: CUDA error: unspecified launch failure", 1)
        s.engine.stuck = s.unhealthy = True

    s.at(T, act)
    s.at(T + 6, lambda: s.looks.zombies.add("sglang::scheduler_TP3"))


@case("sgl-duplicate-rid-crash", until=1400, variants=("plain", "no-metrics", "one-gpu", "slow-probes"))
def detokenizer_killed_and_noticed(s: Sim) -> None:
    s.at(T, lambda: child_dies(s, "detokenizer", mute_s=66.5))


@case(
    "sgl-idle-leak-check-crash",
    "sgl-kimi-k25-load-test-crash",
    "sgl-probe-pileup-crash",
    until=1500,
    variants=("plain", "0.5.9", "one-gpu"),
)
def exception_then_restart_by_systemd(s: Sim) -> None:
    def act() -> None:
        s.exception(
            "ValueError: token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=159277, available_size=158312"
        )
        s.log(wording.SIGQUIT)
        s.after(0.4, s.exit)

    s.at(T, act)


@case(
    "sgl-idle-leak-check-crash",
    until=1300,
    variants=("plain", "0.5.9", "no-metrics"),
    restart=must(T, T + 300),
    restart_policy="no",
)
def crash_that_nobody_repairs(s: Sim) -> None:
    def act() -> None:
        s.exception("AssertionError: q.shape[0] (1) does not match qo_indptr[-1] (5)")
        s.log(wording.SIGQUIT)
        s.after(0.4, s.exit)

    s.at(T, act)


@case(
    "sgl-idle-leak-check-crash",
    "systemd-start-limit-counts-wrong",
    until=3600,
    variants=("plain", "no-metrics", "one-gpu"),
    withhold=must(T + 600, T + 1600, "soon after each start"),
    alert=must(T, T + 30),
    burst=4,
)
def crashes_soon_after_each_start(s: Sim) -> None:
    """Each life dies of the same error a minute after it was ready, until systemd gives up: the next one would serve no longer."""

    def crash() -> None:
        s.exception("ValueError: token_to_kv_pool_allocator memory leak detected! available_size=158312")
        s.log(wording.SIGQUIT)
        s.after(0.4, s.exit)

    s.after_start = lambda: s.after(60.0, crash)
    s.at(T, crash)


@case("vllm-exit-0-on-engine-death", until=1300, variants=("plain", "0.5.9", "no-metrics", "bare"), restart=must(T, T + 300))
def ends_with_status_0(s: Sim) -> None:
    def act() -> None:
        s.log("INFO:     Shutting down")
        s.log("INFO:     Application shutdown complete.")
        s.log(f"INFO:     Finished server process [{s.pid}]")
        s.exit(code="exited", status=0)

    s.at(T, act)


@case("vllm-exit-0-on-engine-death", until=1300, variants=("plain",), restart_policy="always")
def ends_with_status_0_and_comes_back(s: Sim) -> None:
    s.at(T, lambda: s.exit(code="exited", status=0))


@case("sgl-watchdog-300cpu", until=1500, variants=("0.5.9", "0.5.5"))
def own_watchdog_fired(s: Sim) -> None:
    def act() -> None:
        for i in range(8):
            s.log(wording.watchdog_fired(s.setup.version, 300), f"TP{i}")
        s.log("Received sigquit from a child proces. It usually means the child failed.")
        s.after(3, s.exit)

    s.at(T - 30, lambda: setattr(s.engine, "stuck", True))
    s.at(T, act)


@case("restart-and-stop-by-hand", until=1800, variants=("plain", "0.5.9", "no-metrics", "one-gpu"), alert=NOT)
def restart_by_hand(s: Sim) -> None:
    s.at(T, lambda: s.stop("restart", drain_s=25))


@case("restart-and-stop-by-hand", until=1800, variants=("plain", "0.5.9", "bare"), alert=NOT)
def stop_and_start_by_hand(s: Sim) -> None:
    s.at(T, lambda: s.stop("stop", drain_s=25))
    s.at(T + 400, lambda: s.boot())


@case("restart-and-stop-by-hand", until=1300, variants=("plain", "0.5.9"), alert=NOT)
def sigterm_without_a_job(s: Sim) -> None:
    """Somebody sent SIGTERM past systemd: the server drains and ends with status 0."""

    def act() -> None:
        s.draining = True
        s.log(wording.SIGTERM)
        for k in range(1, 25):
            s.after(5.0 * k, lambda: s.log("Gracefully exiting... Remaining number of requests 2."))
        s.after(122, lambda: s.exit(code="exited", status=0))

    s.at(T, act)


@case(
    "sgl-crash-dump-on-clean-exit",
    "dynamo-worker-not-exiting",
    until=1800,
    variants=("plain", "0.5.9", "no-metrics"),
    alert=must(T + 180, T + 240, "sigkill"),
)
def long_drain_ended_by_sigkill(s: Sim) -> None:
    s.at(T, lambda: s.stop("stop", drain_s=180, killed=True))
    s.at(T + 150, lambda: s.log("Dumped 3 finished and 2 unfinished requests before crash to /tmp/crash_dump_1.pkl"))


@case("dynamo-worker-not-exiting", until=1800, variants=("plain", "bare"), alert=must(T + 180, T + 240, "sigkill"))
def restart_by_hand_ended_by_sigkill(s: Sim) -> None:
    s.at(T, lambda: s.stop("restart", drain_s=180, killed=True))


@case(
    "systemd-start-limit-counts-wrong", until=1500, variants=("plain", "no-metrics"), alert=must(T + 30, T + 120, "start limit")
)
def restart_by_hand_refused_by_the_start_limit(s: Sim) -> None:
    """The stop is done, the start is refused: nobody wanted the server down."""
    s.at(T, lambda: s.stop("restart", drain_s=25, refused=True))


@case("systemd-start-limit-counts-wrong", until=1500, variants=("plain",), alert=must(T + 300, T + 360, "requires"))
def start_by_hand_refused_by_a_dependency(s: Sim) -> None:
    s.at(T, lambda: s.stop("stop", drain_s=25))
    s.at(T + 300, lambda: s.job("new", "start"))
    s.at(T + 300, lambda: s.job("removed", "start", "dependency"))


@case("sgl-unhealthy-makes-sigterm-brutal", until=1500, variants=("plain",))
def drain_is_cut_short(s: Sim) -> None:
    s.at(T, lambda: s.stop("restart", drain_s=3))
    s.at(T + 1, lambda: s.log("Signal SIGTERM received while health check failed. Force exiting."))


@case("sgl-sigterm-ignored-during-start", until=1200, variants=("plain", "0.5.9"), mid_life=False, alert=NOT)
def stopped_while_starting(s: Sim) -> None:
    s.at(20, s.boot)

    def stop() -> None:
        s.job("new", "stop")
        s.systemd("Stopping sglang-kimi.service - SGLang server (kimi-k2.5)...")
        s._unit("deactivating", "stop-sigterm")
        s.start_killed = True

        def dead() -> None:
            s.lives += 1
            s.looks.emptied()
            s.systemd("sglang-kimi.service: State 'stop-sigterm' timed out. Killing.")
            s._unit("failed", "failed", main_pid=None, exec_main_code="killed", exec_main_status=9, result="timeout")
            s.job("removed", "stop", "done")

        s.after(180, dead)

    s.at(120, stop)


@case(
    "vllm-uvm-spin-unkillable",
    "llamaserver-needs-kill9",
    until=2000,
    variants=("plain", "0.5.9"),
    alert=must(T + 180, T + 900, "reboot"),
    withhold=MAY,
)
def stop_never_ends(s: Sim) -> None:
    def stop() -> None:
        s.job("new", "stop")
        s.systemd("Stopping sglang-kimi.service - SGLang server (kimi-k2.5)...")
        s._unit("deactivating", "stop-sigterm")
        s.draining = True
        s.log(wording.SIGTERM)
        s.after(180, lambda: s.systemd("sglang-kimi.service: State 'stop-sigterm' timed out. Killing."))
        s.after(180, lambda: s._unit("deactivating", "stop-sigkill", main_pid=None, exec_main_code="killed", exec_main_status=9))
        s.after(180, lambda: setattr(s, "listening", False))

    s.at(T, stop)


@case("vllm-uvm-spin-unkillable", until=1500, variants=("plain", "0.5.9"), withhold=must(T + 10, T + 500, "reboot"))
def crash_leaves_an_unkillable_rank(s: Sim) -> None:
    """The main process is gone, systemd gave up on what is left: a restart would find its GPU taken."""

    def act() -> None:
        s.exception("RuntimeError: CUDA error: unspecified launch failure")
        s.ready = s.listening = False
        s.engine.stuck = True
        s.engine.drop_all()
        s.looks.gone |= {n for n in s.looks.names() if not n.endswith("TP3")}
        s._unit("deactivating", "final-sigkill", main_pid=None, exec_main_code="killed", exec_main_status=9, result="signal")

        def left() -> None:
            s.systemd("sglang-kimi.service: Processes still around after final SIGKILL. Entering failed mode.")
            s._unit("failed", "failed", result="timeout")

        s.after(180, left)

    s.at(T, act)


@case("stopped before we looked", until=900, variants=("plain",), mid_life=False, alert=NOT)
def down_when_first_seen(s: Sim) -> None:
    pass


@case(
    "systemd-start-limit-counts-wrong",
    until=900,
    variants=("plain",),
    mid_life=False,
    restart=MAY,
    withhold=MAY,
    alert=must(0, 600),
)
def failed_when_first_seen(s: Sim) -> None:
    s.at(0.5, lambda: s._unit("failed", "failed", result="start-limit-hit", exec_main_code="exited", exec_main_status=1))


@case("host goes down", until=900, variants=("plain",), alert=NOT)
def host_goes_down(s: Sim) -> None:
    s.looks.self_report = {}
    s.at(T, lambda: setattr(s.looks, "self_report", {"shutting_down": True}))
    s.at(T, s.looks.look_self)
    s.at(T + 1, lambda: s.stop("stop", drain_s=20, told=False))


assert MAY
