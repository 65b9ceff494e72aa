"""What `verify` hears is told as the daemon would tell it: without secrets, and with the true reason why it heard nothing."""

import socket
from pathlib import Path

import pytest

from tests.observe.talker import reply, says, talking
from watchdog import asking, config
from watchdog.observe.canary import Canary
from watchdog.observe.source import Target
from watchdog.verify import api
from watchdog.verify.gather import Gatherer
from watchdog.verify.seen import Seen

SECRET = "sk-SECRETMARKER12345"
FAILED = f'{{"error": {{"message": "boom for api_key={SECRET}, prompt=\'tell me of {SECRET} and my life\'"}}}}'


async def look(server: config.Server, folder: Path, limit_s: float = 2.0) -> Seen:
    """One look at the API of a server."""
    seen = Seen(server=server)
    gatherer = Gatherer(config.Config(servers=[server]), folder, limit_s)
    await gatherer._ask(Target(server), seen)
    return seen


async def test_a_body_with_a_key_and_a_prompt_is_not_printed(tmp_path: Path) -> None:
    async with talking(says(reply(500, FAILED.encode()))) as talker:
        seen = await look(talker.server(model="m"), tmp_path)
    item = api.canary(seen)
    assert "boom for" in item.seen
    assert SECRET not in repr(seen) and "my life" not in item.seen


async def test_a_daemon_that_is_slow_is_not_called_forbidden(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / asking.NAME))
        listener.listen()  # and nobody answers
        async with talking(says(reply(500, b"{}"))) as talker:
            server = talker.server(model="m", probe={"health_limit_s": 1, "chat": False})
            gatherer = Gatherer(config.Config(servers=[server]), tmp_path, 1.0)
            seen = Seen(server=server)
            await gatherer._health(Canary(server, rng=None, now=lambda: 0.0), Target(server), seen)  # type: ignore[arg-type]
    assert seen.no_health is not None
    assert "did not tell of it within 7 s" in seen.no_health and "root" not in seen.no_health


def test_a_time_out_is_an_error_of_its_own(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / asking.NAME))
        listener.listen()
        with pytest.raises(asking.SlowError, match=r"within 0.1 s"):
            asking.ask(tmp_path, {"command": "status"}, 0.1)
