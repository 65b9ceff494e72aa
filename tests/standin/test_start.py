"""The start: its lines in the order of the version, and the ways in which it fails or gets stuck."""

import signal
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from tests.standin.server import StandIn, wait_for
from watchdog.sglang import arguments, processes
from watchdog.sglang.loglines import Mark
from watchdog.standin import main

KIMI = (
    "--tp-size",
    "2",
    "--speculative-algorithm",
    "EAGLE3",
    "--enable-hierarchical-cache",
    "--hicache-ratio",
    "4",
    "--shards",
    "8",
)

OLD_ORDER = [
    Mark.ARGS,
    Mark.INIT_BEGIN,
    Mark.WEIGHTS_BEGIN,
    Mark.WEIGHTS_PROGRESS,
    Mark.WEIGHTS_END,
    Mark.KV_CACHE,
    Mark.GRAPHS_BEGIN,
    Mark.GRAPHS_END,
    Mark.TOKENS_TOTAL,
    Mark.HOST_POOL,
    Mark.HTTP_UP,
    Mark.READY,
]
NEW_ORDER = [*OLD_ORDER[:-2], Mark.HOST_POOL_DONE, Mark.RANKS_UP, *OLD_ORDER[-2:]]


@pytest.mark.parametrize(
    ("version", "order"),
    [("0.5.5", OLD_ORDER), ("0.5.9", OLD_ORDER), ("0.5.12", None), ("0.5.23", NEW_ORDER)],
)
def test_order_of_the_lines(tmp_path: Path, version: str, order: list[Mark] | None) -> None:
    with StandIn(tmp_path, *KIMI, version=version) as server:
        marks = server.marks()
    assert not any(line.fatal for line in marks)
    firsts = list(dict.fromkeys(line.mark for line in marks if line.rank in (None, "TP0")))
    if order is not None:
        assert [mark for mark in firsts if mark in order] == order
    pools = {line.rank for line in marks if line.mark == Mark.HOST_POOL}
    assert pools == {"TP0", "TP1"}
    assert firsts[-1] == Mark.READY
    weights, kv = (
        [place for place, line in enumerate(marks) if line.mark == mark and line.rank == "TP0"]
        for mark in (Mark.WEIGHTS_END, Mark.KV_CACHE)
    )
    # The draft model: before 0.5.14 it is loaded when the target is complete, later all weights come before all pools.
    assert (weights[1] < kv[0]) == (version == "0.5.23")


def test_progress_and_sizes_are_told(tmp_path: Path) -> None:
    with StandIn(tmp_path, *KIMI, "--host-pool-mib", "95.367431640625", version="0.5.9") as server:
        marks = server.marks()
    shares = [line.fields["ratio"] for line in marks if line.mark == Mark.WEIGHTS_PROGRESS][:9]
    assert shares == pytest.approx([done / 8 for done in range(9)], abs=0.01)
    assert [line.fields["bytes"] for line in marks if line.mark == Mark.HOST_POOL] == pytest.approx([0.10e9] * 2)
    [total] = [line for line in marks if line.mark == Mark.TOKENS_TOTAL]
    assert total.fields["max_total_num_tokens"] == 159277


def test_processes_and_command_line(tmp_path: Path) -> None:
    with StandIn(tmp_path, *KIMI, "--host-pool-mib", "32") as server:
        children = server.children()
        assert {processes.role(title) for title in children} == {"scheduler", "detokenizer", "resource_tracker"}
        assert {processes.rank(title) for title in children if processes.role(title) == "scheduler"} == {"TP0", "TP1"}
        command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        assert processes.role(" ".join(command)) == "main"
        assert arguments.parse_argv(command)["hicache_ratio"] == 4
        rank = children["sglang::scheduler_TP1"]
        assert rank.memory_info().shared > 32 * 2**20
        assert Path(f"/proc/{rank.pid}/comm").read_text() == "sglang::schedul\n"


