"""What can be known of a server that was there before we looked."""

import pytest

from watchdog.judge.facts.devices import Devices
from watchdog.judge.facts.life import Life, Phase
from watchdog.observation import Gpu, GpuDevice, Probe, Unit

LIFE = "a" * 32


@pytest.mark.parametrize(
    ("waited_s", "body", "phase"),
    [
        pytest.param(20.0, "", Phase.SERVING, id="it has asked its engine"),
        pytest.param(0.004, "", Phase.STARTING, id="it starts"),
        pytest.param(20.0, "<h1>503 Service Unavailable</h1>", Phase.STARTING, id="a proxy's word"),
    ],
)
def test_a_503_after_a_wait_comes_from_a_server_that_was_ready(waited_s: float, body: str, phase: Phase) -> None:
    life = Life()
    life.see_unit(
        Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", since=-1500.0, main_pid=7)
    )
    assert life.phase() is Phase.STARTING
    life.see_probe(
        Probe(t=30.0, inv=LIFE, probe="health", outcome="status", status=503, total_s=waited_s, limit_s=25.0, body=body)
    )
    assert life.phase() is phase


@pytest.mark.parametrize(("watts", "works"), [(490.0, True), (150.0, False)])
def test_power_near_the_limit_is_work_also_of_gpus_that_were_never_seen_at_rest(watts: float, works: bool) -> None:
    devices = Devices()
    for t in (0.0, 5.0, 10.0):
        gpu = GpuDevice(index=0, util=1.0, power_w=watts, power_limit_w=600.0)
        devices.see(Gpu(t=t, ok=True, expected=1, gpus=[gpu]), working=False, settled=False)
    assert devices.at_work(11.0) is works
