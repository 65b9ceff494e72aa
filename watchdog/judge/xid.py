"""NVIDIA's Xid numbers: what each means, whose fault it is, what helps.

Source: NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of
2025-10), columns Description and Resolution Bucket (Immediate Action): IGNORE → none, RESTART_APP → restart_app,
RESET_GPU → reset, RESTART_BM and RESTART_VM → reboot, CHECK_MECHANICALS, UPDATE_SWFW and CONTACT_SUPPORT → inspect. Where the
catalogue names a workflow instead (45, 48, 74, 144 to 150, 154) the comment says what was made of it. On memory errors also
NVIDIA, "GPU Memory Error Management" (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt). Whose fault it is: the older listing in
"Xid Errors" (docs.nvidia.com/deploy/xid-errors), whose columns are hardware, driver, application, bus.
"""

from typing import Literal

import msgspec

Fault = Literal["application", "device", "driver", "link", "unknown"]
Helps = Literal["none", "restart_app", "reset", "reboot", "inspect"]


class Xid(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        meaning: what happened, in one sentence without its full stop.
        fault: whose fault it usually is.
        helps: what cures it.
        blocks_restart: whether a restart of the server is in vain before that.
    """

    meaning: str
    fault: Fault
    helps: Helps
    blocks_restart: bool = False


def _app(meaning: str) -> Xid:
    return Xid(meaning, "application", "restart_app")


def _reset(meaning: str, fault: Fault = "device") -> Xid:
    return Xid(meaning, fault, "reset", blocks_restart=True)


TABLE: dict[int, Xid] = {
    8: Xid("the GPU stopped processing", "unknown", "restart_app"),
    11: _app("the program sent an invalid or corrupted stream of commands"),
    13: _app("a kernel of the program failed on the GPU (an illegal instruction or an address out of range)"),
    25: _app("the program sent an invalid or illegal stream of commands"),
    31: _app("the program touched an invalid address of GPU memory"),
    32: _app("the program sent an invalid or corrupted stream of commands"),
    37: Xid("the driver's firmware reported an error that needs nothing", "driver", "none"),
    38: Xid("the driver's firmware reported an error that needs nothing", "driver", "none"),
    43: Xid("the GPU stopped the program after a fault of its own; the GPU is well", "application", "none"),
    44: Xid("a fault during a context switch that needs nothing", "driver", "none"),
    # WORKFLOW_XID_45: follow the other Xid; alone it is what a killed program leaves.
    45: Xid("the driver removed the work of a program that had ended or failed", "application", "none"),
    46: _reset("the GPU stopped processing and did not recover"),
    # WORKFLOW_XID_48 goes by what follows: 94 (contained) needs the program restarted, 95 and 140 a reset, and those block.
    48: Xid("an uncorrectable error in the GPU's memory", "device", "reset"),
    54: Xid("the GPU board has no auxiliary power", "device", "inspect"),
    60: _app("the video processor reported an exception"),
    62: _reset("the GPU's own micro-controller halted"),
    # The catalogue says IGNORE: nothing at once. What is marked is replaced by a reset, at the next occasion.
    63: Xid("a bad row of GPU memory was marked and will be replaced at the next reset; work may go on", "device", "reset"),
    64: _reset("a bad row of GPU memory could not be replaced"),
    66: Xid("the driver made an illegal access that needs nothing", "driver", "none"),
    67: Xid("the driver made an illegal access that needs nothing", "driver", "none"),
    68: _app("the video decoder reported an exception"),
    69: _app("the program used the compute engine wrongly"),
    # WORKFLOW_NVLINK_ERR: a fatal link error is cleared by a reset; see kernel_lines, which reads "fatal" in the line.
    74: Xid("an NVLink between GPUs failed", "link", "reset"),
    78: Xid("a virtual GPU could not be started", "driver", "inspect"),
    79: Xid("the GPU has fallen off the bus", "device", "reboot", blocks_restart=True),
    80: _app("corrupted data was sent to the GPU"),
    92: Xid("many single-bit memory errors were corrected", "device", "none"),
    93: Xid("the GPU's configuration memory was written more often than provided for", "device", "none"),
    94: Xid("a memory error that was contained: only the program that hit it is lost", "device", "restart_app"),
    95: _reset("a memory error that was not contained: every program on the GPU is affected"),
    109: _reset("the GPU could not switch between programs in time"),
    110: _reset("a security fault"),
    119: _reset("the GPU's system processor (GSP) did not answer in time", "driver"),
    120: _reset("the GPU's system processor (GSP) failed", "driver"),
    121: Xid("the link to the CPU reported a corrected error", "link", "none"),
    136: _reset("an NVLink could not be trained", "link"),
    137: Xid("a program's access over NVLink was refused", "link", "none"),
    139: _app("the optical-flow engine reported an exception"),
    140: _reset("an uncorrectable memory error that the hardware could not recover from"),
    141: Xid("CUDA's fast path reported an error that needs nothing", "driver", "none"),
    143: _reset("the GPU could not be initialised"),
    # 144 to 150, WORKFLOW_NVLINK5_ERR: of the decode table's rows exactly the fatal ones want RESET_GPU.
    **dict.fromkeys(range(144, 151), Xid("an NVLink reported an error", "link", "reset")),
    151: Xid("the rotation of encryption keys failed", "driver", "reboot", blocks_restart=True),
    155: _reset("the driver declared an NVLink broken", "link"),
    156: _reset("a broken part of the GPU was retired, which takes effect with a reset"),
    157: Xid("a broken part of the GPU could not be retired", "device", "none"),
    158: _reset("a fatal timeout inside the GPU"),
    160: Xid("a memory channel was retired", "device", "none"),
    161: Xid("a memory channel could not be retired", "device", "none"),
    # No action is catalogued for these.
    167: Xid("a fatal timeout on PCIe", "link", "inspect"),
    168: Xid("the GPU has less memory because errors were found in a protected region", "device", "inspect"),
    171: Xid("details of an uncorrectable error in the GPU's memory chips", "device", "inspect"),
    172: Xid("details of an uncorrectable error in the GPU's on-chip memory", "device", "inspect"),
    # Families
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _app("a copy engine reported an exception")),
    **dict.fromkeys((82, 83, 84, 86, 88, 89, *range(96, 106)), _app("an engine for pictures or video reported an exception")),
}


def explain(number: int) -> Xid:
    """The row of a number; an honest default for one that the catalogue does not explain."""
    return TABLE.get(number) or Xid("an error that NVIDIA's catalogue does not explain", "unknown", "inspect")


WORN = frozenset({64})
"""A reset may help once; a GPU that cannot replace its bad rows has to be replaced (GPU Memory Error Management, RMA policy)."""

RECOVERY: tuple[tuple[str, Helps, bool], ...] = (
    ("none", "none", False),
    ("drain and reset", "reset", False),
    ("drain p2p", "inspect", False),
    ("reboot", "reboot", True),
    ("reset", "reset", True),
    ("flr", "reset", True),
)
"""Xid 154 names what the driver itself wants (a word in its line → what helps, whether a restart is in vain before).

"Drain and Reset" means reduced capacity, and existing work goes on; "Drain P2P" is passed through on the way to another action
(GPU Memory Error Management, Recovery action flag). PF FLR is a reset of the PCIe function. First match wins.
"""
