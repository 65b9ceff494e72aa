"""What the GPUs, their driver and their fabric do to a start; memory that the driver does not pin."""

from tests.incidents.case import MAY, NOT, case, must
from tests.incidents.cases_start_fails import fails
from tests.incidents.sim import Sim


@case("nvsentinel-nvlink-down-after-boot", until=1500, mid_life=False, withhold=must(100, 1200, "fabric"))
def fabric_failed_for_good(s: Sim) -> None:
    s.looks.fabric = "failed"
    fails(s, "warmup", "RuntimeError: CUDA error: system not yet initialized")


@case("nvsentinel-nvlink-down-after-boot", until=1500, mid_life=False, alert=must(120, 400, "fabric"), restart=MAY)
def fabric_failed_and_the_start_hangs(s: Sim) -> None:
    s.looks.fabric = "failed"
    s.at(20, lambda: s.boot(stuck="init"))


@case("nvsentinel-nvlink-down-after-boot", until=1500, mid_life=False, alert=NOT)
def fabric_failed_for_a_moment(s: Sim) -> None:
    s.looks.fabric = "failed"
    s.at(75, lambda: setattr(s.looks, "fabric", "completed"))
    s.at(20, s.boot)


@case(
    "sgl-hicache-cudahostalloc-invalid",
    until=2400,
    variants=("plain", "0.5.9"),
    mid_life=False,
    withhold=must(250, 1800, "memlock"),
)
def pinning_is_refused(s: Sim) -> None:
    fails(s, "warmup", "RuntimeError: CUDA error: invalid argument")


@case(
    "sgl-hostregister-silently-ignored",
    until=1500,
    variants=("plain", "0.5.9"),
    mid_life=False,
    alert=must(150, 1200, "pin", "memlock"),
)
def pinning_failed_in_silence(s: Sim) -> None:
    s.at(5, s.boot)
    for _ in range(2):
        s.at(240, lambda: s.looks.kernel("Cannot map memory with base addr 0x7f2a14000000 and size of 0xa6c5f0 pages"))
