"""Made-up hosts for tests: folders that look like /proc and /sys/fs/cgroup."""

from pathlib import Path

UNIT = "/system.slice/sglang-kimi.service"

V2_FILES = {
    "memory.current": "401472487424\n",
    "memory.max": "max\n",
    "memory.stat": "anon 396846170112\nfile 3435134976\nkernel 1190133760\nshmem 4096\nunevictable 8192\nslab 1\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n",
    "memory.pressure": "some avg10=1.25 avg60=0.50 avg300=0.10 total=12\nfull avg10=0.75 avg60=0.00 avg300=0.00 total=3\n",
    "io.stat": "259:0 rbytes=1000 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\n8:0 rbytes=234 wbytes=0 rios=1 wios=0\n",
    "cpu.stat": "usage_usec 12500000\nuser_usec 10000000\nsystem_usec 2500000\n",
}
V1_MEMORY = {
    "memory.usage_in_bytes": "5000\n",
    "memory.stat": "cache 1\nrss 2\nhierarchical_memory_limit 9223372036854771712\ntotal_cache 900\ntotal_rss 3000\n"
    "total_shmem 100\ntotal_unevictable 50\n",
    "memory.kmem.usage_in_bytes": "700\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
}
V1_BLKIO = {"blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 1\n259:0 Read 1\nTotal 4098\n"}
MEMINFO = """MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    400 kB
Unevictable:       7 kB
Mlocked:           6 kB
SwapTotal:        50 kB
SwapFree:         20 kB
Shmem:            30 kB
HugePages_Total:       8
HugePages_Free:        3
Hugepagesize:       2048 kB
"""


def fill(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def mount(root: Path, kind: str, options: str, inner: str = "/") -> str:
    point = str(root).replace(" ", "\\040")
    return f"30 24 0:26 {inner} {point} rw,nosuid - {kind} {kind} {options}\n"


def proc(tmp_path: Path, *lines: str) -> Path:
    """A /proc with these cgroup mounts."""
    fill(tmp_path / "proc/self", {"mountinfo": "22 1 259:1 / / rw,relatime - ext4 /dev/root rw\n" + "".join(lines)})
    return tmp_path / "proc"


def process(root: Path, pid: int, comm: str, cmdline: str = "", *, state: str = "S", started: int = 5, ticks: int = 250) -> None:
    """A process in a made-up /proc."""
    tail = " ".join(["0"] * 9) + f" {ticks} 0 0 0 20 0 1 0 {started} 9999 3 18446744073709551615"
    fill(root / str(pid), {"stat": f"{pid} ({comm}) {state} 1 {tail}\n", "cmdline": cmdline, "wchan": "ep_poll"})
