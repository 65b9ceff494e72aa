"""Lines of the kernel log → what they mean for a server on GPUs.

Wordings: NVIDIA's driver (open-gpu-kernel-modules; Fabric Manager User Guide for SXid), and the kernel's mm/oom_kill.c,
mm/memory-failure.c, kernel/hung_task.c, arch/x86/kernel/traps.c, drivers/pci/pcie/aer.c and dpc.c, drivers/edac,
drivers/acpi/apei. Of network file systems: net/sunrpc/clnt.c (NFS), fs/smb/client/connect.c (CIFS), fs/ceph/mds_client.c and
net/ceph/mon_client.c (Ceph), lustre/ptlrpc/import.c (Lustre).
"""

import re
from collections.abc import Callable
from enum import StrEnum

import msgspec

from watchdog.judge import xid
from watchdog.judge.xid import Fault, Helps

MAX_LINE = 2000
"""Characters of a line that are looked at."""


class Kind(StrEnum):
    """What sort of fact a line tells."""

    XID = "xid"
    BUS_LOST = "bus-lost"
    DRIVER_MISMATCH = "driver-mismatch"
    RESET_NEEDED = "reset-needed"
    RECOVERED = "recovered"
    """The driver wants nothing done to a GPU any more: proof that a reset has taken place."""
    SXID = "sxid"
    PCIE = "pcie"
    HARDWARE = "hardware"
    OOM_KILL = "oom-kill"
    HUNG_TASK = "hung-task"
    CRASH = "crash"
    PIN_FAILED = "pin-failed"
    STORAGE_AWAY = "storage-away"
    """A file server does not answer, and who waits for it goes on waiting."""
    STORAGE_BACK = "storage-back"


class KernelFact(msgspec.Struct, frozen=True, kw_only=True):
    """What one kernel line means.

    Attributes:
        kind: the sort of fact.
        sentence: what happened, for people; without its full stop.
        fault: whose fault it usually is.
        helps: what cures it.
        blocks_restart: a restart of the server is in vain before that.
        advice: what a person should do, or None.
        pci: the PCI address of the device as NVML shows it ("0000:96:00.0"), where the line names one.
        number: the Xid or SXid number.
        pid, process: the process that the line names; the kernel cuts a name to 15 characters.
        cgroup: of an OOM kill: the process's control group ("/system.slice/sglang.service"), where the line names it.
        limited: of an OOM kill: True where a control group's own limit was reached, False where the host's memory was full.
        seconds: of a hung task: for how long it has been blocked, in seconds.
        share: of a file server: what tells it from others, the same when it is away and when it is back.
    """

    kind: Kind
    sentence: str
    fault: Fault = "unknown"
    helps: Helps = "inspect"
    blocks_restart: bool = False
    advice: str | None = None
    pci: str | None = None
    number: int | None = None
    pid: int | None = None
    process: str | None = None
    cgroup: str | None = None
    limited: bool | None = None
    seconds: float | None = None
    share: str | None = None


def advice_for(helps: Helps, pci: str | None = None) -> str | None:
    """What a person should do, in one or two sentences; None where nothing is to be done."""
    gpu = f" -i {pci}" if pci else ""
    return {
        "none": None,
        "restart_app": "If the process is the server's, a restart of it is enough; the GPU needs nothing.",
        "reset": f"Reset the GPU: stop the server and this watchdog (both hold it open), run nvidia-smi --gpu-reset{gpu}, "
        "and reboot the host if that fails.",
        "reboot": "Reboot the host; power-cycle it if the GPU is still missing afterwards, and have the GPU and its slot "
        "inspected if it happens again.",
        "inspect": "Look at the kernel log around this line (journalctl -k) and have the device inspected if it happens again.",
    }[helps]


REPLACE = "If it comes again, have the GPU replaced: see nvidia-smi -q -d ROW_REMAPPER for a failure."
_PCI = r"(?P<pci>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)"
_PROCESS = r"(?P<process>.{1,64}?)"


def _pci(text: str | None) -> str | None:
    """0000:96:00, 96:00.0 and 00000000:96:00.0 as 0000:96:00.0."""
    if text is None:
        return None
    parts = text.lower().split(":")
    domain = parts[0][-4:] if len(parts) == 3 else "0000"
    device = parts[-1] if "." in parts[-1] else f"{parts[-1]}.0"
    return f"{domain}:{parts[-2]}:{device}"


