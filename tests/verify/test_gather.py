"""What `verify` hears is told as the daemon would tell it: without secrets, and with the true reason why it heard nothing."""

import socket
import time
from pathlib import Path

import pytest

from tests.observe.talker import reply, says, talking
from watchdog import asking, config
from watchdog.observe.canary import Canary
from watchdog.observe.source import Target
from watchdog.verify import api, gather
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


async def test_without_systemd_nobody_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "BOOTED", tmp_path / "none")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    server = config.Server(name="kimi", unit="sglang-kimi.service", base_url="http://127.0.0.1:1")
    begun = time.monotonic()
    (seen,) = await Gatherer(config.Config(servers=[server]), tmp_path, 1.0).looks([server])
    took = time.monotonic() - begun
    assert took < 5.0  # it was 14 s
    assert took - 0.5 < seen.took_s <= took, "all of it is told"
    assert f"no connection to unix:path={tmp_path}/none: No such file or directory" in (seen.no_systemd or "")
