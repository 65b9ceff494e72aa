"""The stacks of the server's processes, from the helper that may see them (watchdog/stacks/), where a person has installed it."""

import asyncio
import contextlib
from pathlib import Path

from watchdog.act import redact
from watchdog.act.command import CommandError
from watchdog.act.scene import Scene

SOCKET = Path("/run/sglang-watchdog-stacks.sock")
"""units/sglang-watchdog-stacks.socket."""

CAP = 2 << 20
"""Bytes of the answer that are kept."""

NO_HELPER = "the stacks helper is not installed (`sglang-watchdog setup --stacks`)"


async def stacks(scene: Scene, limit_s: float) -> bytes:
    """What the helper tells of the server's unit. What came until the limit counts; it only reads, and stops no process.

    Raises:
        CommandError: there is no helper, it refused, or it said nothing.
    """
    answer = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            await _ask(f"{scene.server.unit}\n".encode(), answer)
        cut = "\n[cut: there is more]" if len(answer) >= CAP else ""
    except TimeoutError:
        cut = f"\n[cut: it took longer than {limit_s:.1f} s]"
    except (FileNotFoundError, ConnectionRefusedError):
        raise CommandError(NO_HELPER) from None
    except OSError as e:
        raise CommandError(f"the stacks helper cannot be asked: {e.strerror or e}") from e
    word, _, told = bytes(answer[:CAP]).decode("utf-8", "replace").partition("\n")
    if word != "ok":
        said = redact.line(word, 300) if word else "it said nothing; see `journalctl -u 'sglang-watchdog-stacks@*'`"
        raise CommandError(f"the stacks helper: {said}")
    names = [f"{each.pid} {each.name}" for each in scene.processes if each.name and each.name.startswith("sglang::")]
    head = f"Known as: {', '.join(names)}\n" if names else ""
    return redact.block(f"{head}{told}{cut}").encode()


async def _ask(request: bytes, answer: bytearray) -> None:
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    try:
        writer.write(request)
        await writer.drain()
        while len(answer) < CAP and (piece := await reader.read(1 << 16)):
            answer += piece
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
