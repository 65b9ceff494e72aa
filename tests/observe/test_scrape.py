import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.observe.talker import Script, Talker, reply, says, talking
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Metrics, Observation, decode, encode
from watchdog.observe import scrape
from watchdog.observe.scrape import ScrapeSource
from watchdog.observe.source import Source, Target

BODY = (Path(__file__).parent.parent / "fixtures" / "http" / "metrics-0.5.23.txt").read_bytes()


def source(talker: Talker, limit_s: float = 10.0, **more: object) -> ScrapeSource:
    target = Target(talker.server(metrics=config.Metrics(interval_s=0.1, limit_s=limit_s), **more))
    target.inv = "life1"
    return ScrapeSource(target, BootClock(), absent_interval_s=60)


async def test_the_real_body() -> None:
    async with talking(says(reply(200, BODY, "text/plain; version=0.0.4; charset=utf-8"))) as talker:
        seen = await source(talker).scrape()
    assert seen.ok and seen.inv == "life1" and seen.values["max_total_num_tokens"] == 65536
    assert b"GET /metrics HTTP/1.1" in talker.requests[0] and b"Accept: text/plain;version=0.0.4" in talker.requests[0]
    assert decode(encode(seen)) == seen


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (says(reply(404, b'{"detail":"Not Found"}')), "absent"),
        (says(reply(403)), "status 403"),
        (says(reply(500)), "status 500"),
        (says(reply(302, Location="/elsewhere")), "status 302"),
        (says(), "reset"),
        (says(hold=5), "timeout"),
        (says(reply(200, b"<html>hello</html>")), "malformed"),
        (says(reply(200, b"sglang:a 1\n\xff\xfe")), "malformed"),
        (says(reply(200, b"")), "empty"),
        (says(reply(200, b"python_info 1\n")), "empty"),
        (says(reply(200, BODY, Content_Encoding="gzip")), "malformed"),
    ],
)
async def test_what_can_be_wrong(script: Script, error: str) -> None:
    async with talking(script) as talker:
        seen = await source(talker, 0.4 if error == "timeout" else 10.0).scrape()
    assert (seen.ok, seen.error, seen.values) == (False, error, {})


async def test_refused_and_our_own_settings(tmp_path: Path) -> None:
    async with talking(says()) as talker:
        pass
    assert (await source(talker).scrape()).error == "refused"
    assert (await source(talker, api_key_file=str(tmp_path / "none")).scrape()).error == "refused", "it is asked without a key"
    odd = source(talker, base_url="https://127.0.0.1:1", ca_file=str(tmp_path / "none"))
    assert (await odd.scrape()).error == "config"


def errors(seen: list[Observation]) -> list[str]:
    return [one.error for one in seen if isinstance(one, Metrics) and one.error]


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not what():  # noqa: ASYNC110 - polls the test's own state
            await asyncio.sleep(0.01)


async def test_it_scrapes_each_interval_but_an_absent_endpoint_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "REST_S", 0.02)
    present = True

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        await says(reply(200, BODY) if present else reply(404))(request, writer)

    seen: list[Observation] = []
    beats: list[None] = []
    async with talking(script) as talker:
        one = source(talker)
        checked: Source = one
        task = asyncio.create_task(checked.run(seen.append, lambda: beats.append(None)))
        await until(lambda: len(seen) >= 3)
        present = False
        await until(lambda: errors(seen))
        asked = len(talker.requests)
        await asyncio.sleep(0.2)
        assert len(talker.requests) == asked, "not asked again yet"
        one.target.inv = "life2"
        one.target.tell()
        await asyncio.sleep(0.2)
        assert len(talker.requests) == asked + 1, "a new life may have it"
        task.cancel()
        await asyncio.wait({task})
    last = seen[-1]
    assert isinstance(last, Metrics) and (last.error, last.inv) == ("absent", "life2")
    assert len(beats) > 10
