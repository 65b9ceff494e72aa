"""What was under way, or over, when we first looked."""

from tests.incidents import wording
from tests.incidents.case import NOT, case, must
from tests.incidents.sim import Sim

T = 600.0


@case("stopped before we looked", until=900, variants=("plain", "no-metrics"), mid_life=False, alert=NOT)
def down_with_its_last_invocation_when_first_seen(s: Sim) -> None:
    """systemd keeps the InvocationID of a unit that is down: the same again half a minute later is no end."""
    s.out.clear()
    s.inv = "5" * 32
    s._unit("inactive", "dead", since=-90_000.0, exec_main_code="exited")


@case("stopped before we looked", until=900, variants=("plain", "0.5.9", "no-metrics"), alert=NOT)
def stopping_when_first_seen(s: Sim) -> None:
    """Neither the job nor PID 1's and the server's first words about the stop were seen."""
    s.out.clear()
    s.lose = lambda line: wording.SIGTERM in line
    s.stop("stop", drain_s=60, told=False)


@case("stopped before we looked", until=1500, variants=("plain", "0.5.9", "no-metrics"), alert=NOT)
def stop_that_nobody_tells_of(s: Sim) -> None:
    s.lose = lambda line: wording.SIGTERM in line
    s.at(T, lambda: s.stop("stop", drain_s=40, told=False))


@case("stopped before we looked", until=690, variants=("plain", "0.5.9", "no-metrics"), alert=NOT)
def draining_by_a_signal_when_first_seen(s: Sim) -> None:
    """Somebody sent SIGTERM past systemd, and only the later lines of the drain are seen."""
    s.out.clear()
    s.tell_unit()
    s.draining = True
    for k in range(1, 20):
        s.at(5.0 * k, lambda: s.log("Gracefully exiting... Remaining number of requests 2."))
    s.at(97.0, lambda: s.exit(code="exited", status=0))


def seen_late(s: Sim, *, stuck: str | None = None) -> None:
    """The unit was up for more than an hour when we began, and was never ready."""
    s.boot(job=None, stuck=stuck)
    s.out.clear()
    s._unit("active", "running", since=-4000.0)
    s.looks.look_port()


@case(
    "sgl-kimi-thinking-stuck-after-load",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu"),
    restart=must(300, 2000),
    alert=NOT,
    rate=0.0,
)
def start_long_stuck_when_first_seen(s: Sim) -> None:
    seen_late(s, stuck="init")
    s.at(1, lambda: setattr(s.looks, "sleeping", "S"))


@case(
    "vllm-weight-load-10min",
    until=2400,
    variants=("plain", "no-metrics", "0.5.9", "one-gpu"),
    alert=NOT,
    start={"weights": 1500.0},
    rate=0.0,
)
def slow_start_when_first_seen(s: Sim) -> None:
    seen_late(s)