def _on(pci: str | None) -> str:
    return f"GPU {pci}" if pci else "A GPU"


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _xid(m: re.Match[str]) -> KernelFact | None:
    number, pci, rest = int(m["number"]), _pci(m["pci"]), m["rest"]
    row = xid.explain(number)
    meaning, helps, blocks = row.meaning, row.helps, row.blocks_restart
    if number == 154:
        wanted = re.search(r"changed from .*? to \S+ \((?P<word>[^)]*)\)", rest)
        return _recovery(pci, wanted["word"]) if wanted else None
    if row.fault == "link" and row.helps == "reset" and not blocks:
        blocks = re.search(r"\bfatal\b", re.sub(r"non-?fatal", "", rest, flags=re.I), re.I) is not None
        helps = "reset" if blocks else "inspect"
    pid = re.search(r"pid='?(\d+)", rest)
    name = re.search(r"name='?(?!<unknown>)([^,']{1,64})", rest)
    who = f", in process {pid[1]}{f' ({name[1]})' if name else ''}" if pid else ""
    return KernelFact(
        kind=Kind.BUS_LOST if number == 79 else Kind.XID,
        sentence=f"{_on(pci)} reported Xid {number}: {meaning}{who}",
        fault=row.fault,
        helps=helps,
        blocks_restart=blocks,
        advice=f"{advice_for(helps, pci)} {REPLACE}" if number in xid.WORN else advice_for(helps, pci),
        pci=pci,
        number=number,
        pid=int(pid[1]) if pid else None,
        process=name[1] if name else None,
    )


def _recovery(pci: str | None, wanted: str) -> KernelFact:
    helps: Helps = "inspect"
    blocks = False
    for word, cure, in_vain in xid.RECOVERY:
        if word in wanted.lower():
            helps, blocks = cure, in_vain
            break
    return KernelFact(
        kind=Kind.RECOVERED if helps == "none" else Kind.RESET_NEEDED,
        sentence=f"{_on(pci)} reported Xid 154: the driver wants this done: {wanted}",
        fault="device",
        helps=helps,
        blocks_restart=blocks,
        advice=advice_for(helps, pci),
        pci=pci,
        number=154,
    )


def _named_gpu(line: str) -> str | None:
    """The PCI address in a line of the NVIDIA driver that has no Xid."""
    m = re.search(rf"GPU(?: at)? {_PCI}", line, re.I)
    return _pci(m["pci"]) if m else None


def _bus(m: re.Match[str]) -> KernelFact:
    pci = _named_gpu(m.string)
    return _gpu(Kind.BUS_LOST, f"{_on(pci)} has fallen off the bus", "device", "reboot", pci)


def _os_reboot(_: re.Match[str]) -> KernelFact:
    return _gpu(Kind.RESET_NEEDED, "The NVIDIA driver says that only a reboot recovers it", "driver", "reboot", None)


def _reset_required(m: re.Match[str]) -> KernelFact:
    pci = _named_gpu(m.string)
    return _gpu(Kind.RESET_NEEDED, f"{_on(pci)} needs a reset", "device", "reset", pci)


def _no_adapter(m: re.Match[str]) -> KernelFact:
    pci = _named_gpu(m.string)
    return _gpu(Kind.RESET_NEEDED, f"{_on(pci)} cannot be initialised by its driver", "device", "reboot", pci)


def _gpu(kind: Kind, sentence: str, fault: Fault, helps: Helps, pci: str | None) -> KernelFact:
    """A fault of a GPU or its driver that no restart cures."""
    return KernelFact(
        kind=kind, sentence=sentence, fault=fault, helps=helps, blocks_restart=True, advice=advice_for(helps, pci), pci=pci
    )


def _mismatch(m: re.Match[str]) -> KernelFact:
    kernel = re.search(r"kernel module has the version (\S+?)\.?(?:\s|$)", m.string)
    other = f"; the kernel module has {kernel[1]}" if kernel else ""
    return KernelFact(
        kind=Kind.DRIVER_MISMATCH,
        sentence=f"NVIDIA's libraries ({m['client']}) do not match the loaded kernel module{other}",
        fault="driver",
        helps="reboot",
        blocks_restart=True,
        advice="Reboot the host, or unload and load the nvidia kernel modules, when it suits: a server that runs goes on, "
        "but none can start.",
    )


def _sxid(m: re.Match[str]) -> KernelFact:
    pci, number, fatal = _pci(m["pci"]), int(m["number"]), m["severity"].lower() == "fatal"
    helps: Helps = "reset" if fatal else "none"
    advice = (
        "Stop the server, reset all GPUs and switches (nvidia-smi --gpu-reset), restart nvidia-fabricmanager, or reboot the host."
    )
    return KernelFact(
        kind=Kind.SXID,
        sentence=f"NVSwitch {pci} reported {'a fatal' if fatal else 'a passing'} error, SXid {number}: {m['rest'].strip()[:120]}",
        fault="link",
        helps=helps,
        blocks_restart=fatal,
        advice=advice if fatal else None,
        pci=pci,
        number=number,
    )


