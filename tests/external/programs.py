"""Debian's Prometheus and Alertmanager, unpacked by packaging/external.sh, on loopback."""

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

PROJECT = Path(__file__).resolve().parents[2]
EXTERNAL = PROJECT / ".cache/external"
BIN = EXTERNAL / "root/usr/bin"
APPRISE_PYTHON = EXTERNAL / "venv/bin/python"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def program(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """Runs one until the block ends; yields the file with what it prints."""
    binary = BIN / name
    if not binary.exists():
        pytest.fail(f"{binary} is missing; run: make test-external")
    log = folder / f"{name}.log"
    # Debian's Alertmanager reads its templates from /usr/share, where they are not: they are shown to it there.
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    view = 'mount --bind "$0" /usr/share && exec "$@"'
    command = ["unshare", *as_root, "--mount", "sh", "-c", view, str(EXTERNAL / "root/usr/share"), str(binary), *arguments]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=folder) as process:
        try:
            yield log
        finally:
            process.terminate()
            process.wait(10)


@contextmanager
def alertmanager(folder: Path, webhook: str, port: int) -> Iterator[str]:
    """An Alertmanager that passes all it gets to a webhook; yields its address. Its data outlives it."""
    file = folder / "alertmanager.yml"
    file.write_text(
        "route: {receiver: hook, group_by: [alertname, server], group_wait: 1s, group_interval: 1s, repeat_interval: 1h}\n"
        f"receivers: [{{name: hook, webhook_configs: [{{url: '{webhook}', send_resolved: true}}]}}]\n"
    )
    arguments = (
        f"--config.file={file}",
        f"--storage.path={folder}/am",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    with program(folder, "prometheus-alertmanager", *arguments):
        yield f"http://127.0.0.1:{port}"


async def until(holds: Callable[[], Awaitable[object]], limit_s: float = 30) -> None:
    """Wait until something is so; what cannot be asked yet is not so."""
    async with asyncio.timeout(limit_s):
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
                if await holds():
                    return
            await asyncio.sleep(0.1)


async def get_json(url: str) -> object:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.json()
