"""Launch arguments from command lines and from the server's own log line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang.arguments import (
    DEFAULTS,
    parse_argv,
    parse_server_args_line,
    ranks_here,
    redact,
    redact_text,
)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("python3 -m sglang.launch_server --tp 8", {"tp_size": 8}),
        ("/usr/bin/python3 -m sglang.launch_server --tp-size 8", {"tp_size": 8}),
        ("/usr/bin/python3 /usr/local/bin/sglang serve --tensor-parallel-size=8", {"tp_size": 8}),
        ("sglang serve --tp 8", {"tp_size": 8}),
        ("python3 /srv/sglang/launch_server.py --tp 8", {"tp_size": 8}),
        ("numactl --interleave=all python3 -m sglang.launch_server --tp 8", {"tp_size": 8}),
        ("--dp 2 --pp 4 --ep 8", {"dp_size": 2, "pp_size": 4, "ep_size": 8}),
        ("--model /m --mem-fraction-static 0.92", {"model_path": "/m", "mem_fraction_static": 0.92}),
        ("--hicache-ratio 4 --hicache-size=0", {"hicache_ratio": 4, "hicache_size": 0}),
        ("--enable-metrics --trust-remote-code --port 30000", {"enable_metrics": True, "trust_remote_code": True, "port": 30000}),
        ("--enable-metrics true --disable-cuda-graph false", {"enable_metrics": True, "disable_cuda_graph": False}),
        ("--no-enable-tf32-matmul", {"enable_tf32_matmul": False}),
        ("--chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        ("--cuda-graph-bs 1 2 4 --watchdog-timeout 1e3", {"cuda_graph_bs": [1, 2, 4], "watchdog_timeout": 1000.0}),
        ("--served-model-name 123 --api-key 0123", {"served_model_name": "123", "api_key": "0123"}),
        ("--some-new-flag some-value --another-one", {"some_new_flag": "some-value", "another_one": True}),
        ("--config /etc/sglang/kimi.yaml", {"config": "/etc/sglang/kimi.yaml"}),
        ("--log-requests-level 2 --log-requests", {"log_requests_level": 2, "log_requests": True}),
        ("--tp 4 --tp 8", {"tp_size": 8}),
        ("python3 -m sglang.launch_server", {}),
        ("-- --", {}),
        ("", {}),
    ],
)
def test_argv(command: str, args: dict[str, Any]) -> None:
    assert parse_argv(command.split()) == args


@given(
    st.lists(
        st.one_of(st.text(max_size=20), st.sampled_from(["--tp", "--", "--=", "--tp=", "serve", "sglang", "-1"])), max_size=12
    )
)
def test_any_command_line_is_survived(argv: list[str]) -> None:
    assert all(isinstance(name, str) for name in parse_argv(argv))


OLD = (
    "[2026-02-25 03:02:13] server_args=ServerArgs(model_path='/models/Kimi-K2.5', trust_remote_code=True, host='0.0.0.0', "
    "port=30000, mem_fraction_static=0.92, tp_size=8, api_key=None, "
    "speculative_algorithm='EAGLE3', hicache_ratio=4.0, hicache_size=0, "
    "cuda_graph_bs=[1, 2, 4], json_model_override_args='{\"a\": [1, 2]}', dtype=<Kind.AUTO: 'auto, or so'>, lora_paths=None)"
)
NEW = (
    "[2026-11-02 03:02:13] server_args={'model_path': '/models/Kimi-K2.5', 'trust_remote_code': True, 'host': '0.0.0.0', "
    "'port': 30000, 'mem_fraction_static': 0.92, 'tp_size': 8, 'api_key': None, "
    "'speculative_algorithm': 'EAGLE3', 'hicache_ratio': 4.0, "
    "'hicache_size': 0, 'cuda_graph_bs': [1, 2, 4], 'json_model_override_args': '{\"a\": [1, 2]}', "
    "'dtype': <Kind.AUTO: 'auto, or so'>, 'lora_paths': None}"
)


@pytest.mark.parametrize("line", [OLD, NEW], ids=["dataclass", "dict"])
def test_logged_arguments(line: str) -> None:
    assert parse_server_args_line(line) == {
        "model_path": "/models/Kimi-K2.5",
        "trust_remote_code": True,
        "host": "0.0.0.0",
        "port": 30000,
        "mem_fraction_static": 0.92,
        "tp_size": 8,
        "api_key": None,
        "speculative_algorithm": "EAGLE3",
        "hicache_ratio": 4.0,
        "hicache_size": 0,
        "cuda_graph_bs": [1, 2, 4],
        "json_model_override_args": '{"a": [1, 2]}',
        "dtype": "<Kind.AUTO: 'auto, or so'>",
        "lora_paths": None,
    }


@given(st.sampled_from([OLD, NEW]), st.integers(0, 700))
def test_a_cut_line_gives_what_stands_before_the_cut(line: str, end: int) -> None:
    whole = parse_server_args_line(line)
    cut = parse_server_args_line(line[:end])
    assert list(cut.items()) == list(whole.items())[: len(cut)]
    assert end < 120 or len(cut) >= 3


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), VALUES, max_size=6))
def test_what_python_prints_is_read_back(args: dict[str, Any]) -> None:
    assert parse_server_args_line(f"[2026-11-02 03:02:13] server_args={args!r}") == args
    fields = ", ".join(f"{name}={value!r}" for name, value in args.items())
    assert parse_server_args_line(f"server_args=ServerArgs({fields})") == args


@given(st.text(max_size=200))
def test_any_line_is_survived(text: str) -> None:
    parse_server_args_line(text)
    parse_server_args_line("server_args={'a': " + text)
    parse_server_args_line("server_args=ServerArgs(" + text)
    redact_text(text)


@pytest.mark.parametrize("value", ["[" * 4000 + "]" * 4000, "-" * 9000 + "1", "{[]: 1}", "x" * 20000, "(" * 9000 + ")" * 9000])
def test_a_value_that_cannot_be_read_keeps_its_text(value: str) -> None:
    args = parse_server_args_line("server_args={'a': " + value + ", 'b': 1}")
    assert args["b"] == 1
    assert args["a"] == value[:16384]


def test_quotes_in_a_value() -> None:
    args = {"chat_template": 'it\'s a "quote", \\ and } too', "b": 1}
    assert parse_server_args_line(f"server_args={args!r}") == args


def test_redact() -> None:
    args = {
        "api_key": "sk-1",
        "admin_api_key": None,
        "hf_token": "hf-2",
        "ssl_keyfile_password": "pw-3",
        "ssl_keyfile": "/etc/key.pem",
        "max_total_tokens": 5,
        "tokenizer_path": "/m",
        "extra": {"secret": "s-4", "nested": [{"password": "p-5"}]},
        "hicache_storage_backend_extra_config": '{"master": "10.0.0.1", "access_key": "ak-6"}',
    }
    clean = redact(args)
    assert not any(secret in str(clean) for secret in ("sk-1", "hf-2", "pw-3", "s-4", "p-5", "ak-6"))
    assert clean["admin_api_key"] is None
    assert (clean["ssl_keyfile"], clean["max_total_tokens"], clean["tokenizer_path"]) == ("/etc/key.pem", 5, "/m")
    assert "10.0.0.1" in clean["hicache_storage_backend_extra_config"]
    assert args["api_key"] == "sk-1"


@pytest.mark.parametrize(
    "text",
    [
        "python3 -m sglang.launch_server --api-key SECRET --port 30000",
        "sglang serve --admin-api-key=SECRET",
        "[2026-02-25 03:02:13] server_args=ServerArgs(model_path='/m', api_key='SECRET', port=30000)",
        "server_args={'admin_api_key': 'SECRET', 'port': 30000}",
        '{"api_key": "SECRET"}',
        "ssl_keyfile_password: SECRET",
    ],
)
def test_redact_text(text: str) -> None:
    clean = redact_text(text)
    assert "SECRET" not in clean
    assert "…" in clean
    assert clean.count("30000") == text.count("30000")


def test_redaction_leaves_the_rest_alone() -> None:
    line = "server_args={'api_key': None, 'max_total_tokens': 5, 'tokenizer_path': '/m'} and a prompt about passwords"
    assert redact_text(line) == line


@pytest.mark.parametrize(
    ("args", "ranks"),
    [
        ({}, 1),
        ({"tp_size": 8}, 8),
        ({"tp_size": 16, "nnodes": 2, "node_rank": 1}, 8),
        ({"tp_size": 4, "pp_size": 2}, 8),
        ({"tp_size": 8, "pp_size": 2, "nnodes": 2}, 8),
        ({"tp_size": 8, "pp_size": 2, "nnodes": 4}, 4),
        ({"tp_size": 2, "dp_size": 4}, 8),
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        ({"tp_size": None, "dp_size": "many", "nnodes": 0}, 1),
    ],
)
def test_ranks_here(args: dict[str, Any], ranks: int) -> None:
    assert ranks_here(args) == ranks


def test_defaults_are_under_the_names_that_are_parsed() -> None:
    assert parse_argv(["--tp", "8"]).keys() <= DEFAULTS.keys()
    assert DEFAULTS["port"] == 30000
