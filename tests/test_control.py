"""The control socket: who speaks badly is turned away, and nobody else waits for it."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from watchdog import control
from watchdog.asking import NAME, NoDaemonError, RefusedError, ask
from watchdog.control import CALLERS, LINE_LIMIT, Control


async def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("command") == "fall":
        raise ZeroDivisionError("by zero")
    return {"echo": request}


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    # The address of a socket may have 107 bytes (unix(7)); the folder of a test can be longer than that.
    with TemporaryDirectory(prefix="control-") as short:
        async with Control(Path(short), answer):
            yield Path(short)


async def said(folder: Path, data: bytes, *, eof: bool = False) -> bytes:
    reader, writer = await asyncio.open_unix_connection(folder / NAME)
    try:
        writer.write(data)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(30):
            return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def test_it_answers_and_only_we_may_ask(folder: Path) -> None:
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    assert await asyncio.to_thread(ask, folder, {"command": "x"}) == {"echo": {"command": "x"}}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\n", "no JSON"),
        (b"[]\n", "must be a JSON object"),
        (b"null\n", "must be a JSON object"),
        (b"\xff\xfe\n", "no JSON"),
        (b"[" * 60000 + b"\n", "no JSON"),
        (b'{"command": "fall"}\n', "ZeroDivisionError: by zero"),
    ],
)
async def test_bad_requests_are_answered(folder: Path, data: bytes, error: str) -> None:
    assert error in json.loads(await said(folder, data))["error"]


async def test_a_line_without_end_is_cut_off(folder: Path) -> None:
    assert await said(folder, b"x" * (4 * LINE_LIMIT)) == b""
    assert await asyncio.to_thread(ask, folder, {"command": "x"})


async def test_who_hangs_up_or_sends_half_a_line_harms_nobody(folder: Path) -> None:
    assert b"error" in await said(folder, b'{"comm', eof=True)
    _, writer = await asyncio.open_unix_connection(folder / NAME)
    writer.close()
    assert await asyncio.to_thread(ask, folder, {"command": "x"})


async def test_silent_callers_are_bounded_in_number(folder: Path) -> None:
    silent = [await asyncio.open_unix_connection(folder / NAME) for _ in range(CALLERS)]
    try:
        assert await said(folder, b'{"command": "x"}\n') == b"", "one too many is turned away"
    finally:
        for _, writer in silent:
            writer.close()


async def test_silent_callers_are_bounded_in_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "REQUEST_LIMIT_S", 0.1)
    reader, writer = await asyncio.open_unix_connection(folder / NAME)
    try:
        async with asyncio.timeout(30):
            assert await reader.read() == b""
    finally:
        writer.close()
    assert await asyncio.to_thread(ask, folder, {"command": "x"})


async def test_a_refusal_is_told_apart_from_no_daemon(folder: Path) -> None:
    with pytest.raises(RefusedError, match="by zero"):
        await asyncio.to_thread(ask, folder, {"command": "fall"})
    with pytest.raises(NoDaemonError):
        ask(folder / "elsewhere", {})


async def test_a_folder_that_cannot_be_used_is_told_and_the_daemon_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, str]] = []
    monkeypatch.setattr(
        control, "get", lambda: SimpleNamespace(error=lambda event, **fields: said.append({"event": event, **fields}))
    )
    (tmp_path / "file").write_text("")
    async with Control(tmp_path / "file", answer):
        pass
    assert said[0]["event"] == "control-lost"
    assert "mend the folder's owner and mode" in said[0]["message"]


async def test_an_old_socket_is_replaced_and_ours_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("left by a daemon that was killed")
    async with Control(tmp_path, answer):
        assert (tmp_path / NAME).is_socket()
    assert not (tmp_path / NAME).exists()
