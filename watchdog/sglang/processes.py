"""SGLang's processes by their titles, and the ranks that there should be.

Titles are set with setproctitle (managers/scheduler.py, detokenizer_manager.py, data_parallel_controller.py …): they are seen in
/proc/PID/cmdline; /proc/PID/comm and the kernel's OOM line have their first 15 characters, which are the same for all ranks.
Before a child has set its title (the first seconds of its imports) it looks like `python3 -c from multiprocessing.spawn …`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from watchdog.sglang.arguments import layout

Role = Literal[
    "main",
    "scheduler",
    "detokenizer",
    "dp_controller",
    "tokenizer_worker",
    "router",
    "resource_tracker",
    "compiler",
    "other",
]

# The beginning of a title → its role; longer ones first. The short ones fit comm's 15 characters as well.
_TITLES: tuple[tuple[str, Role], ...] = (
    ("sglang::detokenizer_router", "router"),
    ("sglang::tokenizer_router", "router"),
    ("sglang::router", "router"),
    ("sglang::detoken", "detokenizer"),
    ("sglang::schedul", "scheduler"),
    ("sglang::data_pa", "dp_controller"),
    ("sglang::tokeniz", "tokenizer_worker"),
)
_MAIN = re.compile(
    r"\bsglang\.launch_server\b|\bsglang/launch_server\.py\b|(?:^|/)sglang (?:serve|launch)\b|\bsglang\.cli\.main\b"
)
_SHELLS = frozenset(
    "sh bash dash zsh tee sudo env grep pgrep timeout uv conda docker podman nerdctl conmon".split()  # noqa: SIM905
)
"""They name what they start."""
_COMPILERS = frozenset(
    (
        "ninja",
        "make",
        "cmake",
        "nvcc",
        "cicc",
        "ptxas",
        "fatbinary",
        "nvlink",
        "cudafe++",
        "cc1",
        "cc1plus",
        "collect2",
        "as",
        "ld",
        "ld.bfd",
        "ld.gold",
        "ld.lld",
        "lld",
        "c++",
        "cc",
        "g++",
        "gcc",
        "clang",
        "clang++",
        "triton",
        "tilelang",
        "x86_64-linux-gn",
    )
)
_VERSIONED = re.compile(r"(?:x86_64-linux-gnu-|aarch64-linux-gnu-)?(.+?)(?:-\d+(?:\.\d+)*)?")
_PARTS = ("DP", "PP", "ATTN_CP", "MOE_DP", "TP", "EP")
_RANK = re.compile(r"(DP|PP|ATTN_CP|MOE_DP|TP|EP)(\d+)")


@lru_cache(maxsize=1024)
def role(title: str) -> Role:
    """What a process with this title (its command line, or comm) is."""
    if title.startswith("sglang::"):
        for start, found in _TITLES:
            if title.startswith(start):
                return found
        return "other"
    command = title[:4096]
    if "multiprocessing.resource_tracker" in command:
        return "resource_tracker"
    name = command.partition(" ")[0].rpartition("/")[2]
    if name not in _SHELLS and _MAIN.search(command) is not None:
        return "main"
    bare = _VERSIONED.fullmatch(name)
    if name in _COMPILERS or (bare is not None and bare[1] in _COMPILERS):
        return "compiler"
    return "other"


def may_serve(title: str) -> bool:
    """Whether a process may be SGLang, or become it: launchers of one's own are Python, too, and comm tells no more of them."""
    command = title[:4096].partition(" ")[0].rpartition("/")[2]
    return role(title) not in ("other", "compiler") or command.startswith(("python", "sglang"))


@lru_cache(maxsize=1024)
def rank(title: str) -> str | None:
    """The rank in a scheduler's title, written like in a log line's prefix ("TP0", "DP1 TP1"); None where there is none in it."""
    if not title.startswith("sglang::scheduler_"):
        return None
    return normal_rank(title[len("sglang::scheduler_") : 200])


def normal_rank(text: str) -> str | None:
    """A rank with its parts in one order: they changed places in 0.5.5. `TP1 PP0`, `_PP0_TP1` → "PP0 TP1"."""
    parts = dict(_RANK.findall(text))
    return " ".join(f"{part}{parts[part]}" for part in _PARTS if part in parts) or None


def expected_ranks(args: Mapping[str, Any]) -> tuple[str | None, ...]:
    """The ranks of the scheduler processes on this host, as `rank` writes them; (None,) for a single one, which bears no rank.

    Args:
        args: launch arguments under SGLang's own names (`arguments.parse_argv`, /server_info).
    """
    plan = layout(args)
    ranks: list[str | None] = []
    for data in range(plan.dp if plan.dp_outside else 1):
        for pipeline in plan.pp_here:
            for tensor in plan.tp_here:
                parts: list[str] = []
                if plan.dp > 1:
                    attention = tensor // max(1, plan.tp // plan.dp)
                    parts.append(f"DP{data if plan.dp_outside else attention}")
                if plan.pp > 1:
                    parts.append(f"PP{pipeline}")
                if plan.tp > 1:
                    parts.append(f"TP{tensor}")
                if plan.ep > 1:
                    parts.append(f"EP{tensor // max(1, plan.tp // plan.ep)}")
                ranks.append(" ".join(parts) or None)
    return tuple(ranks)
