"""The page's server: what it answers, to whom, with which headers; live events; bundles. Real HTTP on loopback."""

import asyncio
import gzip
import io
import json
import os
import socket
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import test_utils, web

from tests.web.site import gpus, make_watch, probe, serve, source
from watchdog import config
from watchdog.observation import Answer
from watchdog.watch import Watch
from watchdog.web.page import Page
from watchdog.web.server import Web
from watchdog.web.stream import Stream

BUNDLE = "2026-01-14T02-00-00Z-SchedulerHung"
EVIL = """<script>alert("x")</script>'"&amp;\u202e\x00\x1b[31m"""

Client = test_utils.TestClient[web.Request, web.Application]


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    made = make_watch(tmp_path)
    serve(made)
    return made


@pytest.fixture
async def client(watch: Watch) -> AsyncIterator[Client]:
    site = Web(config.Web(enabled=True, names=["status.example"]), source([watch]), metrics=lambda: b"up 1\n")
    async with test_utils.TestClient(test_utils.TestServer(site.application())) as made:
        yield made


def bundle(watch: Watch, name: str = BUNDLE, **files: bytes) -> Path:
    folder = watch.home / "incidents" / name
    folder.mkdir(parents=True)
    for file, content in (files or {"summary": b"# Hung\n", "journal": b"line\n" * 100_000}).items():
        (folder / (file + (".md" if file == "summary" else ".txt"))).write_bytes(content)
    return folder


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.02)


# ---- answers


async def test_status_is_what_the_commands_say_and_more(client: Client, watch: Watch) -> None:
    watch.take(gpus(2))
    answer = await (await client.get("/api/status")).json()
    server = answer["servers"][0]
    assert (server["name"], server["phase"]) == ("kimi", "serving")
    assert server["memory"]["announced"] == 8 * 44_770_000_000
    assert len(server["gpus"]["gpus"]) == 2
    assert server["health"]["level"] in {"well", "busy", "trouble"}
    assert server["timeline"]["phases"][-1]["value"] == "serving"
    assert answer["at"].endswith("Z")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/timeline.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
        ("/healthz", "text/plain"),
        ("/metrics", "text/plain"),
        ("/api/status", "application/json"),
    ],
)
async def test_each_path_answers_with_its_type_and_all_headers(client: Client, path: str, kind: str) -> None:
    for ask in (client.get, client.head):
        answer = await ask(path)
        assert (answer.status, answer.content_type) == (200, kind)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Python" not in answer.headers["Server"]
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_headers_stand_on_refusals_too(client: Client) -> None:
    for answer in (await client.get("/nothing"), await client.post("/"), await client.get("/", headers={"Host": "evil.example"})):
        assert answer.status in {404, 405, 421}
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


async def test_healthz_tells_when_the_daemon_is_not_well(watch: Watch) -> None:
    site = Web(config.Web(enabled=True), source([watch], alive=lambda: False))
    async with test_utils.TestClient(test_utils.TestServer(site.application())) as client:
        assert (await client.get("/healthz")).status == 503
        assert (await client.get("/metrics")).status == 404


async def test_an_answer_that_cannot_be_made_is_a_500_and_one_line(watch: Watch) -> None:
    async def broken() -> dict[str, Any]:
        raise RuntimeError("boom")

    data = source([watch])
    site = Web(config.Web(enabled=True), type(data)(status=broken, watches=data.watches, alive=data.alive))
    async with test_utils.TestClient(test_utils.TestServer(site.application())) as client:
        answer = await client.get("/api/status")
        assert answer.status == 500
        assert "boom" not in await answer.text()
        assert (await client.get("/api/events")).status == 500
        assert (await client.get("/healthz")).status == 200


# ---- who may ask, and for what


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9430", 200),
        ("127.0.0.1:9430", 200),
        ("[::1]:9430", 200),
        ("192.0.2.7", 200),
        ("status.example:443", 200),
        ("status.example.", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:9430", 421),
        ("127.1", 421),
        ("[::1].evil.example", 421),
        ("", 421),
        ("a:b:c", 421),
    ],
)
async def test_asked_only_under_our_names(client: Client, host: str, status: int) -> None:
    assert (await client.get("/api/status", headers={"Host": host})).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_nothing_can_be_changed(client: Client, method: str) -> None:
    answer = await client.request(method, "/api/status")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