@pytest.mark.parametrize(("version", "shared"), [("0.5.9", False), ("0.5.23", True)])
def test_the_host_pool_is_real_memory_of_the_kind_of_the_version(tmp_path: Path, version: str, shared: bool) -> None:
    with StandIn(tmp_path, "--enable-hierarchical-cache", "--host-pool-mib", "64", version=version) as server:
        status = Path(f"/proc/{server.children()['sglang::scheduler'].pid}/status").read_text()
        sizes = {
            line.split()[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith(("RssAnon", "RssShmem"))
        }
        held, not_held = ("RssShmem:", "RssAnon:") if shared else ("RssAnon:", "RssShmem:")
        assert sizes[held] >= 64 * 1024 > sizes[not_held]


@pytest.mark.parametrize("kind", ["memfd", "none"])
def test_other_kinds_of_host_pool(tmp_path: Path, kind: str) -> None:
    with StandIn(tmp_path, "--enable-hierarchical-cache", "--host-pool-mib", "64", "--host-pool-kind", kind) as server:
        scheduler = server.children()["sglang::scheduler"]
        assert (scheduler.memory_info().rss > 64 * 2**20) == (kind == "memfd")
        assert ("memfd:sglang_host_pool_0" in Path(f"/proc/{scheduler.pid}/maps").read_text()) == (kind == "memfd")


def test_the_start_answers_503_until_the_warm_up_is_done(tmp_path: Path) -> None:
    with StandIn(tmp_path, "--phase", "warmup=1.0", ready=False) as server:
        server.wait_log("Uvicorn running")
        assert server.get("/health").status == server.get("/ready").status == server.get("/ping").status == 503
        assert server.get("/v1/models").status == server.get("/metrics").status == 200
        server.wait_log("ready to roll")
        assert server.get("/health").status == 200


@pytest.mark.parametrize(
    ("phase", "last"),
    [("init", Mark.INIT_BEGIN), ("weights", Mark.WEIGHTS_PROGRESS), ("graphs", Mark.GRAPHS_BEGIN), ("pool", Mark.HOST_POOL)],
)
def test_a_stuck_start(tmp_path: Path, phase: str, last: Mark) -> None:
    with StandIn(tmp_path, *KIMI, "--stuck-at", phase, ready=False, version="0.5.9") as server:

        def is_stuck() -> bool:
            marks = [line.mark for line in server.marks() if line.rank == "TP0" or line.mark == Mark.WEIGHTS_PROGRESS]
            return bool(marks) and marks[-1] == last

        wait_for(is_stuck)
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")
        # Nothing handles SIGTERM yet: the parent dies of it, and its children with it.
        assert server.end(signal.SIGTERM) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("version", "fail", "code", "mark"),
    [
        ("0.5.9", "pool", -9, Mark.HOST_MEMORY_SHORT),
        ("0.5.23", "kv", -9, Mark.OUT_OF_MEMORY),
        ("0.5.23", "weights=exception", -9, Mark.EXCEPTION),
        ("0.5.23", "weights=oom-kill", 1, Mark.CHILD_DEAD),
        ("0.5.9", "weights=oom-kill", 1, Mark.CHILD_DEAD),
        ("0.5.23", "init=arguments", 2, Mark.BAD_ARGUMENTS),
        ("0.5.9", "warmup", -9, Mark.WARMUP_FAILED),
    ],
)
def test_a_start_that_fails(tmp_path: Path, version: str, fail: str, code: int, mark: Mark) -> None:
    with StandIn(tmp_path, *KIMI, "--fail-at", fail, ready=False, version=version) as server:
        assert server.process.wait(8) == code
        assert mark in {line.mark for line in server.marks()}, server.log()[-20:]
        assert Mark.READY not in {line.mark for line in server.marks()}


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with StandIn(tmp_path, "--port", str(port), ready=False) as server:
            assert server.process.wait(8) == 3
            marks = [line.mark for line in server.marks()]
    assert Mark.PORT_IN_USE in marks
    # The lie of the real one: its warm-up reached the other server.
    assert marks.index(Mark.READY) > marks.index(Mark.PORT_IN_USE)


@pytest.mark.parametrize(
    "argv",
    [
        ["--no-such-flag"],
        ["--stuck-at", "nowhere"],
        ["--fail-at", "pool=port"],
        ["--phase", "weights=-1"],
        ["--time-scale", "0"],
        ["--sglang-version", "new"],
        ["fault", "no-such-fault"],
        ["fault", "hang", "no-value"],
    ],
)
def test_bad_arguments(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDIN_FAULT_DIR", str(tmp_path))
    try:
        status = main(argv)
    except SystemExit as stop:
        status = int(stop.code or 0)
    assert status == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--stuck-at", "--host-pool-kind", "--fault-dir", "--reasoning-parser"))


def test_marks_of_a_start_are_in_pairs(tmp_path: Path) -> None:
    """Each phase that begins ends: what a progress display leans on."""
    with StandIn(tmp_path, version="0.5.23") as server:
        marks = [line.mark for line in server.marks()]
    for begin, end in pairwise([Mark.WEIGHTS_BEGIN, Mark.WEIGHTS_END, Mark.GRAPHS_BEGIN, Mark.GRAPHS_END]):
        assert marks.index(begin) < marks.index(end)
