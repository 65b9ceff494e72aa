import asyncio
import os
import ssl
import threading
from pathlib import Path

import pytest

from tests.observe.talker import Talker, reply, says, talking
from watchdog import keyring, regular
from watchdog.observation import STRUCK
from watchdog.observe import access
from watchdog.observe.access import Access, AccessError, read_key, tls
from watchdog.observe.http import Exchange, Limits, Request, exchange


async def ask(talker: Talker, **more: object) -> Exchange:
    return await exchange(Access(talker.server(**more)), Request("GET", "/health", Limits(1, 2)))


CERTIFICATE = Path(__file__).parent.parent / "fixtures" / "tls"
"""A self-signed certificate for 127.0.0.1 and its key (openssl req -x509), for these tests only."""


def serving() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    return context


async def test_https_with_a_ca_of_its_own() -> None:
    async with talking(says(reply(200)), ssl=serving()) as talker:
        url = f"https://127.0.0.1:{talker.port}"
        good = await ask(talker, base_url=url, ca_file=str(CERTIFICATE / "cert.pem"))
        assert (good.outcome, good.status) == ("ok", 200)
        bad = await ask(talker, base_url=url)
    assert (bad.outcome, bad.why) == ("skipped", "config")
    assert (
        "TLS failed" in (bad.detail or "") and "self-signed certificate" in (bad.detail or "") and "ca_file" in (bad.detail or "")
    )


async def test_https_asked_of_a_server_that_speaks_http() -> None:
    async def answers_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(400))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answers_at_once, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        got = await ask(Talker("127.0.0.1", port), base_url=f"https://127.0.0.1:{port}")
    assert (got.outcome, got.why) == ("skipped", "config") and "TLS failed" in (got.detail or "")


async def test_http_asked_of_a_server_that_speaks_https() -> None:
    async with talking(says(reply(200)), ssl=serving()) as talker:
        got = await ask(talker, base_url=f"http://127.0.0.1:{talker.port}")
    assert got.outcome in ("reset", "malformed")


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_ca_file_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AccessError, match="must be PEM and readable"):
        tls(Talker("127.0.0.1", 1).server(base_url="https://127.0.0.1:1", ca_file=str(path)))


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AccessError, match="it is a named pipe, not a file"):
        tls(Talker("127.0.0.1", 1).server(base_url="https://127.0.0.1:1", ca_file=f"{tmp_path}/pipe"))
    with pytest.raises(AccessError, match="it is a named pipe, not a file"):
        read_key(f"{tmp_path}/pipe")


def test_words_between_certificates(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes("Główny urząd\n".encode() + (CERTIFICATE / "cert.pem").read_bytes())
    context = tls(Talker("127.0.0.1", 1).server(base_url="https://127.0.0.1:1", ca_file=str(path)))
    assert context is not None and context.cert_store_stats()["x509"] == 1


def test_no_tls_for_http() -> None:
    assert tls(Talker("127.0.0.1", 1).server()) is None


async def test_the_key_is_sent_and_a_new_one_is_used_at_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("sk-first\n")
    async with talking(says(reply(200))) as talker:
        reached = Access(talker.server(api_key_file=str(path)))
        request = Request("GET", "/v1/models", Limits(1, 2))
        await exchange(reached, request)
        path.write_text("sk-second")
        await exchange(reached, request)
    assert b"Authorization: Bearer sk-first\r\n" in talker.requests[0]
    assert b"Authorization: Bearer sk-second\r\n" in talker.requests[1]


async def test_a_key_that_is_echoed_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text('sk-"odd')
    echo = reply(401, b'{"error": "bad \xff key sk-\\"odd or sk-"odd"}', WWW_Authenticate="x")
    async with talking(says(echo)) as talker:
        got = await ask(talker, api_key_file=str(path))
        moved = reply(302, Location='http://x/?key=sk-"odd')
    assert got.body == b'{"error": "bad \xff' + ' key … or …"}'.encode()
    async with talking(says(moved)) as talker:
        got = await ask(talker, api_key_file=str(path))
    assert STRUCK in (got.detail or "") and "odd" not in (got.detail or "")


@pytest.mark.parametrize("key", ["123456", "object"])
async def test_a_key_that_is_a_plain_word_or_number_spoils_no_answer(tmp_path: Path, key: str) -> None:
    (tmp_path / "key").write_text(key)
    body = b'{"object": "list", "created": 1234567890}'
    async with talking(says(reply(200, body))) as talker:
        assert (await ask(talker, api_key_file=str(tmp_path / "key"))).body == body


async def test_a_key_that_cannot_be_read_is_our_own_fault(tmp_path: Path) -> None:
    reached = Access(Talker("127.0.0.1", 1).server(api_key_file=str(tmp_path / "none")))
    got = await exchange(reached, Request("GET", "/v1/models", Limits(1, 2)))
    assert (got.outcome, got.why) == ("skipped", "config")
    assert "No such file" in (got.detail or "") and "LoadCredential=" in (got.detail or "")


async def test_a_disk_that_does_not_answer_is_our_own_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, answers = tmp_path / "key", threading.Event()
    path.write_text("sk-first")
    monkeypatch.setattr(access, "FILES_LIMIT_S", 0.2)
    monkeypatch.setattr(regular, "read", lambda path, cap: answers.wait(30) and path.read_bytes())
    async with talking(says(reply(200))) as talker:
        reached = Access(talker.server(api_key_file=str(path)))
        for limit_s in (0.1, 2.0):
            got = await exchange(reached, Request("GET", "/health", Limits(limit_s, limit_s)))
            assert (got.outcome, got.why) == ("skipped", "config"), "and no time-out of the server"
            assert f"{path} cannot be read, since the disk does not answer" in (got.detail or "")
        answers.set()
        async with asyncio.timeout(30):
            while reached._disk.busy:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await exchange(reached, Request("GET", "/health", Limits(2, 2)))).outcome == "ok"


async def test_what_needs_no_key_is_asked_without_one_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    async with talking(says(reply(200))) as talker:
        reached = Access(talker.server(api_key_file=str(path)))
        for place in ("/health", "/metrics"):
            assert (await exchange(reached, Request("GET", place, Limits(1, 2)))).outcome == "ok"
        path.write_text("sk-late")
        assert (await exchange(reached, Request("GET", "/health", Limits(1, 2)))).outcome == "ok"
    assert ["Authorization" in request.decode() for request in talker.requests] == [False, False, True]


def test_a_key_that_was_read_is_struck_out_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text('sk-"odd"-key\n')
    assert keyring.struck('a sk-"odd"-key') == 'a sk-"odd"-key'
    read_key(str(path))
    assert keyring.struck('a sk-"odd"-key, {"k": "sk-\\"odd\\"-key"}') == f'a {STRUCK}, {{"k": "{STRUCK}"}}'
    path.write_text("short")
    read_key(str(path))
    assert keyring.struck("a short word") == "a short word"


def test_a_bare_name_is_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(AccessError, match="LoadCredential=api-key:"):
        read_key("api-key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "api-key").write_text(" sk-abc \n")
    assert read_key("api-key") == "sk-abc"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"two\nlines", "not one line"),
        (b"k\r\nX-Evil: 1", "not one line"),
        ("schlüssel".encode(), "printable ASCII"),
        (b"x" * 5000, "not one line"),
    ],
)
def test_files_that_hold_no_key(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(AccessError, match=said) as raised:
        read_key(str(path))
    assert "\n" not in str(raised.value) and "Evil" not in str(raised.value)


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="it is a folder, not a file"):
        read_key(f"{tmp_path}{os.sep}")