def _pcie(m: re.Match[str]) -> KernelFact:
    pci = _pci(m["pci"])
    # any device's error comes this way, not only a GPU's, so it never blocks a restart; a lost GPU says so itself
    return KernelFact(
        kind=Kind.PCIE,
        sentence=f"PCIe device {pci} had an error that could not be corrected ({m['what'].strip()})",
        fault="link",
        advice=advice_for("inspect"),
        pci=pci,
    )


def _oom(m: re.Match[str]) -> KernelFact:
    limited = m["scope"].lower().startswith("memory cgroup")
    where = "its control group reached its memory limit" if limited else "the host ran out of memory"
    return _killed(int(m["pid"]), m["process"], limited, where, None)


def _oom_summary(m: re.Match[str]) -> KernelFact:
    limited = m["constraint"] == "CONSTRAINT_MEMCG"
    where = "a control group reached its memory limit" if limited else "the host ran out of memory"
    return _killed(int(m["pid"]), m["process"], limited, f"{where}, in {m['cgroup']}", m["cgroup"])


def _killed(pid: int, process: str, limited: bool, why: str, cgroup: str | None) -> KernelFact:
    advice = (
        "Raise the unit's MemoryMax=, or make the server's host memory pool smaller (--hicache-ratio, --hicache-size)."
        if limited
        else "Free host memory, or make the server's host memory pool smaller (--hicache-ratio, --hicache-size)."
    )
    return KernelFact(
        kind=Kind.OOM_KILL,
        sentence=f"The kernel killed process {pid} ({process}) because {why}",
        helps="restart_app",
        advice=advice,
        pid=pid,
        process=process,
        cgroup=cgroup,
        limited=limited,
    )


def _hung(m: re.Match[str]) -> KernelFact:
    pid, seconds = int(m["pid"]), float(m["seconds"])
    return KernelFact(
        kind=Kind.HUNG_TASK,
        sentence=f"Process {pid} ({m['process']}) has been blocked in the kernel for more than {seconds:.0f} s",
        advice="Look at what it waits for (/proc/PID/stack); a process in state D cannot be killed, and only a reboot ends it "
        "if the device never answers.",
        pid=pid,
        process=m["process"],
        seconds=seconds,
    )


def _hardware(m: re.Match[str]) -> KernelFact:
    groups = m.groupdict()
    pid = _number(groups.get("pid"))
    return KernelFact(
        kind=Kind.HARDWARE,
        sentence=f"The host's hardware reported an error: {m[0].strip()[:160]}",
        fault="device",
        advice="Have the host's memory and processor checked (rasdaemon, the BMC's event log).",
        pid=pid,
        process=groups.get("process"),
    )


def _pin_failed(_: re.Match[str]) -> KernelFact:
    return KernelFact(
        kind=Kind.PIN_FAILED,
        sentence="The NVIDIA driver could not lock host memory that a process wanted pinned",
        fault="application",
        helps="restart_app",
    )


def _crash(m: re.Match[str]) -> KernelFact:
    pid = int(m["pid"])
    return KernelFact(
        kind=Kind.CRASH,
        sentence=f"Process {pid} ({m['process']}) crashed: {m['what'].strip()[:120]}",
        fault="application",
        helps="restart_app",
        pid=pid,
        process=m["process"],
    )


def _nfs(m: re.Match[str]) -> KernelFact:
    back = m["word"] == "OK"
    return _storage(f"nfs {m['server']}", f"The NFS server {m['server']}", back=back)


def _cifs(m: re.Match[str]) -> KernelFact:
    server = m["server"].lstrip("\\")
    return _storage(f"cifs {server}", f"The SMB server {server}", back=False)


def _lustre(m: re.Match[str]) -> KernelFact:
    back = m["back"] is not None
    return _storage(f"lustre {m['import']}", f"The Lustre target {m['target'] or m['import']}", back=back)


def _ceph(m: re.Match[str]) -> KernelFact:
    return _storage(f"ceph {m['server']}", f"The Ceph server {m['server']}", back=m["word"].lower() != "hung")


def _ceph_monitor(m: re.Match[str]) -> KernelFact:
    # Whichever monitor answers ends the hunt for one.
    return _storage("ceph monitors", "The Ceph cluster", back=m["word"] == "established")


def _storage(share: str, name: str, *, back: bool) -> KernelFact:
    return KernelFact(kind=Kind.STORAGE_BACK if back else Kind.STORAGE_AWAY, sentence=name, share=share)