async def test_other_sites_may_link_here_but_not_read(client: Client) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert (await client.get("/", headers=cross | {"Sec-Fetch-Mode": "navigate"})).status == 200
    assert (await client.get("/api/events", headers=cross | {"Sec-Fetch-Mode": "cors"})).status == 403


async def raw(client: Client, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


async def test_requests_are_bounded(client: Client) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    assert b" 413 " in (await raw(client, head + b"Content-Length: 5\r\n\r\nhello")).split(b"\r\n")[0]
    assert b" 421 " in (await raw(client, b"GET / HTTP/1.0\r\n\r\n")).split(b"\r\n")[0]
    assert b" 400 " in (await raw(client, head + b"X: " + b"a" * 20_000 + b"\r\n\r\n")).split(b"\r\n")[0]
    assert b" 400 " in (await raw(client, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")).split(b"\r\n")[0]


# ---- bundles


async def test_a_bundle_is_listed_read_and_fetched_whole(client: Client, watch: Watch) -> None:
    folder = bundle(watch)
    shown = (await (await client.get("/api/status")).json())["servers"][0]["incidents"]
    assert [(b["name"], b["reason"], b["at"]) for b in shown] == [(BUNDLE, "SchedulerHung", "2026-01-14T02:00:00Z")]
    summary = await client.get(f"/incidents/kimi/{BUNDLE}/summary.md")
    assert (summary.content_type, await summary.text()) == ("text/plain", "# Hung\n")
    answer = await client.get(f"/incidents/kimi/{BUNDLE}.tar.gz")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="kimi-{BUNDLE}.tar.gz"'
    with tarfile.open(fileobj=io.BytesIO(await answer.read())) as tar:
        for path in folder.iterdir():
            member = tar.extractfile(f"{BUNDLE}/{path.name}")
            assert member is not None
            assert member.read() == path.read_bytes()
        assert len(tar.getnames()) == 2


async def test_a_server_that_a_reload_takes_away_takes_nobody_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watches = [make_watch(tmp_path, "kimi"), make_watch(tmp_path, "glm")]
    page = Page(source(watches))

    async def reloads(_watch: Watch) -> list[object]:
        watches[1:] = []
        page.look()
        return []

    monkeypatch.setattr(page, "_incidents", reloads)
    assert [s["name"] for s in (await page.status())["servers"]] == ["kimi", "glm"]


async def test_links_pipes_and_strange_names_stay_out(client: Client, watch: Watch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "summary.md").write_text("root:x:0")
    folder = bundle(watch, summary=b"fine")
    (folder / "leak.txt").symlink_to(secret / "summary.md")
    os.mkfifo(folder / "pipe.txt")
    (folder.parent / "2026-01-15T02-00-00Z-Link").symlink_to(secret)
    (folder.parent / f"{BUNDLE}.partial").mkdir()
    shown = (await (await client.get("/api/status")).json())["servers"][0]["incidents"]
    assert [(b["name"], b["files"]) for b in shown] == [(BUNDLE, ["summary.md"])]
    answer = await client.get(f"/incidents/kimi/{BUNDLE}.tar.gz")
    assert b"root" not in gzip.decompress(await answer.read())
    for name in ("2026-01-15T02-00-00Z-Link", f"{BUNDLE}.partial", "2026-01-16T02-00-00Z-Gone"):
        assert (await client.get(f"/incidents/kimi/{name}.tar.gz")).status == 404
        assert (await client.get(f"/incidents/kimi/{name}/summary.md")).status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/incidents/kimi/..%2f..%2fstate.json.tar.gz",
        "/incidents/kimi/%2e%2e/summary.md",
        "/incidents/kimi/%2e%2e%2fincidents%2f" + BUNDLE + "/summary.md",
        "/incidents/kimi/" + BUNDLE + "%2f..%2f" + BUNDLE + ".tar.gz",
        "/incidents/%2e%2e%2fkimi/" + BUNDLE + "/summary.md",
        "/incidents/kimi/" + BUNDLE + "%00/summary.md",
        "/incidents/kimi/%2fetc/summary.md",
        "/incidents/kimi/.tar.gz",
        "/incidents/nobody/" + BUNDLE + "/summary.md",
        "/..%2fserver.py",
        "/%2e%2e/page.py",
    ],
)
async def test_no_path_leads_elsewhere(client: Client, watch: Watch, path: str) -> None:
    bundle(watch)
    (watch.home / "summary.md").write_text("outside")
    answer = await raw(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] == b"404"
    assert b"outside" not in answer


# ---- live


async def events(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, dict[str, Any]]]:
    got = []
    kind = ""
    while len(got) < count:
        line = (await asyncio.wait_for(answer.content.readline(), 30)).decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            got.append((kind, json.loads(line[6:])))
    return got


