"""Folds what NVML and the kernel say of errors in the memory of GPUs: what was counted, and what waits for a reset.

NVIDIA, "GPU Memory Error Management" (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt) and "Dynamic Page Retirement": what is
marked to be replaced is replaced by the next reset; until then work goes on. Corrected errors need nothing.
"""

from watchdog.judge.kernel_lines import KernelFact
from watchdog.observation import Gpu, GpuDevice

AGAIN_S = 3600.0
"""What comes within so long after the last sign belongs to it: one error shows as several lines, and in the counters."""
TOLD_S = 86_400.0
"""An error after which nothing waits for a reset is told of for so long."""
ROUNDS = 2
"""So many rounds must say that nothing waits any more: then the GPU was reset."""
ERRORS = frozenset({48, 94})
"""Xids of an uncorrectable error that lets the GPU go on."""


class Ailing:
    """What is known of one GPU that has shown such an error since we look."""

    def __init__(self, key: str) -> None:
        self.key = key
        """Its PCI address ("0000:96:00.0"), or "GPU 3" where NVML does not tell one."""
        self.begun = -1e18
        """When the newest row of signs began."""
        self.sign_at = -1e18
        """When the last sign came."""
        self.counted = 0
        """Uncorrectable errors by NVML's counter, since we look."""
        self.xids: list[int] = []
        self.told = False
        """Whether a line of the kernel says that it needs a reset."""
        self.pending = False
        """Whether NVML says that something waits for a reset."""
        self.cleared = 0
        """Rounds in a row in which NVML said that nothing waits any more."""

    def sign(self, t: float) -> None:
        """A sign of an error came at `t`."""
        if t - self.sign_at > AGAIN_S:
            self.begun = t
        self.sign_at = max(self.sign_at, t)

    def waits(self) -> bool:
        """Whether something waits for a reset."""
        return self.pending or self.told


class GpuMemory:
    """Folds errors of GPUs' memory, by GPU. They outlive the server's life: only a reset of the GPU ends them."""

    def __init__(self) -> None:
        self._ailing: dict[str, Ailing] = {}
        self._counters: dict[str, int] = {}
        """GPU → its volatile counter of uncorrectable errors, as last read."""
        self._looked: set[str] = set()
        """GPUs that NVML was asked for."""

    def see(self, o: Gpu) -> None:
        """Take in a good round."""
        for g in o.gpus:
            key = key_of(g)
            first = key not in self._looked
            self._looked.add(key)
            self._count(key, g, o.t)
            self._pending(key, g, o.t)
            found = self._ailing.get(key)
            if first and g.retired_pending is False and found is not None and found.told:
                del self._ailing[key]  # the lines are older than our first look: it was reset meanwhile

    def _count(self, key: str, g: GpuDevice, t: float) -> None:
        now, before = g.ecc_uncorrected, self._counters.get(key)
        if now is None:
            return
        self._counters[key] = now
        if before is None or now == before:
            return  # what stood there when we came may be old
        if now < before:
            self._ailing.pop(key, None)  # a reset, or a reload of the driver, sets it to zero
            return
        found = self._of(key)
        found.counted += now - before
        found.sign(t)

    def _pending(self, key: str, g: GpuDevice, t: float) -> None:
        found = self._ailing.get(key)
        if g.retired_pending:
            found = found or self._of(key)
            if not found.pending:
                found.sign(t)
            found.pending, found.cleared = True, 0
        elif g.retired_pending is False and found is not None and found.pending:
            found.cleared += 1
            if found.cleared >= ROUNDS:
                del self._ailing[key]

    def see_kernel(self, t: float, fact: KernelFact) -> None:
        """Take in what a line of the kernel that was written at `t` says."""
        needs = fact.helps == "reset" and not fact.blocks_restart
        if fact.pci is None or not (needs or fact.number in ERRORS):
            return
        found = self._of(fact.pci)
        found.told = found.told or (needs and fact.number not in ERRORS)
        if fact.number is not None and fact.number not in found.xids:
            found.xids.append(fact.number)
        found.sign(t)

    def reset(self, pci: str | None) -> None:
        """The driver says that this GPU needs nothing any more."""
        if pci is not None:
            self._ailing.pop(pci, None)

    def repaired(self) -> None:
        """A person says that the devices are well: what NVML still says to be waiting is seen again with its next round."""
        self._ailing.clear()

    def ailing(self, now: float) -> list[Ailing]:
        """The GPUs of which something is to be told, the one with the newest signs first."""
        found = [x for x in self._ailing.values() if x.waits() or now - x.sign_at < TOLD_S]
        return sorted(found, key=lambda x: (not x.waits(), -x.begun, x.key))

    def _of(self, key: str) -> Ailing:
        if key not in self._ailing:
            self._ailing[key] = Ailing(key)
        return self._ailing[key]


def key_of(g: GpuDevice) -> str:
    """What a GPU is known by here: its PCI address as the kernel's lines have it, else its index."""
    return g.pci.lower()[-12:] if g.pci else f"GPU {g.index}"