_RULES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], KernelFact | None]], ...] = tuple(
    (needle, re.compile(pattern, re.I | re.S), read)
    for needle, pattern, read in (
        ("SXid", rf"SXid \(PCI:{_PCI}\): (?P<number>\d+), (?P<severity>Non-fatal|Fatal)\b,? ?(?P<rest>.*)", _sxid),
        ("Xid", rf"NVRM: Xid \((?:PCI:)?{_PCI}\): (?P<number>\d{{1,4}})\b,?(?P<rest>.*)", _xid),
        ("fallen off the bus", r"^.{0,40}NVRM:.*fallen off the bus", _bus),
        ("API mismatch", r"NVRM: API mismatch: the client has(?: the)? version (?P<client>[^\s,]+)", _mismatch),
        ("os reboot to recover", r"requiring os reboot to recover", _os_reboot),
        ("RESET_REQUIRED", r"^.{0,40}NVRM:.*NV_ERR_RESET_REQUIRED", _reset_required),
        ("RmInitAdapter", r"^.{0,40}NVRM:.*RmInitAdapter failed", _no_adapter),
        # os_lookup_user_io_memory, tried where the pages cannot be locked; NVRM's prefix is missing in most versions
        ("Cannot map memory", r"^.{0,40}Cannot map memory with base addr \S+ and size of \S+ pages", _pin_failed),
        (
            "ut of memory",
            r"(?P<scope>Memory cgroup out of memory|Out of memory[^:]*): Kill(?:ed)? process "
            rf"(?P<pid>\d+) \({_PROCESS}\)(?=[ ,]|$)",
            _oom,
        ),
        (
            "oom-kill:",
            rf"oom-kill:constraint=(?P<constraint>\w+),.*?task_memcg=(?P<cgroup>[^,]+),task={_PROCESS},pid=(?P<pid>\d+)",
            _oom_summary,
        ),
        ("blocked for more than", rf"task {_PROCESS}:(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds", _hung),
        (
            "AER:",
            r"AER: (?:Multiple )?(?P<what>Uncorrect(?:ed|able) \((?:Non-)?Fatal\)) error (?:message )?received(?: from|:) "
            rf"{_PCI}",
            _pcie,
        ),
        ("PCIe Bus Error", rf"{_PCI}: PCIe Bus Error: severity=(?P<what>Uncorrect(?:ed|able) \((?:Non-)?Fatal\))", _pcie),
        ("DPC:", rf"{_PCI}: DPC: (?P<what>containment event)", _pcie),
        (
            "Memory failure",
            rf"Memory failure: \S+: Sending SIGBUS to {_PROCESS}:(?P<pid>\d+) due to hardware memory corruption",
            _hardware,
        ),
        ("EDAC", r"EDAC \S+: \d+ UE .*", _hardware),
        ("Machine Check", r"\[Hardware Error\]: CPU \d+: Machine Check.*", _hardware),
        ("event severity", r"\[Hardware Error\]: event severity: (?:fatal|recoverable)", _hardware),
        # A mount that gives up ("timed out") hands the error on: nobody waits, and nothing is said when it is back.
        ("nfs: server", r"^.{0,40}nfs: server (?P<server>\S{1,200}) (?P<word>OK|not responding, still trying)", _nfs),
        ("has not responded in", r"CIFS:? VFS: (?:Server )?(?P<server>\S{1,200}) has not responded in \d+ seconds", _cifs),
        (
            "Connection",
            r"Lustre: (?P<import>\S{1,200}): Connection (?:(?P<back>restored) to|to (?P<target>\S{1,200}) \(at \S{1,200}\) "
            r"was lost; in progress operations using this service will wait)",
            _lustre,
        ),
        (
            "mds",
            r"ceph: (?:\[[^\]]{1,80}\]: )?(?P<server>mds\d+) (?P<word>hung|came back|caps renewed|recovery completed)",
            _ceph,
        ),
        ("libceph: mon", r"libceph: mon\d+ .{1,100} session (?P<word>lost|established)", _ceph_monitor),
        ("segfault at", rf"^{_PROCESS}\[(?P<pid>\d+)\]: (?P<what>segfault at .*)", _crash),
        ("traps:", rf"traps: {_PROCESS}\[(?P<pid>\d+)\] (?:trap )?(?P<what>(?:general protection|invalid opcode).*)", _crash),
    )
)


def classify(message: str) -> KernelFact | None:
    """What a kernel line means; None for one that means nothing to us. Never raises.

    A message of several lines (as journald keeps it) is looked at as a whole.
    """
    line = message[:MAX_LINE]
    for needle, pattern, read in _RULES:
        if needle in line:
            m = pattern.search(line)
            if m is not None:
                return read(m)
    return None
