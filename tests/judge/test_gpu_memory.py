"""Errors in the memory of GPUs that go on working: told once, until the GPU was reset; no reason to restart the server."""

from typing import Any

from watchdog import observation as o
from watchdog.judge.engine import Engine
from watchdog.judge.verdict import Intent
from watchdog.replay import settings_of

SECOND = "0000:27:00.0"
REMAP = "NVRM: Xid (PCI:0000:27:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu"


class Host:
    """Two GPUs under a server, looked at every 5 s."""

    def __init__(self) -> None:
        self.engine = Engine(settings_of(o.Header(server="kimi")), mid_life=True)
        self.t = 0.0
        self.said: list[Intent] = []
        self.errors: int | None = 0
        self.pending: bool | None = False
        self.feed(o.Unit(t=0.0, load_state="loaded", active_state="active", sub_state="running", since=-7200.0))

    def feed(self, x: o.Observation) -> None:
        self.said += [e.intent for e in self.engine.observe(x) if e.intent is not None]

    def look(self, seconds: float, **changes: Any) -> "Host":
        for name, value in changes.items():
            setattr(self, name, value)
        end = self.t + seconds
        while self.t < end:
            self.t += 5.0
            first = o.GpuDevice(index=0, pci="0000:16:00.0", ecc_uncorrected=0, retired_pending=False)
            second = o.GpuDevice(index=1, pci=SECOND, ecc_uncorrected=self.errors, retired_pending=self.pending)
            self.feed(o.Gpu(t=self.t, ok=True, gpus=[first, second], expected=2))
        return self

    def kernel(self, message: str) -> "Host":
        self.t += 1.0
        self.feed(o.Kernel(t=self.t, message=message))
        return self

    def told(self) -> list[str]:
        return [f"{i.action} {i.reason}" for i in self.said]


TOLD = ["alert GpuResetDue"]


def test_a_row_that_waits_to_be_replaced_names_the_gpu_and_its_reset() -> None:
    host = Host().look(60).kernel(REMAP).look(60, errors=1, pending=True).look(7200)
    assert host.told() == TOLD
    alert = host.said[0]
    assert alert.severity == "warning" and f"GPU 1 ({SECOND})" in alert.message and "Xid 63" in alert.message
    assert f"--gpu-reset -i {SECOND}" in str(alert.advice)


def test_each_sign_alone_is_told() -> None:
    assert Host().look(60).kernel(REMAP).look(600).told() == TOLD
    assert Host().look(60).look(600, pending=True).told() == TOLD
    counted = Host().look(60).look(600, errors=5)
    assert counted.told() == TOLD and "5 uncorrectable memory errors" in counted.said[0].message
    for line in ("48, pid='<unknown>', name=<unknown>, DBE", "94, pid=8123, name=sglang::schedul, Contained: SM (0x0)"):
        assert Host().look(60).kernel(f"NVRM: Xid (PCI:0000:27:00): {line}").look(600).told() == TOLD, line
    drain = "154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    assert Host().look(60).kernel(f"NVRM: Xid (PCI:0000:27:00): {drain}").look(600).told() == TOLD


def test_what_stood_there_when_we_came_is_old_unless_a_reset_is_due() -> None:
    assert Host().look(600, errors=7).told() == []
    assert Host().look(600, errors=7, pending=True).told() == TOLD
    # The kernel's lines of the last minutes are read at our start, too: NVML says that the GPU was reset since.
    assert Host().kernel(REMAP).look(600).told() == ["alert GpuResetDue", "clear GpuResetDue"]


def test_corrected_errors_are_silent() -> None:
    host = Host().look(60).kernel("NVRM: Xid (PCI:0000:27:00): 92, pid=1, name=python3, High single-bit ECC error rate")
    assert host.look(600).told() == []


def test_it_holds_until_the_gpu_was_reset() -> None:
    host = Host().look(60).look(60, errors=1, pending=True)
    host.feed(o.Unit(t=host.t, inv="b" * 32, active_state="active", sub_state="running", main_pid=7, since=host.t))
    host.feed(o.Log(t=host.t, inv="b" * 32, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!"))
    host.look(600).look(60, errors=None, pending=None).look(600, errors=1, pending=True)
    assert host.told() == TOLD
    host.look(600, errors=0, pending=False)
    assert host.told() == [*TOLD, "clear GpuResetDue"]


def test_a_reset_shows_in_the_flag_alone_too() -> None:
    assert Host().look(60).look(60, pending=True).look(300, pending=False).told() == [*TOLD, "clear GpuResetDue"]


def test_signs_of_one_error_are_told_once_and_new_ones_again() -> None:
    host = Host().look(60).kernel("NVRM: Xid (PCI:0000:27:00): 48, pid=1, name=python3, DBE").kernel(REMAP)
    host.look(900, errors=1, pending=True).look(900, errors=2)
    assert host.told() == TOLD
    host.look(7200).look(60, errors=3)
    assert host.told() == TOLD * 2


def test_an_error_that_leaves_nothing_waiting_is_told_of_for_a_day() -> None:
    host = Host().look(60).look(80_000, errors=1)
    assert host.told() == TOLD
    assert host.look(8_000).told() == [*TOLD, "clear GpuResetDue"]


def test_a_row_that_cannot_be_replaced_is_a_fault_of_the_gpu_and_told_as_that() -> None:
    host = Host().look(60).kernel("NVRM: Xid (PCI:0000:27:00): 64, Row Remapper: recording failure").look(600, errors=1)
    assert host.told() == ["alert DeviceFault"] and "replaced" in str(host.said[0].advice)