def stream_app(watch: Watch, **settings: Any) -> tuple[Stream, web.Application]:
    stream = Stream(Page(source([watch])), **settings)
    app = web.Application()
    app.router.add_get("/api/events", stream.serve)
    return stream, app


async def test_events_tell_the_whole_first_and_then_what_changed(watch: Watch) -> None:
    stream, app = stream_app(watch, period_s=0.05)
    async with test_utils.TestClient(test_utils.TestServer(app, port=0)) as client:
        assert not stream.running
        answer = await client.get("/api/events")
        assert answer.content_type == "text/event-stream"
        [(kind, whole)] = await events(answer, 1)
        assert (kind, whole["servers"][0]["name"]) == ("status", "kimi")
        probe(watch, "chat", "malformed", status=200, detail=EVIL, answer=Answer(text=EVIL))
        changed: dict[str, Any] = {}
        while "failed_probes" not in changed:
            [(kind, patch)] = await events(answer, 1)
            assert kind == "patch"
            changed = patch["servers"].get("kimi", {})
        assert changed["failed_probes"][-1]["answer"]["text"] == EVIL
        assert "unit" not in changed
        answer.close()
        await until(lambda: not stream.running)  # with nobody there it must not work on


async def test_a_reader_that_does_not_read_is_cut_off_and_the_others_are_not(watch: Watch) -> None:
    for _ in range(20):
        probe(watch, "chat", "malformed", answer=Answer(text="x" * 4000))
    stream, app = stream_app(watch, period_s=0.01)
    loop = asyncio.get_running_loop()
    async with test_utils.TestClient(test_utils.TestServer(app, port=0)) as client:
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        lazy.setblocking(False)
        await loop.sock_connect(lazy, ("127.0.0.1", client.port))
        await loop.sock_sendall(lazy, b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        good = await client.get("/api/events")
        seen = 0
        for n in range(2000):
            if stream.dropped:
                break
            probe(watch, "chat", "malformed", answer=Answer(text=f"{n}" * 2000))  # changes 80 KB each time
            seen += len(await events(good, 1))
        assert stream.dropped == 1
        assert len(stream.readers) == 1
        assert (await events(good, 2))[0][0] == "patch"
        lazy.close()
        good.close()


async def test_the_number_of_readers_is_bounded(watch: Watch) -> None:
    stream, app = stream_app(watch, readers=2, period_s=0.05)
    async with test_utils.TestClient(test_utils.TestServer(app, port=0)) as client:
        first, second, third = [await client.get("/api/events") for _ in range(3)]
        assert (first.status, second.status, third.status) == (200, 200, 503)
        assert third.headers["Retry-After"]
        first.close()
        await until(lambda: len(stream.readers) < 2)
        assert (await client.get("/api/events")).status == 200
        await stream.close()


# ---- the port


async def test_a_port_that_is_taken_is_told_and_tried_again(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchdog.web.server.AGAIN_S", 0.05)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        site = Web(config.Web(enabled=True, port=taken.getsockname()[1]), source([watch]))
        task = asyncio.create_task(site.run())
        await asyncio.sleep(0.15)
        assert site.port is None
        assert not task.done()
    await until(lambda: site.port is not None)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{site.port}/healthz") as answer:
        assert answer.status == 200
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert site.port is None
