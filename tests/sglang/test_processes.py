"""Process titles and the ranks that there should be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang.arguments import ranks_here
from watchdog.sglang.processes import expected_ranks, normal_rank, rank, role


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("python3 -m sglang.launch_server --model-path /m", "main"),
        ("/usr/bin/python3 /usr/local/bin/sglang serve --model-path /m", "main"),
        ("sglang serve --model-path /m", "main"),
        ("/bin/sh -c exec python3 -m sglang.launch_server", "other"),
        ("sglang::scheduler", "scheduler"),
        ("sglang::scheduler_TP7", "scheduler"),
        ("sglang::schedul", "scheduler"),
        ("sglang::detokenizer", "detokenizer"),
        ("sglang::detoken", "detokenizer"),
        ("sglang::detokenizer_router", "router"),
        ("sglang::data_parallel_controller", "dp_controller"),
        ("sglang::data_pa", "dp_controller"),
        ("sglang::tokenizer_worker:4711", "tokenizer_worker"),
        ("sglang::something_new", "other"),
        ("/usr/bin/python3 -c from multiprocessing.resource_tracker import main;main(27)", "resource_tracker"),
        ("/usr/bin/python3 -c from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=5)", "other"),
        ("ninja -v -j 8", "compiler"),
        ("/usr/local/cuda/bin/nvcc -gencode=arch=compute_90a", "compiler"),
        ("cicc", "compiler"),
        ("cudafe++", "compiler"),
        ("ptxas", "compiler"),
        ("/usr/lib/gcc/x86_64-linux-gnu/13/cc1plus -quiet", "compiler"),
        ("x86_64-linux-gnu-g++-13 -c x.cpp", "compiler"),
        ("/usr/bin/gcc-12", "compiler"),
        ("clang++-18", "compiler"),
        ("/usr/bin/ld", "compiler"),
        ("python3", "other"),
        ("nvidia-smi", "other"),
        ("", "other"),
    ],
)
def test_role(title: str, expected: str) -> None:
    assert role(title) == expected


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("sglang::scheduler", None),
        ("sglang::scheduler_TP0", "TP0"),
        ("sglang::scheduler_DP1_TP1_EP1", "DP1 TP1 EP1"),
        ("sglang::scheduler_DP0_PP1_ATTN_CP0_MOE_DP1_TP13_EP3", "DP0 PP1 ATTN_CP0 MOE_DP1 TP13 EP3"),
        ("sglang::scheduler_DP0_TP1_EP1_PP0", "DP0 PP0 TP1 EP1"),
        ("sglang::schedul", None),
        ("sglang::detokenizer", None),
        ("python3 TP0", None),
    ],
)
def test_rank(title: str, expected: str | None) -> None:
    assert rank(title) == expected


def test_a_log_prefix_and_a_title_agree() -> None:
    assert normal_rank("DP0 TP1 EP1 PP0") == rank("sglang::scheduler_DP0_TP1_EP1_PP0")
    assert normal_rank("") is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, (None,)),
        ({"tp_size": 2}, ("TP0", "TP1")),
        ({"tp_size": 4, "nnodes": 2, "node_rank": 1}, ("TP2", "TP3")),
        ({"tp_size": 2, "pp_size": 2, "nnodes": 2, "node_rank": 1}, ("PP1 TP0", "PP1 TP1")),
        ({"dp_size": 2}, ("DP0", "DP1")),
        ({"tp_size": 2, "dp_size": 2}, ("DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1")),
        (
            {"tp_size": 4, "dp_size": 2, "ep_size": 4, "enable_dp_attention": True},
            ("DP0 TP0 EP0", "DP0 TP1 EP1", "DP1 TP2 EP2", "DP1 TP3 EP3"),
        ),
    ],
)
def test_expected_ranks(args: dict[str, Any], expected: tuple[str | None, ...]) -> None:
    assert expected_ranks(args) == expected


SIZES = st.sampled_from([1, 2, 4, 8])


@given(
    st.fixed_dictionaries(
        {
            "tp_size": SIZES,
            "pp_size": SIZES,
            "dp_size": SIZES,
            "nnodes": SIZES,
            "node_rank": st.integers(0, 7),
            "enable_dp_attention": st.booleans(),
        }
    )
)
def test_as_many_as_there_are_and_none_twice(args: dict[str, Any]) -> None:
    ranks = expected_ranks(args)
    assert len(ranks) == len(set(ranks)) == ranks_here(args)


@given(st.text(max_size=100))
def test_any_title_is_survived(title: str) -> None:
    role(title)
    rank(title)
    rank("sglang::scheduler_" + title)
