"""The configuration: what a file means, and what is said of each mistake (tests/fixtures/config: one mistake a file)."""

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog import config

FIXTURES = sorted((Path(__file__).parent / "fixtures/config").glob("*.toml"))
SERVER = {"name": "kimi", "unit": "sglang-kimi.service"}
OTHER = {"name": "other", "unit": "sglang-other.service", "base_url": "http://127.0.0.1:30001"}


def faults_of(path: Path) -> list[str]:
    with pytest.raises(config.ConfigError) as caught:
        config.load(path)
    assert caught.value.source == str(path)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_mistake_is_told_once_with_its_place_and_its_cure(path: Path) -> None:
    expected = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# expect: ")
    assert faults_of(path) == [expected]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_messages_are_plain_english(path: Path) -> None:
    (message,) = faults_of(path)
    assert not re.search(r"`|regex|\bstr\b|\bint\b|float|bool\b|enum|None|True|False", message.replace("True\n", ""))


def test_all_faults_come_at_once() -> None:
    table = {
        "daemon": {"mode": "acts"},
        "probe": {"chat": "yes", "chatt": True},
        "servers": [{**SERVER, "base_url": "ftp://x"}, {**OTHER, "unit": "other", "probe": {"chat_limit_s": -1}}, 7],
    }
    with pytest.raises(config.ConfigError) as caught:
        config.parse(table)
    assert [fault.key for fault in caught.value.faults] == [
        "daemon.mode",
        "probe.chat",
        "probe.chatt",
        "servers[other].unit",
        "servers[other].probe.chat_limit_s",
        "servers[#3]",
        "servers[kimi].base_url",
    ]


def test_defaults_hold_where_nothing_is_written() -> None:
    got = config.parse({"servers": [SERVER]})
    assert got.daemon == config.Daemon()
    assert got.servers[0].probe == config.Probing()
    assert got.servers[0].base_url == "http://127.0.0.1:30000"


def test_shared_sections_lie_under_each_server_and_its_own_keys_over_them() -> None:
    got = config.parse(
        {
            "probe": {"chat_interval_s": 30, "chat": False},
            "restart": {"budget": 1},
            "servers": [{**SERVER, "probe": {"chat": True}}, {**OTHER, "restart": {"budget": 0}}],
        }
    )
    kimi, other = got.servers
    assert (kimi.probe.chat, kimi.probe.chat_interval_s, kimi.restart.budget) == (True, 30.0, 1)
    assert (other.probe.chat, other.probe.chat_interval_s, other.restart.budget) == (False, 30.0, 0)


def test_an_override_with_the_default_value_is_an_override() -> None:
    got = config.parse({"probe": {"chat": False}, "servers": [{**SERVER, "probe": {"chat": True}}]})
    assert got.servers[0].probe.chat is True


def test_a_record_needs_no_server() -> None:
    assert config.parse({"judge": {"hang_s": 90}}, need_servers=False).judge.hang_s == 90.0


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[servers]]\nname = "a"\nunit = "a.service"\n', encoding="utf-8-sig")
    assert config.load(path).servers[0].name == "a"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes("a = 1\n# Größe\n".encode("latin-1"))
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    assert faults_of(latin) == ["is not UTF-8 text (line 2); save it as UTF-8"]
    assert faults_of(large) == ["is larger than 1 MiB; name the configuration file with --config"]
    cure = "name another file with --config, or make it readable"
    assert faults_of(tmp_path / "none.toml") == [f"cannot be read (No such file or directory); {cure}"]
    assert faults_of(tmp_path) == ["is a folder, not a file; name the configuration file with --config"]


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)  # no one writes to it: opening it would wait for ever
    for path in (fifo, Path("/dev/zero")):
        assert faults_of(path) == ["is a pipe, a socket or a device, not a file; name the configuration file with --config"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "is nested too deeply; close the brackets of its lists; none needs more than two levels"),
        ("a = " + "9" * 5000, "has a number or a date that cannot be read; write numbers with few digits, such as 30"),
    ],
    ids=["nested", "digits"],
)
def test_a_value_that_is_too_much_for_the_reader_is_a_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    if "digits" in message and sys.get_int_max_str_digits() == 0:
        pytest.skip("this Python reads numbers of any length")
    assert faults_of(path) == [message]


def test_a_number_too_long_to_be_shown_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[judge]\nhang_s = 0x" + "f" * 9000 + "\nnew = [0x" + "f" * 9000 + "]\n", encoding="utf-8")
    assert [fault.split(":")[0] for fault in faults_of(path)[:2]] == ["judge.hang_s = …", "judge.new = …"]


def test_a_message_is_one_line_without_control_characters() -> None:
    table = {"probe": {"a\nb": 1, "chat": "\x1b[31m\x9b" + "x" * 500}, "servers": [{"name": "k\u2028i", "unit": "k.service"}]}
    with pytest.raises(config.ConfigError) as caught:
        config.parse(table)
    assert len(caught.value.faults) == 3
    assert all(str(fault).isprintable() and len(str(fault)) < 300 for fault in caught.value.faults)


def test_secrets_are_not_repeated() -> None:
    table = {"servers": [{**SERVER, "token": "sesame", "base_url": "http://me:sesame@h:1"}, {"password": "sesame"}]}
    for extra in ({}, {"server": [{"key": "sesame"}]}, {"alert": {"webhook_url": "sesame"}}):
        with pytest.raises(config.ConfigError) as caught:
            config.parse({**table, **extra})
        assert "sesame" not in str(caught.value)


toml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["daemon", "probe", "restart", "servers", "alert", "budget", "name", "unit", "base_url", "mode", "ca_file"]
)
tables = st.dictionaries(names, toml_values | st.dictionaries(names, toml_values) | st.lists(st.dictionaries(names, toml_values)))


@given(tables)
def test_no_table_of_any_kind_breaks_it(table: dict[str, Any]) -> None:
    try:
        config.parse(table)
    except config.ConfigError as error:
        assert error.faults
        assert all(f.problem and f.cure and str(f).isprintable() for f in error.faults)


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, cure = config.reading.toml_fault(str(error))
        assert problem.isprintable()
        assert cure
    else:
        with pytest.raises(config.ConfigError):
            config.parse(table)
