"""The parent process until it serves: its log lines, its children, and what it does when one of them dies in the start."""

import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from watchdog.standin import detokenizer, options, processes
from watchdog.standin.board import Board
from watchdog.standin.channel import Channel, pair
from watchdog.standin.faults import Faults
from watchdog.standin.forward import Forward, OwnWatchdog
from watchdog.standin.log import Log
from watchdog.standin.options import Options
from watchdog.standin.pool import HostPool
from watchdog.standin.rank import RankFaults, follow, start
from watchdog.standin.scheduler import Scheduler
from watchdog.standin.startup import stay_for_ever

RANK_DIED = (
    "RuntimeError: Rank {rank} scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), "
    "a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
)


@dataclass(frozen=True)
class Tree:
    """The processes of a server, as its parent holds them.

    Attributes:
        tracker: process id of the look-alike of Python's resource tracker.
        schedulers: process ids by rank.
        to_scheduler: channel to rank 0; from_detokenizer: where the answers come from.
    """

    tracker: int
    schedulers: list[int]
    detokenizer: int
    to_ranks: list[Channel]
    from_detokenizer: Channel

    @property
    def to_scheduler(self) -> Channel:
        return self.to_ranks[0]

    def children(self) -> dict[int, str]:
        """Process id → the name that SGLang's log gives it."""
        named = {pid: f"scheduler_{rank}" for rank, pid in enumerate(self.schedulers)}
        return named | {self.detokenizer: "detokenizer"}


def launch(argv: Sequence[str]) -> int:
    """Run the stand-in server until it ends; returns its exit status, unless it ends itself with SIGKILL, as SGLang does."""
    chosen = options.parse(argv)
    processes.set_program(list(argv))
    begun = time.monotonic()
    log = Log()
    faults = Faults(chosen.fault_dir)
    faults.prepare()
    _first_lines(chosen, log)
    if chosen.failure == "arguments":
        log.raw(
            "usage: launch_server.py [-h] --model-path MODEL_PATH …\nlaunch_server.py: error: unrecognized arguments: --ordered"
        )
        return 2
    board = Board()
    _die_on_sigquit(chosen, log)
    tree = _fork_all(chosen, faults, board)
    _later_lines(chosen, log)
    failed = _await_ranks(chosen, log, tree)
    if failed is not None:
        return failed
    if chosen.since(0, 5, 17):
        log.line(_timings(chosen, time.monotonic() - begun))
    time.sleep(chosen.phases["http"])
    if chosen.stuck_at == "http":
        stay_for_ever()
    # Only now, after the forks: the schedulers need no HTTP library, as long as they live.
    from watchdog.standin.parent import serve  # noqa: PLC0415

    return serve(chosen, log, faults, board, tree)


def _first_lines(chosen: Options, log: Log) -> None:
    if chosen.since(0, 5, 10):
        log.raw(
            "/usr/local/lib/python3.12/dist-packages/sglang/launch_server.py:71: "
            "UserWarning: 'python -m sglang.launch_server' is still supported, "
            "but 'sglang serve' is the recommended entrypoint.\n  Example: sglang serve --model-path <model> [options]\n"
            "  warnings.warn("
        )
    log.line("Attention backend not specified. Use flashinfer backend by default.")
    shown = {name: value for name, value in chosen.server.items() if value is not None}
    if chosen.since(0, 5, 22):
        shown = {name: "<redacted>" if name.endswith("api_key") else value for name, value in shown.items()}
    text = repr(shown) if chosen.since(0, 5, 19) else "ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in shown.items()) + ")"
    log.line(f"server_args={text}")


def _later_lines(chosen: Options, log: Log) -> None:
    log.line("Using default HuggingFace chat template with detected content format: openai")
    if chosen.since(0, 5, 13):
        log.line(
            "Auto-detected template features: reasoning_config=ReasoningToggleConfig(toggle_param='thinking', "
            "default_enabled=True, special_case=None, effort_kwarg=None), reasoning_parser=kimi_k2, tool_call_parser=kimi_k2"
        )


def _timings(chosen: Options, elapsed: float) -> str:
    phases = chosen.phases
    return (
        f"Engine startup timings (s): load_weight={phases['weights']:.2f}, kv_cache_allocation={phases['kv']:.2f}, "
        f"scheduler_e2e={elapsed:.2f}, cuda_graph={{prefill=0.00, decode=0.00, target_verify={phases['graphs']:.2f}, "
        f"draft_prefill=0.00, draft_decode=0.00, draft_extend=0.00}}, tokenizer_e2e={elapsed:.2f}"
    )


