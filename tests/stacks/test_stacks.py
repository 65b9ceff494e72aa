"""The stacks helper without its rights: what it makes of requests, procfs and py-spy (at work: tests/box/test_box_stacks.py)."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from watchdog.observe.cgroup import Cgroups
from watchdog.stacks import kernel, python
from watchdog.stacks.__main__ import CAP, Answer, RefusedError, check_peer, requested, server_of

UNIT = "sglang-kimi.service"
CGROUP = f"/system.slice/{UNIT}"


def process(
    proc: Path, pid: int, *, cgroup: str = CGROUP, comm: str = "python3", threads: dict[int, tuple[str, str, str]]
) -> None:
    """A process with its threads: state, wchan and stack of each."""
    for folder in (proc / str(pid), *(proc / f"{pid}/task/{thread}" for thread in threads)):
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} ({comm}) S 1 1")
    (proc / f"{pid}/cgroup").write_text(f"0::{cgroup}\n")
    (proc / f"{pid}/exe").symlink_to("/opt/venv/bin/python3.11")
    for thread, (state, wchan, stack) in threads.items():
        task = proc / f"{pid}/task/{thread}"
        (task / "stat").write_text(f"{thread} ({comm}) {state} 1 1")
        (task / "wchan").write_text(wchan)
        (task / "stack").write_text(stack)


def test_threads_that_stand_alike_are_told_once(tmp_path: Path) -> None:
    waits = ("S", "futex_wait_queue", "[<0>] futex_wait_queue+0x60/0x90\n[<0>] do_futex+0x1/0x2\n")
    wedged = ("D", "nv_wait", "[<0>] nv_wait+0x1/0x2 [nvidia]\n")
    process(tmp_path, 7, threads={7: wedged, **dict.fromkeys(range(100, 140), waits)})

    seen = kernel.look(7, CGROUP, tmp_path)

    assert seen is not None and seen.python and seen.name == "python3"
    first, *rest = seen.text.split("threads ")[1:]
    assert first == "7 (python3): state D, waits in nv_wait\n    nv_wait+0x1/0x2 [nvidia]\n"
    assert len(rest) == 1 and "100 (python3), 101 (python3)" in rest[0]
    assert "and 16 more: state S, waits in futex_wait_queue\n    futex_wait_queue+0x60/0x90\n    do_futex+0x1/0x2" in rest[0]


def test_what_is_not_in_the_unit_is_not_looked_at(tmp_path: Path) -> None:
    process(tmp_path, 7, cgroup="/system.slice/other.service", threads={7: ("S", "0", "")})
    process(tmp_path, 8, cgroup=f"{CGROUP}x", threads={8: ("S", "0", "")})
    assert [kernel.look(pid, CGROUP, tmp_path) for pid in (7, 8, 9)] == [None, None, None]
    assert not kernel.is_in(7, CGROUP, tmp_path) and not kernel.is_in(9, CGROUP, tmp_path)


def test_without_rights_what_is_open_is_told_and_names_cannot_write_lines(tmp_path: Path) -> None:
    process(tmp_path, 7, comm="a) x\n== 1 root\x1b[", threads={7: ("S", "0", "")})
    (tmp_path / "7/task/7/stack").unlink()
    seen = kernel.look(7, CGROUP, tmp_path)
    assert seen is not None
    assert seen.name == "a) x?== 1 root?[" and seen.text == "threads 7 (a) x?== 1 root?[): state S"


def test_a_cgroup_is_found_in_slices_alone(tmp_path: Path) -> None:
    tree = tmp_path / "cgroup"
    for path in ("user.slice/user-1.slice/user@1.service/app.slice", "system.slice/other.service/a.slice"):
        (tree / path / UNIT).mkdir(parents=True)
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.parent.mkdir(parents=True)
    mountinfo.write_text(f"1 0 0:1 / {tree} rw - cgroup2 cgroup2 rw\n")
    cgroups = Cgroups(tmp_path / "proc")
    assert kernel.cgroup_of(UNIT, cgroups) is None
    (tree / "gpu.slice/gpu-a.slice" / UNIT).mkdir(parents=True)
    assert kernel.cgroup_of(UNIT, cgroups) == f"/gpu.slice/gpu-a.slice/{UNIT}"


def test_of_py_spys_answer_threads_and_frames_are_kept_and_nothing_else() -> None:
    frames = [{"name": "hold", "filename": "/x/forward.py", "short_filename": "forward.py", "line": 7, "locals": ["s3cret"]}]
    thread = {"os_thread_id": 5, "thread_name": "Main\nThread", "active": True, "owns_gil": True, "frames": frames * 70}
    thread["process_info"] = {"command_line": "python --api-key s3cret"}
    told = python.told(json.dumps([thread, {"frames": None}]).encode())
    assert told.startswith('thread 5 "Main?Thread" (active, holds the GIL)\n    hold (forward.py:7)\n')
    assert told.endswith("\n    … and 6 frames more")
    assert "s3cret" not in told
    assert python.told(b"[]") == "no Python thread"
    with pytest.raises(python.NoStacksError):
        python.told(b'[{"frames": [')


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of root")
def test_a_py_spy_that_others_could_have_changed_is_not_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    spy = own / "py-spy"
    spy.write_text("#!/bin/sh\n")
    spy.chmod(0o755)
    assert python.program([tmp_path / "none", spy]) == spy
    spy.chmod(0o775)
    with pytest.raises(python.NoStacksError, match="changed by others"):
        python.program([spy])
    spy.chmod(0o755)
    own.chmod(0o777)
    with pytest.raises(python.NoStacksError, match="changed by others"):
        python.program([spy])
    own.chmod(0o755)
    tmp_path.chmod(0o775)
    with pytest.raises(python.NoStacksError, match="changed by others"):
        python.program([spy])
    tmp_path.chmod(0o755)
    link = tmp_path / "py-spy"
    link.symlink_to(spy)
    assert python.program([link]) == spy, "not the link, which others may turn"
    os.chown(spy, 65534, 65534)
    with pytest.raises(python.NoStacksError, match="changed by others"):
        python.program([link])
    with pytest.raises(python.NoStacksError, match="not installed"):
        python.program([tmp_path / "none"])


def test_py_spy_that_hangs_costs_its_limit_and_takes_no_other_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\nif [ "$5" = 1 ]; then exec sleep 60; fi\necho "[]"\n')
    spy.chmod(0o755)
    monkeypatch.setattr(python, "program", lambda: spy)
    monkeypatch.setattr(python, "is_in", lambda pid, cgroup: pid != 3)
    monkeypatch.setattr(python, "ONE_LIMIT_S", 0.2)
    monkeypatch.setattr(python, "TRIES", 1)
    told = sorted(python.stacks([1, 2, 3], CGROUP, time.monotonic() + 30))
    assert told == [
        "== Python stacks of 1: py-spy gave no answer within 0 s",
        "== Python stacks of 2\nno Python thread",
        "== Python stacks of 3: it has ended, or is not in the unit",
    ]


def test_a_socket_of_a_stranger_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    with near, far:
        monkeypatch.setattr("watchdog.stacks.__main__.allowed", lambda: {os.getuid()})
        check_peer(near)
        monkeypatch.setattr("watchdog.stacks.__main__.allowed", lambda: {os.getuid() + 1})
        with pytest.raises(RefusedError, match=f"not the user {os.getuid()}"):
            check_peer(near)


@pytest.mark.parametrize("request_", [b"", b"a", b"a\n", b"a.service\nb", b"a/b.service\n", b"a.socket\n", b"\xff.service\n"])
def test_what_is_no_name_of_a_unit_is_refused(request_: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(request_)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(RefusedError):
            requested(near)


def test_only_units_of_the_configuration_are_told(tmp_path: Path) -> None:
    path = tmp_path / "wd.toml"
    with pytest.raises(RefusedError, match="cannot be used"):
        server_of(UNIT, path)
    path.write_text(f'[[servers]]\nname = "kimi"\nunit = "{UNIT}"\nbase_url = "http://127.0.0.1:1"\n')
    assert server_of(UNIT, path).name == "kimi"
    with pytest.raises(RefusedError, match=r"other\.service is no server"):
        server_of("other.service", path)


def test_an_answer_has_an_end() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * CAP)
        answer = Answer(near)
        got = 0
        for _ in range(CAP // 65536 + 2):
            answer.say("x" * 65535)
            far.settimeout(0)
            try:
                got += len(far.recv(1 << 20))
            except BlockingIOError:
                break
        assert got == CAP


def test_it_imports_little() -> None:
    code = "import sys, watchdog.stacks.__main__; print([name for name in sys.argv if name in sys.modules])"
    heavy = ["asyncio", "aiohttp", "dbus_fast", "psutil", "pynvml", "structlog", "systemd", "watchdog.act", "watchdog.judge"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_folder_of_this_interpreter_is_where_py_spy_is_looked_for_first() -> None:
    assert python.PLACES[0] == Path(sys.prefix) / "bin/py-spy"
    assert stat.S_ISDIR(python.PLACES[0].parent.stat().st_mode)
