"""The arithmetic of HiCache's host pool."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang.hostpool import HostPool, Kv, expected, kv_of, where_visible
from watchdog.sglang.loglines import classify
from watchdog.units import GB, GIB, format_gb, format_gib, from_gib

# Kimi-K2.5 on 8 GPUs: 61 layers x (512 + 64) x 2 bytes = 70,272 bytes a token; the EAGLE3 draft has 8 heads x 128 x 2 bytes x 2.
KIMI: dict[str, Any] = {"enable_hierarchical_cache": True, "hicache_ratio": 4.0, "hicache_size": 0, "tp_size": 8, "page_size": 1}
KV = Kv(tokens=159_277, size=159_277 * 70_272, within=0)
DRAFT = Kv(tokens=159_277, size=159_277 * 4_096, within=0)


def test_reference_deployment() -> None:
    pool = expected(KIMI, "0.5.9", Kv(tokens=159_277, size=from_gib("10.424")))
    assert pool.tokens == 637_109
    assert pool.per_rank is not None and round(pool.per_rank / GB, 2) == 44.77
    assert pool.unit is not None and 358.16 <= pool.unit / GB <= 358.2
    assert format_gib(pool.unit) == "333.6 GiB"
    assert pool.held == pool.unit
    assert pool.reason is None


@pytest.mark.parametrize(("ratio", "unit_gb"), [(2, 179.1), (3, 268.6), (4, 358.2), (5, 447.7)])
def test_ratios(ratio: float, unit_gb: float) -> None:
    pool = expected({**KIMI, "hicache_ratio": ratio}, "0.5.9", KV)
    assert pool.unit is not None and round(pool.unit / GB, 1) == unit_gb


def test_printed_digits_are_within_the_stated_error() -> None:
    line = classify("[2026-02-25 03:08:10 TP0] KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB")
    assert line is not None
    kv = kv_of(line.fields)
    assert kv is not None
    exact, printed = expected(KIMI, "0.5.9", KV), expected(KIMI, "0.5.9", kv)
    assert exact.unit is not None and printed.unit is not None
    assert exact.unit != printed.unit
    assert abs(exact.unit - printed.unit) <= printed.within < exact.unit / 1000


def test_errors_of_target_and_draft_add_up() -> None:
    target = expected(KIMI, "0.5.11", Kv(KV.tokens, KV.size, 1000))
    both = expected(KIMI, "0.5.11", Kv(KV.tokens, KV.size, 1000), draft=Kv(DRAFT.tokens, DRAFT.size, 500))
    assert target.within == pytest.approx(8 * 4 * 1000, rel=0.001)
    assert both.within == pytest.approx(8 * 4 * 1500, rel=0.001)


def test_key_and_value_sizes_are_added() -> None:
    line = classify("[2026-02-25 03:08:10 TP0] KV Cache is allocated. #tokens: 1000, K size: 0.30 GB, V size: 0.20 GB")
    assert line is not None
    assert kv_of(line.fields) == Kv(tokens=1000, size=from_gib("0.30") + from_gib("0.20"), within=2 * (GIB // 200))
    assert kv_of({"tokens": 5}) is None
    assert kv_of({"kv_bytes": 5}) is None


@pytest.mark.parametrize(
    ("version", "page", "tokens"),
    [
        ("0.5.4.post3", 64, 637_056),
        ("0.5.5.post3", 64, 637_120),
        ("0.5.23", 64, 637_120),
        ("0.4.6.post5", 1, 637_108),
        ("0.5.9", 1, 637_109),
        ("0.5.9", 4, 637_112),  # a multiple already, and still one page more
    ],
)
def test_page_rounding(version: str, page: int, tokens: int) -> None:
    assert expected({**KIMI, "page_size": page}, version, KV).tokens == tokens


@pytest.mark.parametrize(
    ("version", "draft_gb"),
    [("0.5.3.post3", 0), ("0.5.10.post1", 0), ("0.5.11", 2.61), ("0.5.16", 2.61), ("0.5.23", 2.61)],
)
def test_draft_pool(version: str, draft_gb: float) -> None:
    pool = expected(KIMI, version, KV, draft=DRAFT)
    assert pool.draft is not None and round(pool.draft / GB, 2) == draft_gb
    assert pool.per_rank == pool.target + pool.draft if pool.target is not None else False


def test_cuda_rounded_each_pool_up_to_a_power_of_two() -> None:
    pool = expected(KIMI, "0.5.3.post3", KV)
    assert pool.unit is not None and pool.unit < 359 * GB
    assert pool.held == 512 * GIB


def test_a_size_overrides_the_ratio_and_is_per_rank() -> None:
    pool = expected({**KIMI, "hicache_size": 30}, "0.5.9", KV)
    assert pool.tokens == 30 * GB // 70_272 + 1
    assert pool.unit is not None and abs(pool.unit - 8 * 30 * GB) < 8 * 70_272


def test_default_ratio_is_two() -> None:
    args = {key: value for key, value in KIMI.items() if key != "hicache_ratio"}
    assert expected(args, "0.5.18", KV).tokens == 2 * 159_277 + 1


def test_no_hierarchical_cache_is_a_known_zero() -> None:
    assert expected({"tp_size": 8}, None, None).unit == 0


@pytest.mark.parametrize(
    ("args", "version", "kv", "words"),
    [
        ({**KIMI, "hicache_ratio": None}, "0.5.21", KV, "sizes the host pool itself"),
        ({**KIMI, "hicache_ratio": None}, None, KV, "sizes the host pool itself"),
        ({**KIMI, "hicache_host_memory_mode": "buffer_only"}, "0.5.20", KV, "buffer"),
        ({**KIMI, "enable_linker_mla_dedup": True}, "0.5.20", KV, "one rank"),
        (KIMI, "0.5.9", None, "not known yet"),
        (KIMI, "0.5.9", Kv(0, 0), "not known yet"),
    ],
)
def test_unknown_with_a_reason(args: dict[str, Any], version: str | None, kv: Kv | None, words: str) -> None:
    pool = expected(args, version, kv)
    assert (pool.unit, pool.per_rank, pool.held) == (None, None, None)
    assert pool.reason is not None and words in pool.reason


def test_a_ratio_that_the_server_chose_counts() -> None:
    pool = expected({**KIMI, "hicache_ratio": None}, "0.5.21", KV, ratio=1.384)
    assert pool.tokens == int(159_277 * 1.384) + 1


def test_unknown_version() -> None:
    alone = expected(KIMI, None, KV)
    assert alone.unit is not None and alone.within >= 8 * 70_272
    assert alone.held is None
    drafted = expected(KIMI, None, KV, draft=DRAFT)
    assert (drafted.target, drafted.draft, drafted.unit) == (alone.target, None, None)
    assert drafted.reason is not None


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**6),
    st.floats(0.5, 20),
    st.sampled_from([1, 16, 64, 128]),
    st.sampled_from(["0.4.6.post5", "0.5.3.post3", "0.5.9", "0.5.11", "0.5.23", None]),
)
def test_sums_hold(tokens: int, per_token: int, ratio: float, page: int, version: str | None) -> None:
    args = {**KIMI, "hicache_ratio": ratio, "page_size": page}
    pool = expected(args, version, Kv(tokens, tokens * per_token, 0))
    assert pool.tokens is not None and pool.tokens % page == 0
    assert abs(pool.tokens - tokens * ratio) <= page
    assert pool.unit == 8 * (pool.per_rank or 0)
    assert pool.held is None or pool.held >= pool.unit


@pytest.mark.parametrize(
    ("version", "env", "place"),
    [
        ("0.5.3.post3", {}, "driver"),
        ("0.5.4.post3", {}, "anon"),
        ("0.5.12.post1", {}, "anon"),
        ("0.5.13.post1", {}, "shmem"),
        ("0.5.23", {}, "shmem"),
        ("0.5.23", {"SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS": "8"}, "anon"),
        ("0.5.22", {"SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS": "8"}, "shmem"),
        ("0.5.20", {"SGLANG_HUGEPAGE_SIZE": "1GB"}, "hugetlb"),
        ("0.5.4", {}, None),
        ("nightly", {}, None),
        (None, {}, None),
    ],
)
def test_where_it_shows(version: str | None, env: dict[str, str], place: str | None) -> None:
    assert where_visible(version, {}, env) == place


def test_another_allocator() -> None:
    assert where_visible("0.5.23", {"hicache_storage_backend": "mooncake"}) is None
    assert isinstance(expected(KIMI, "0.5.23", KV), HostPool)


def test_a_small_amount_is_not_shown_as_nothing() -> None:
    assert (format_gb(20e6), format_gib(20e6)) == ("0.02 GB", "0.02 GiB")
    assert (format_gb(3e5, 0), format_gb(4e11, 0), format_gb(0.0, 0)) == ("0.0003 GB", "400 GB", "0 GB")
