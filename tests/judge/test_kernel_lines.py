"""Kernel log lines as drivers and kernels write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.judge import xid
from watchdog.judge.kernel_lines import KernelFact, Kind, classify


def fact(line: str) -> KernelFact:
    got = classify(line)
    assert got is not None, line
    assert got.sentence and not got.sentence.endswith(".")
    return got


def test_an_application_xid_names_its_process_and_blocks_nothing() -> None:
    got = fact(
        "NVRM: Xid (PCI:0000:da:00): 31, pid=88123, name=python3, channel 0x0000002c, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    )
    assert (got.kind, got.number, got.pci, got.pid, got.process) == (Kind.XID, 31, "0000:da:00.0", 88123, "python3")
    assert got.fault == "application" and got.helps == "restart_app" and not got.blocks_restart


@pytest.mark.parametrize("number", [8, 13, 31, 32, 39, 43, 45, 48, 63, 68, 69, 80, 92, 94, 127, 137])
def test_xids_that_never_block_a_restart(number: int) -> None:
    got = fact(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4994, name=sglang::schedul, something")
    assert got.number == number and not got.blocks_restart


@pytest.mark.parametrize(
    ("number", "helps"),
    [(number, "reset") for number in (46, 62, 64, 95, 109, 119, 120, 136, 140, 143, 155, 158)]
    + [(79, "reboot"), (151, "reboot")],
)
def test_xids_that_a_restart_cannot_cure(number: int, helps: str) -> None:
    got = fact(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid='<unknown>', name=<unknown>, something")
    assert got.blocks_restart and got.helps == helps and got.pid is None and got.process is None
    assert got.advice is not None and ("0000:3b:00.0" in got.advice or helps == "reboot") and "eboot" in got.advice


@pytest.mark.parametrize(
    ("rest", "blocks"),
    [
        ("74, pid=1234, name=python3, NVLink: fatal error detected on link 6(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", True),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)", True),
        ("145, RLW_REMAP Nonfatal XC1 i0 Link 03 (0x00000000)", False),
        ("144, SAW_MVB Non-fatal XC0 i0 Link 00 (0x00000000)", False),
    ],
)
def test_link_errors_block_where_they_are_fatal(rest: str, blocks: bool) -> None:
    got = fact(f"NVRM: Xid (PCI:0009:01:00): {rest}")
    assert got.blocks_restart is blocks and got.fault == "link" and got.pci == "0009:01:00.0"


@pytest.mark.parametrize(
    ("wanted", "kind", "helps", "blocks"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", Kind.RESET_NEEDED, "reset", True),
        ("0x0 (None) to 0x2 (Node Reboot Required)", Kind.RESET_NEEDED, "reboot", True),
        ("0x0 (None) to 0x2 (OS Reboot)", Kind.RESET_NEEDED, "reboot", True),
        ("0x0 (None) to 0x1 (PF FLR)", Kind.RESET_NEEDED, "reset", True),
        ("0x0 (None) to 0x4 (Drain and Reset)", Kind.RESET_NEEDED, "reset", False),
        ("0x0 (None) to 0x3 (Drain P2P)", Kind.RESET_NEEDED, "inspect", False),
        ("0x0 (None) to 0x9 (Something New)", Kind.RESET_NEEDED, "inspect", False),
        ("0x1 (GPU Reset Required) to 0x0 (None)", Kind.RECOVERED, "none", False),
    ],
)
def test_the_driver_says_itself_what_helps(wanted: str, kind: Kind, helps: str, blocks: bool) -> None:
    got = fact(f"NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from {wanted}")
    assert (got.kind, got.helps, got.blocks_restart) == (kind, helps, blocks)


def test_an_unknown_xid_is_told_honestly() -> None:
    got = fact("NVRM: Xid (0000:03:00): 9999, Channel 00000001")
    assert got.fault == "unknown" and got.helps == "inspect" and not got.blocks_restart and "does not explain" in got.sentence


@pytest.mark.parametrize(
    ("line", "pci"),
    [
        ("NVRM: Xid (PCI:0000:96:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:96:00.0"),
        ("NVRM: GPU 0000:96:00.0: GPU has fallen off the bus.", "0000:96:00.0"),
        ("NVRM: GPU at 18:00.0: GPU has fallen off the bus.", "0000:18:00.0"),
        (
            "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: (PCI ID: 10de:2901) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            "0000:18:00.0",
        ),
        ("NVRM: fallen off the bus and is not responding to commands.", None),
    ],
)
def test_fallen_off_the_bus_with_and_without_a_number(line: str, pci: str | None) -> None:
    got = fact(line)
    assert got.kind == Kind.BUS_LOST and got.pci == pci and got.blocks_restart and got.helps == "reboot"
    assert got.advice is not None and "power-cycle" in got.advice


@pytest.mark.parametrize("prefix", ["", "NVRM: "])
def test_memory_that_cannot_be_pinned_never_blocks_a_restart(prefix: str) -> None:
    got = fact(f"{prefix}Cannot map memory with base addr 0x7f2a14000000 and size of 0xa6c5f0 pages")
    assert got.kind == Kind.PIN_FAILED and not got.blocks_restart and "pinned" in got.sentence


@pytest.mark.parametrize(
    ("line", "also"),
    [
        ("NVRM: API mismatch: the client has the version 535.171.04, but", ""),
        (
            "NVRM: API mismatch: the client has the version 535.171.04, but\nNVRM: this kernel module has the version "
            "535.161.07.  Please\nNVRM: make sure that this kernel module and all NVIDIA driver\n"
            "NVRM: components have the same version.",
            "535.161.07",
        ),
    ],
)
def test_a_driver_that_does_not_match(line: str, also: str) -> None:
    got = fact(line)
    assert got.kind == Kind.DRIVER_MISMATCH and got.blocks_restart and "535.171.04" in got.sentence and also in got.sentence


@pytest.mark.parametrize(
    ("line", "helps", "pci"),
    [
        (
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
            "reboot",
            None,
        ),
        ("NVRM: GPU 0000:0d:00.0: nvAssertOkFailed: Reset required [NV_ERR_RESET_REQUIRED]", "reset", "0000:0d:00.0"),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1568)", "reboot", "0000:01:00.0"),
    ],
)
def test_a_gpu_that_needs_more_than_a_restart(line: str, helps: str, pci: str | None) -> None:
    got = fact(line)
    assert (got.kind, got.helps, got.pci, got.blocks_restart) == (Kind.RESET_NEEDED, helps, pci, True)


@pytest.mark.parametrize(
    ("line", "limited", "cgroup"),
    [
        (
            "Memory cgroup out of memory: Killed process 1234 (sglang::schedul) total-vm:81234kB, anon-rss:7kB, file-rss:0kB, "
            "shmem-rss:0kB, UID:0 pgtables:144kB oom_score_adj:0",
            True,
            None,
        ),
        ("Out of memory: Killed process 1234 (sglang::schedul) total-vm:81234kB, anon-rss:7kB", False, None),
        ("Out of memory: Kill process 1234 (sglang::schedul) score 903 or sacrifice child", False, None),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x.service,mems_allowed=0-1,oom_memcg=/system.slice/x.service,"
            "task_memcg=/system.slice/x.service,task=sglang::schedul,pid=1234,uid=0",
            True,
            "/system.slice/x.service",
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            "task_memcg=/system.slice/x.service,task=sglang::schedul,pid=1234,uid=0",
            False,
            "/system.slice/x.service",
        ),
    ],
)
def test_oom_kills(line: str, limited: bool, cgroup: str | None) -> None:
    got = fact(line)
    assert (got.kind, got.pid, got.process) == (Kind.OOM_KILL, 1234, "sglang::schedul")
    assert got.limited is limited and got.cgroup == cgroup and not got.blocks_restart


def test_a_hung_task() -> None:
    got = fact("INFO: task sglang::schedul:4994 blocked for more than 122 seconds.")
    assert (got.kind, got.pid, got.process, got.seconds) == (Kind.HUNG_TASK, 4994, "sglang::schedul", 122)


@pytest.mark.parametrize(
    ("away", "back", "name"),
    [
        ("nfs: server 10.0.4.4 not responding, still trying", "nfs: server 10.0.4.4 OK", "NFS server 10.0.4.4"),
        (r"CIFS: VFS: \\nas has not responded in 180 seconds. Reconnecting...", None, "SMB server nas"),
        ("CIFS VFS: Server nas has not responded in 120 seconds. Reconnecting...", None, "SMB server nas"),
        (
            "Lustre: a-OST0002-osc-ff: Connection to a-OST0002 (at 10.0.0.7@tcp) was lost; in progress operations using this "
            "service will wait for recovery to complete",
            "Lustre: a-OST0002-osc-ff: Connection restored to  (at 10.0.0.7@tcp)",
            "Lustre target a-OST0002",
        ),
        ("ceph: mds0 hung", "ceph: mds0 came back", "Ceph server mds0"),
        ("ceph: [8d6ac5f9 4231]: mds0 hung", "ceph: [8d6ac5f9 4231]: mds0 caps renewed", "Ceph server mds0"),
        (
            "libceph: mon2 (1)10.72.36.245:40083 session lost, hunting for new mon",
            "libceph: mon0 (1)10.72.36.243:40083 session established",
            "Ceph cluster",
        ),
    ],
)
def test_file_servers_that_go_and_come_back(away: str, back: str | None, name: str) -> None:
    gone = fact(away)
    assert gone.kind is Kind.STORAGE_AWAY and gone.sentence == f"The {name}" and not gone.blocks_restart
    if back is not None:
        assert (fact(back).kind, fact(back).share) == (Kind.STORAGE_BACK, gone.share)


@pytest.mark.parametrize(
    ("line", "pci"),
    [
        ("pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0", "0000:18:00.0"),
        (
            "pcieport 0000:16:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:18:00.0",
            "0000:18:00.0",
        ),
        ("nvidia 0000:18:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "0000:18:00.0"),
        ("pcieport 0000:16:01.0: DPC: containment event, status:0x1f01 source:0x0000", "0000:16:01.0"),
    ],
)
def test_pcie_errors(line: str, pci: str) -> None:
    got = fact(line)
    assert (got.kind, got.pci, got.fault, got.blocks_restart) == (Kind.PCIE, pci, "link", False)


def test_switch_errors_block_where_they_are_fatal() -> None:
    fatal = fact("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    assert (fatal.kind, fatal.number, fatal.blocks_restart, fatal.helps) == (Kind.SXID, 20034, True, "reset")
    passing = fact("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)")
    assert (passing.number, passing.blocks_restart, passing.advice) == (12028, False, None)


@pytest.mark.parametrize(
    "line",
    [
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1 offset:0x0)",
        "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400",
        "{1}[Hardware Error]: event severity: fatal",
        "Memory failure: 0x5c5a3b1: Sending SIGBUS to python3:4994 due to hardware memory corruption",
    ],
)
def test_hardware_errors_of_the_host(line: str) -> None:
    got = fact(line)
    assert got.kind == Kind.HARDWARE and not got.blocks_restart
    assert got.pid == (4994 if "SIGBUS" in line else None)


@pytest.mark.parametrize(
    "line",
    [
        "sglang::schedul[7578]: segfault at 7f1c00000028 ip 00007f1d3a2b41c7 sp 00007ffc11ab2d10 error 4 in libcuda.so.580.95.05",
        "traps: sglang::schedul[7578] general protection fault ip:7f1d3a2b41c7 sp:7ffc11ab2d10 error:0 in libc.so.6",
        "traps: sglang::schedul[7578] trap invalid opcode ip:7f1d3a2b41c7 sp:7ffc11ab2d10 error:0",
    ],
)
def test_crashes(line: str) -> None:
    got = fact(line)
    assert (got.kind, got.pid, got.process) == (Kind.CRASH, 7578, "sglang::schedul")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "perf: interrupt took too long (2849 > 2423), lowering kernel.perf_event_max_sample_rate to 76000",
        "NVRM: GPU 0000:96:00.0: GPU serial number is 1654924001337.",
        "NVRM: GPU at PCI:0000:03:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: Xid (invalid): some error",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "pcieport 0000:16:01.0: AER: Corrected error received: 0000:18:00.0",
        "nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0",
        "{1}[Hardware Error]: event severity: corrected",
        "mce: [Hardware Error]: Machine check events logged",  # said of corrected ones too
        "oom_reaper: reaped process 1234 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "a program that fallen off the bus",
        "nfs: server 10.0.4.4 not responding, timed out",  # who waited got an error, and waits no more
        "Lustre: MGC10.0.0.7@tcp: Connection to MGS (at 0@lo) was lost; in progress operations using this service will fail",
    ],
)
def test_lines_that_mean_nothing(line: str) -> None:
    assert classify(line) is None


PIECES = ["NVRM: ", "Xid (PCI:0000:3b:00): ", "GPU 00:00.0", "fallen off the bus", "Out of memory: Killed process 1 (", ")", ","]
PIECES += [
    "oom-kill:constraint=X,",
    "task_memcg=",
    "task=",
    "pid=",
    "blocked for more than",
    "task a:1 ",
    "SXid",
    "AER: ",
    "[1]: ",
]
PIECES += ["segfault at", "traps: ", "EDAC ", "changed from ", "to (", "154, ", "74, ", "pid='", "\n", "\x00", "ø"]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=60).map("".join))
def test_garbage_never_raises(line: str) -> None:
    got = classify(line)
    assert got is None or got.sentence


@pytest.mark.parametrize("piece", PIECES)
def test_no_line_takes_long(piece: str) -> None:
    line = (
        "NVRM: GPU fallen off the bus oom-kill:constraint=A, Xid RESET_REQUIRED blocked for more than ut of memory EDAC"
        + piece * 2000
    )
    began = time.process_time()
    classify(line)
    classify(line[20:])
    assert time.process_time() - began < 0.2


def test_the_table_is_consistent() -> None:
    for number, row in xid.TABLE.items():
        assert row.meaning and not row.meaning.endswith("."), number
        assert not (row.blocks_restart and row.helps not in ("reset", "reboot")), number
        assert not (row.fault == "application" and row.blocks_restart), number
