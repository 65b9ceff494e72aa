"""What proves that a life was ready: /health of old versions is 200 as soon as the port is open."""

import pytest

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Life, Phase
from watchdog.observation import Log, Observation, Probe, Server, Unit

INV = "a" * 32


def unit(t: float, active: str = "active", sub: str = "running") -> Unit:
    pid, code = (7, None) if active == "active" else (None, "killed")
    return Unit(
        t=t, inv=INV, load_state="loaded", active_state=active, sub_state=sub, main_pid=pid, since=0.0, exec_main_code=code
    )


def answered(t: float, probe: str = "health") -> Probe:
    return Probe(t=t, inv=INV, probe=probe, outcome="ok", status=200, total_s=0.003)


def version(text: str) -> Server:
    return Server(t=101.0, inv=INV, version=text)


READY = Log(t=250.0, inv=INV, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!")


def life(*seen: Observation) -> Life:
    f = Facts()
    for x in (unit(0.0), *seen):
        f.see(x)
    return f.life


@pytest.mark.parametrize(
    ("seen", "end", "ready"),
    [
        ([answered(100.0), version("0.4.6.post5")], 260.0, False),
        ([answered(100.0)], 260.0, False),
        ([answered(100.0), version("0.4.6.post5"), READY], 560.0, True),
        ([answered(100.0), version("0.4.6.post5"), answered(200.0, "chat")], 260.0, True),
        ([answered(100.0), version("0.4.10")], 260.0, True),
        ([answered(100.0), version("0.5.23")], 260.0, True),
        ([answered(100.0), version("0.4.6.post5")], 830.0, True),
    ],
)
def test_an_open_port_is_not_readiness_where_health_does_not_wait_for_it(
    seen: list[Observation], end: float, *, ready: bool
) -> None:
    """A life that outlasts the longest warm-up had been ready, though nothing told of it."""
    died = life(*seen, unit(end, "activating", "auto-restart")).deaths[-1]

    assert died.ready is ready
    assert died.early is not ready


def test_it_is_judged_as_a_server_that_serves_and_is_not_proven() -> None:
    up = life(answered(100.0), version("0.4.6.post5"))
    assert (up.phase(), up.proven) == (Phase.SERVING, False)
    assert life(answered(100.0), version("0.5.23")).proven
