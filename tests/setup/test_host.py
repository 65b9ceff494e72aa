"""Servers by their units and processes."""

from pathlib import Path
from typing import Any

import pytest

from watchdog.setup import host

LAUNCH = ["python", "-m", "sglang.launch_server", "--model-path", "m", "--port", "31000"]


def process(proc: Path, pid: int, argv: list[str], cgroup: str, status: str = "") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (folder / "cgroup").write_text(cgroup)
    (folder / "status").write_text(status)


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/sglang-kimi.service\n", "sglang-kimi.service"),
        ("12:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/\n", "a.service"),
        ("0::/system.slice/quadlet.service/libpod-payload-0123456789ab\n", "quadlet.service"),
        ("0::/system.slice/docker-0123456789abcdef.scope\n", "docker-0123456789abcdef.scope"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/own.service\n", "own.service"),
        ("0::/\n", None),
        ("", None),
        ("nonsense", None),
    ],
)
def test_the_unit_of_a_cgroup(cgroup: str, unit: str | None) -> None:
    assert host.unit_of(cgroup) == unit


def test_candidates_are_the_main_processes_each_unit_once(tmp_path: Path) -> None:
    scope = "docker-" + "a" * 64 + ".scope"
    process(tmp_path, 10, LAUNCH, "0::/system.slice/sglang.service\n")
    process(tmp_path, 11, ["sglang::scheduler_TP0"], "0::/system.slice/sglang.service\n")
    process(tmp_path, 12, LAUNCH, f"0::/system.slice/{scope}\n")
    process(tmp_path, 13, ["bash", "-c", "sglang.launch_server"], "0::/system.slice/other.service\n")
    process(tmp_path, 14, LAUNCH, "0::/\n")
    (tmp_path / "self").mkdir()

    found = {c.unit: c for c in host.candidates(tmp_path)}

    assert set(found) == {"sglang.service", scope, None}
    assert found[scope].container == "a" * 64
    assert found["sglang.service"].container is None


def test_the_client_of_a_container_is_not_its_server(tmp_path: Path) -> None:
    scope = "libpod-" + "b" * 64 + ".scope"
    process(tmp_path, 10, ["/usr/bin/podman", "run", "image", *LAUNCH], "0::/system.slice/sglang.service\n")
    process(tmp_path, 11, ["/usr/bin/conmon", "-n", "kimi", *LAUNCH], "0::/system.slice/sglang.service\n")
    process(tmp_path, 12, LAUNCH, f"0::/machine.slice/{scope}/container\n")

    assert [(c.pid, c.unit, c.container) for c in host.candidates(tmp_path)] == [(12, scope, "b" * 64)]


def unit(argv: list[str], **more: Any) -> dict[str, Any]:
    return {"ExecStart": [["/usr/bin/python", argv, False, 0, 0, 0, 0, 0, 0, 0]], **more}


def test_variables_of_the_unit_are_put_in_and_unknown_ones_stay() -> None:
    properties = unit(["python", "--port", "${PORT}", "--host", "$HOST"], Environment=["PORT=31000", "odd"])

    assert host.command(properties) == ["python", "--port", "31000", "--host", "$HOST"]


@pytest.mark.parametrize(
    ("word", "value", "words"),
    [
        ("$ARGS", "--host 0.0.0.0  --port 31000", ["--host", "0.0.0.0", "--port", "31000"]),
        ("$ARGS", "--name 'two words'", ["--name", "two words"]),
        ("$ARGS", "it's", ["it's"]),
        ("$ARGS", "", []),
        ("${ARGS}", "two words", ["two words"]),
        ("--name=${ARGS}", "two words", ["--name=two words"]),
    ],
)
def test_a_variable_that_is_a_word_of_its_own_is_as_many_words_as_it_has(word: str, value: str, words: list[str]) -> None:
    assert host.command(unit(["python", word], Environment=[f"ARGS={value}"])) == ["python", *words]


def test_variables_whose_values_lie_elsewhere_are_named() -> None:
    assert host.unknown(unit(["python", "--port", "${PORT}", "$ARGS", "--host=${HOST}"], Environment=["PORT=1"])) == [
        "ARGS",
        "HOST",
    ]


@pytest.mark.parametrize(
    "properties", [{}, {"ExecStart": []}, {"ExecStart": None}, {"ExecStart": [["/bin/x"]]}, {"ExecStart": "x"}]
)
def test_a_unit_without_a_command_has_none(properties: dict[str, Any]) -> None:
    assert host.command(properties) == []


def test_where_the_key_lies_is_told_and_never_the_key() -> None:
    args = {"api_key": "s3cret"}

    assert "environment" in str(host.key_place(args, ["python", "--api-key", "$KEY"]))
    assert "environment" in str(host.key_place(args, ["python", "--api-key=${KEY}"]))
    on_line = host.key_place(args, ["python", "--api-key", "s3cret"])
    assert on_line is not None
    assert "s3cret" not in on_line
    assert host.key_place({}, ["python"]) is None


def test_pinned_memory_is_what_was_asked_for_or_what_is_held(tmp_path: Path) -> None:
    process(tmp_path, 5, ["sglang::scheduler_TP0"], "", "RssAnon:\t1000 kB\nRssShmem:\t3000 kB\n")
    cached = {"enable_hierarchical_cache": True}

    assert host.pinned({**cached, "hicache_size": 40, "tp_size": 8}, [], tmp_path) == 320 * 10**9
    assert host.pinned(cached, [5, 6], tmp_path) == 4000 * 1024
    assert host.pinned(cached, [], tmp_path) is None
    assert host.pinned({"port": 1}, [5], tmp_path) == 0
    assert host.pinned({}, [], tmp_path) is None


def test_gpus_are_counted_by_the_driver(tmp_path: Path) -> None:
    assert host.gpus(tmp_path) == 0
    (tmp_path / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    assert host.gpus(tmp_path) == 1
