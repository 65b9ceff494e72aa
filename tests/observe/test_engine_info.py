import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.observe.hosts import UNIT, fill, mount, proc, process
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Server, encode
from watchdog.observe import engine_info
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.engine_info import EngineInfoSource, allowed, cleaned, merged
from watchdog.observe.source import Target

ARGV = (
    "/opt/venv/bin/python3\0-m\0sglang.launch_server\0--model-path\0/models/Kimi-K2.5\0--tp\x008\0"
    "--api-key\0sk-very-secret\0--admin-api-key=admin-very-secret\0--enable-hierarchical-cache\0--hicache-ratio\x004\0"
)
ENVIRON = (
    "SGLANG_LOG_MS=1\0NCCL_DEBUG=INFO\0https_proxy=http://someone:hunter2@proxy:3128\0HTTP_PROXY=someone:hunter2@proxy\0"
    "HF_TOKEN=hf_verysecret\0SGLANG_API_KEY=sk-very-secret\0PATH=/bin\0odd\0"
)
INFO = {
    "model_path": "/models/Kimi-K2.5",
    "tp_size": 8,
    "page_size": 64,
    "hicache_ratio": 4.0,
    "api_key": "sk-very-secret",
    "admin_api_key": "admin-very-secret",
    "watermark_key": "wm-very-secret",
    "ssl_keyfile_password": "pw-very-secret",
    "random_seed": 123,
    "launch_command": "--api-key sk-very-secret",
    "cuda_graph_config": {"decode": {}},
    "version": "0.5.23",
    "max_total_num_tokens": 159277,
    "internal_states": [{"memory_usage": {"weight": 73.2, "token_capacity": 159277}, "api_key": "sk-very-secret"}],
}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeServer:
    """Answers /server_info as it is told, and counts the questions."""

    def __init__(self) -> None:
        self.answer: Answer = self.info
        self.asked: list[str] = []
        self.url = ""

    async def info(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(INFO)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        return await self.answer(request)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    app = web.Application()
    app.router.add_get("/{path}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield fake
    await runner.cleanup()


class Run:
    """The source at work on a made-up host."""

    def __init__(self, tmp_path: Path, base_url: str, main: int | None = 40) -> None:
        self.root = proc(tmp_path, mount(tmp_path / "cg", "cgroup2", "rw"))
        process(self.root, 40, "python3", ARGV)
        fill(self.root / "40", {"environ": ENVIRON})
        fill(tmp_path / "cg" / UNIT[1:], {"cgroup.procs": "39\n40\n41\n"})
        self.target = Target(config.Server(name="kimi", unit="sglang-kimi.service", base_url=base_url))
        self.target.inv, self.target.cgroup, self.target.active, self.target.main_pid = "a1", UNIT, True, main
        self.target.hold = "starting"
        self.seen: asyncio.Queue[Server] = asyncio.Queue()
        self.source = EngineInfoSource(self.target, BootClock(), Cgroups(self.root), self.root, turn_s=0.02)

    async def __aenter__(self) -> "Run":
        self.task = asyncio.create_task(self.source.run(self.seen.put_nowait, lambda: None))  # type: ignore[arg-type]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def next(self) -> Server:
        return await asyncio.wait_for(self.seen.get(), 30)


async def test_one_life(tmp_path: Path, server: FakeServer) -> None:
    async with Run(tmp_path, server.url) as run:
        first = await run.next()
        assert first.args["tp_size"] == 8 and first.args["enable_hierarchical_cache"] is True and first.inv == "a1"
        assert first.version is None
        await asyncio.sleep(0.2)
        assert server.asked == []  # it starts: nobody is asked

        run.target.hold = None
        run.target.tell()
        second = await run.next()
        assert (second.version, second.max_total_num_tokens, second.inv) == ("0.5.23", 159277, "a1")
        assert second.memory_usage == {"weight": 73.2, "token_capacity": 159277}
        assert second.args["page_size"] == 64 and second.args["tp_size"] == 8
        assert "random_seed" not in second.args and "launch_command" not in second.args
        assert second.env == first.env

        await asyncio.sleep(0.2)
        assert server.asked == ["/server_info"]  # once in a life

        run.target.inv = "b2"
        run.target.tell()
        lives = [await run.next(), await run.next()]
        assert [each.inv for each in lives] == ["b2", "b2"]
        for each in (first, second, *lives):
            text = encode(each).decode()
            assert "very" not in text and "hunter2" not in text


async def test_an_old_server_is_asked_by_its_old_name(tmp_path: Path, server: FakeServer) -> None:
    async def old(request: web.Request) -> web.StreamResponse:
        return web.json_response({"version": "0.4.6"}) if "get_" in request.path else web.Response(status=404)

    server.answer = old
    async with Run(tmp_path, server.url) as run:
        run.target.hold = None
        run.target.tell()
        await run.next()
        assert (await run.next()).version == "0.4.6"
    assert server.asked == ["/server_info", "/get_server_info"]


async def test_a_server_that_hangs_is_not_asked_twice(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    server.answer = hang
    monkeypatch.setattr(engine_info, "ASK_LIMIT_S", 0.1)
    monkeypatch.setattr(engine_info, "ASK_AGAIN_S", 0.05)
    async with Run(tmp_path, server.url) as run:
        await run.next()
        run.target.hold = None
        run.target.tell()
        await asyncio.sleep(0.5)
    assert server.asked == ["/server_info"]
    assert run.seen.empty()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"nonsense", b'{"internal_states": [7], "version": 5, "max_total_num_tokens": "x"}']
)
async def test_answers_that_are_none(tmp_path: Path, server: FakeServer, body: bytes) -> None:
    async def odd(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    server.answer = odd
    async with Run(tmp_path, server.url) as run:
        await run.next()
        run.target.hold = None
        run.target.tell()
        await asyncio.sleep(0.2)
        assert not run.task.done()


async def test_a_server_that_refuses_is_asked_again(tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_info, "ASK_AGAIN_S", 0.05)
    async with Run(tmp_path, "http://127.0.0.1:1") as run:
        run.target.hold = None
        run.target.tell()
        await run.next()
        await asyncio.sleep(0.2)
        run.source._access.base = server.url
        assert (await run.next()).version == "0.5.23"


async def test_a_server_behind_a_script_is_found_in_the_cgroup(tmp_path: Path) -> None:
    run = Run(tmp_path, "http://127.0.0.1:1", main=39)
    process(run.root, 39, "run.sh", "/bin/sh\0/opt/run.sh\0")
    async with run:
        assert (await run.next()).args["model_path"] == "/models/Kimi-K2.5"


async def test_an_unreadable_environment_is_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path, "http://127.0.0.1:1")
    (run.root / "40/environ").unlink()
    async with run:
        seen = await run.next()
        assert seen.env == {} and seen.args["tp_size"] == 8


def test_the_environment_that_may_be_kept() -> None:
    assert allowed(ENVIRON.split("\0")) == {
        "SGLANG_LOG_MS": "1",
        "NCCL_DEBUG": "INFO",
        "https_proxy": "http://…@proxy:3128",
        "HTTP_PROXY": "…@proxy",
        "SGLANG_API_KEY": "…",
    }


def test_arguments_without_secrets() -> None:
    kept = cleaned({"api_key": "x", "admin_api_key": None, "watermark_key": "w", "max_total_tokens": 5, "url": "http://a:b@c/d"})
    assert kept == {"api_key": "…", "admin_api_key": None, "watermark_key": "…", "max_total_tokens": 5, "url": "http://…@c/d"}


def test_an_answer_without_a_command_line() -> None:
    seen = merged(None, json.loads(json.dumps(INFO)))
    assert seen.args["tp_size"] == 8 and "very" not in encode(seen).decode()