def _rank_name(chosen: Options, rank: int) -> str:
    """The parts of the log prefix and of the title: each only where its size is more than 1."""
    tp, pp = int(chosen.server["tp_size"]), int(chosen.server["pp_size"])
    parts = ([f"PP{rank // tp}"] if pp > 1 else []) + ([f"TP{rank % tp}"] if tp > 1 else [])
    return " ".join(parts)


def _fork_all(chosen: Options, faults: Faults, board: Board) -> Tree:
    to_ranks, at_ranks = zip(*(pair() for _ in range(chosen.ranks)), strict=True)
    to_peers, at_peers = zip(*(pair() for _ in range(chosen.ranks)), strict=True)
    to_detokenizer, at_detokenizer = pair()
    from_detokenizer, at_parent = pair()
    every = [*to_ranks, *at_ranks, *to_peers, *at_peers, to_detokenizer, at_detokenizer, from_detokenizer, at_parent]

    def only(*kept: Channel) -> None:
        """Close the ends of other processes, so that the death of a process closes its channels."""
        for end in every:
            if end not in kept:
                end.close()

    def first_rank() -> None:
        only(at_ranks[0], *to_peers[1:], to_detokenizer)
        log = Log(_rank_name(chosen, 0))
        pool = HostPool(chosen.pool_kind, "0", log.line)
        start(chosen, 0, log, pool, at_ranks[0])
        forward = Forward(chosen, faults, to_peers[1:])
        for limit, soft in ((chosen.server["watchdog_timeout"], False), (chosen.server["soft_watchdog_timeout"], True)):
            if limit:
                OwnWatchdog(chosen, log, forward, limit, soft=soft).start()
        Scheduler(
            options=chosen,
            log=log,
            faults=faults,
            board=board,
            own=RankFaults(0, faults, pool),
            forward=forward,
            parent=at_ranks[0],
            detokenizer=to_detokenizer,
        ).run()

    def other_rank(rank: int) -> None:
        only(at_ranks[rank], at_peers[rank])
        log = Log(_rank_name(chosen, rank))
        pool = HostPool(chosen.pool_kind, str(rank), log.line)
        start(chosen, rank, log, pool, at_ranks[rank])
        follow(at_peers[rank], RankFaults(rank, faults, pool))

    def detokenize() -> None:
        only(at_detokenizer, at_parent)
        detokenizer.run(at_detokenizer, at_parent, faults)

    def track() -> None:
        only()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stay_for_ever()

    tracker = processes.fork("python -c from multiprocessing.resource_tracker import main;main(5)", track)
    schedulers = []
    for rank in range(chosen.ranks):
        title = "_".join(["sglang::scheduler", *_rank_name(chosen, rank).split()])
        schedulers.append(processes.fork(title, partial(other_rank, rank) if rank else first_rank))
    detokenizer_pid = processes.fork("sglang::detokenizer", detokenize)
    only(*to_ranks, from_detokenizer)
    return Tree(tracker, schedulers, detokenizer_pid, list(to_ranks), from_detokenizer)


def _await_ranks(chosen: Options, log: Log, tree: Tree) -> int | None:
    """Wait until every rank is ready; the exit status if one dies before.

    Up to 0.5.9 the ranks are awaited in their order, so that the death of a later one is seen late (srt/entrypoints/engine.py).
    """
    waiting = dict(enumerate(tree.to_ranks))
    while waiting:
        watched = waiting if chosen.since(0, 5, 10) else {min(waiting): waiting[min(waiting)]}
        select.select([*watched.values()], [], [])
        for rank, channel in list(watched.items()):
            if channel.receive():
                del waiting[rank]
            elif channel.closed:
                return _rank_died(chosen, log, rank, tree.schedulers[rank])
    return None


def _rank_died(chosen: Options, log: Log, rank: int, pid: int) -> int:
    time.sleep(0.1)  # A rank that failed with an exception has sent SIGQUIT, which ends us first.
    code = processes.exit_code(pid)
    if chosen.since(0, 5, 10):
        log.raw(f"Traceback (most recent call last):\n{RANK_DIED.format(rank=rank, code=code)}")
    else:
        log.line(f"Rank {rank} scheduler is dead. Please check if there are relevant logs.")
        log.line(f"Exit code: {code}")
        log.raw("Traceback (most recent call last):\nEOFError")
    return 1


def _die_on_sigquit(chosen: Options, log: Log) -> None:
    """A child that fails in the start sends SIGQUIT: the parent then kills all and itself."""

    def quit_now(_number: int, _frame: object) -> None:
        log.line("Received sigquit from a child process. It usually means the child failed.")
        if chosen.since(0, 5, 13):
            log.line(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGQUIT, quit_now)
