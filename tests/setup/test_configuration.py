"""The configuration that setup writes can be read, and says what the host showed."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog import config
from watchdog.setup import configuration
from watchdog.setup.configuration import Wish
from watchdog.setup.host import Found


def found(unit: str = "sglang-kimi.service", *, pinned: int | None = 0, key_in: str | None = None, **args: Any) -> Found:
    return Found(unit=unit, properties={}, args=args, told_by="process", pinned=pinned, key_in=key_in)


def read(*servers: Found, wish: Wish | None = None, gpus: int = 0) -> config.Config:
    text = configuration.head("act", gpus) + "".join(configuration.table(f, wish or Wish()) for f in servers)
    return config.parse(tomllib.loads(text))


def test_a_server_as_it_was_found() -> None:
    whole = read(found(host="0.0.0.0", port=31000, served_model_name="Kimi-K2.5"), gpus=8)

    server = whole.servers[0]
    assert (server.name, server.unit, server.base_url) == ("kimi", "sglang-kimi.service", "http://127.0.0.1:31000")
    assert (server.model, server.endpoint, server.mode) == ("Kimi-K2.5", True, None)
    assert whole.sources.gpus_expected == 8


def test_what_a_person_says_comes_first() -> None:
    server = read(found(port=31000), wish=Wish(url="https://kimi.example:8443", name="k", key="k-key")).servers[0]

    assert (server.name, server.base_url, server.api_key_file) == ("k", "https://kimi.example:8443", "k-key")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_of_a_group_is_never_restarted_alone(rank: int) -> None:
    f = found(nnodes=2, node_rank=rank)
    server = read(f).servers[0]

    assert server.mode == "alert"
    assert server.endpoint is (rank == 0)
    assert "a restart of one alone leaves the others stuck" in configuration.table(f, Wish())


def test_a_key_is_never_written() -> None:
    text = configuration.table(found(api_key="s3cret", key_in="on its command line"), Wish())

    assert "s3cret" not in text
    assert "on its command line" in text
    assert "--key-file" in text


def test_the_profile_of_its_model_is_named() -> None:
    text = configuration.table(found(model_path="/models/Kimi-K2.5", reasoning_parser="kimi_k2"), Wish())
    assert "# Its canary asks as the profile kimi-k2 has it, told by --reasoning-parser kimi_k2." in text
    assert "profile" not in configuration.table(found(model_path="/models/llama"), Wish())
    sneaky = found(model_path='/models/qwen3\nmode = "act"')
    assert read(sneaky).servers[0].mode is None
    worker = found(model_path="/models/Kimi-K2.5", nnodes=2, node_rank=1)
    assert "profile" not in configuration.table(worker, Wish()), "it has no API to ask"
    assert configuration.misfit(worker.args) is None
    assert "--reasoning-parser kimi is not made for Kimi-K2" in (
        configuration.misfit({"model_path": "/models/Kimi-K2.5", "reasoning_parser": "kimi"}) or ""
    )


def test_a_large_pool_gets_a_longer_stop() -> None:
    assert read(found(pinned=10**12)).servers[0].restart.stop_limit_s == 600
    assert read(found(pinned=0)).servers[0].restart.stop_limit_s == 180


@pytest.mark.parametrize(
    ("args", "url"),
    [
        ({}, "http://127.0.0.1:30000"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:30000"),
        ({"host": "::"}, "http://[::1]:30000"),
        ({"host": "::1", "port": 1}, "http://[::1]:1"),
        ({"host": "10.0.0.7"}, "http://10.0.0.7:30000"),
        ({"host": "gpu-7.example"}, "http://gpu-7.example:30000"),
        ({"host": "${HOST}", "port": "${PORT}"}, "http://127.0.0.1:30000"),
        ({"ssl_certfile": "/a.pem"}, "https://127.0.0.1:30000"),
    ],
)
def test_the_address(args: dict[str, Any], url: str) -> None:
    assert configuration.url_of(args) == url


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        ("sglang-kimi.service", "kimi"),
        ("sglang.service", "sglang"),
        ("sglang@two.service", "two"),
        ("llm.service", "llm"),
        ("sglang-@.service", "sglang"),
    ],
)
def test_names(unit: str, name: str) -> None:
    assert configuration.name_of(unit) == name


@given(model=st.text(st.characters(exclude_characters="\0")), unit=st.from_regex(r"[A-Za-z0-9:_.\\@-]{1,80}", fullmatch=True))
def test_whatever_a_model_or_unit_is_called_the_file_can_be_read(model: str, unit: str) -> None:
    model = model.encode("utf-8", "replace").decode()
    table = tomllib.loads(configuration.table(found(f"{unit}x.service", served_model_name=model), Wish()))["servers"][0]

    assert table.get("model", "") == model
    assert table["unit"] == f"{unit}x.service"
    config.parse({"servers": [table]})
