import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.sglang.metrics import MAX_NAMES, parse

FIXTURES = Path(__file__).parent.parent / "fixtures" / "http"


def test_real_body_of_0_5_23() -> None:
    scrape = parse((FIXTURES / "metrics-0.5.23.txt").read_text())
    v = scrape.values
    assert scrape.bad_lines == 0 and scrape.by_rank is None
    assert v["max_total_num_tokens"] == 65536
    assert v["context_len"] == 4096
    assert v["num_requests_total"] == 11, "counters are summed over is_streaming"
    assert v["cached_tokens_total"] == v["cached_tokens_total.device"] == 78
    assert v["realtime_tokens_total.decode"] == 79
    assert v["realtime_tokens_total"] == sum(
        v[f"realtime_tokens_total.{m}"] for m in ("decode", "prefill_compute", "prefill_cache")
    )
    assert v["time_to_first_token_seconds_count"] == 11
    assert v["time_to_first_token_seconds_sum"] == pytest.approx(0.1810321 + 0.0134200, abs=1e-6)
    assert v["http_requests_active./v1/chat/completions"] == 1
    assert not [name for name in v if "bucket" in name or ":" in name or "{" in name]


def test_hicache_and_labels_that_matter() -> None:
    v = parse((FIXTURES / "metrics-hicache-0.5.23.txt").read_text()).values
    assert v["cached_tokens_total"] == 3243 + 3216
    assert v["cached_tokens_total.host"] == 3216
    assert v["hicache_host_used_tokens"] == 9711 and v["hicache_host_total_tokens"] == 12001
    assert v["hicache_dropped_tokens_total.host_pressure"] == 0
    assert v["hicache_backup_bytes_total"] == 2.48704e6


@pytest.mark.parametrize("prefix", ["sglang:", "sglang_"])
def test_both_prefixes(prefix: str) -> None:
    assert parse(f'{prefix}num_running_reqs{{model_name="m"}} 3\n').values == {"num_running_reqs": 3}


RANKS = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="0",tp_rank="0",pp_rank="0"} 3
sglang:num_running_reqs{dp_rank="1",tp_rank="0",pp_rank="0"} 5
# TYPE sglang:token_usage gauge
sglang:token_usage{dp_rank="0",tp_rank="0",pp_rank="0"} 0.2
sglang:token_usage{dp_rank="1",tp_rank="0",pp_rank="0"} 0.6
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{dp_rank="0",tp_rank="0",pp_rank="0"} 100
sglang:gen_throughput{dp_rank="1",tp_rank="0",pp_rank="0"} 50
# TYPE sglang:spec_num_draft_tokens gauge
sglang:spec_num_draft_tokens{dp_rank="0",tp_rank="0",pp_rank="0"} 4
sglang:spec_num_draft_tokens{dp_rank="1",tp_rank="0",pp_rank="0"} 4
"""


def test_counts_are_summed_ratios_and_speeds_averaged_and_ranks_kept() -> None:
    scrape = parse(RANKS)
    assert scrape.values == pytest.approx(
        {"num_running_reqs": 8, "token_usage": 0.4, "gen_throughput": 75, "spec_num_draft_tokens": 4}
    )
    assert scrape.by_rank is not None
    assert list(scrape.by_rank) == ["DP0", "DP1"], "only the part that differs is named"
    assert scrape.by_rank["DP1"] == {"num_running_reqs": 5, "token_usage": 0.6, "gen_throughput": 50}


def test_ranks_of_two_kinds_are_named_like_the_log_does() -> None:
    text = "".join(f'sglang:num_queue_reqs{{dp_rank="{d}",tp_rank="{t}"}} {d}\n' for d in (0, 1) for t in (0, 1))
    assert list(parse(text).by_rank or ()) == ["DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1"]


@pytest.mark.parametrize(
    ("line", "expected", "bad"),
    [
        ("sglang:a_total 1 1700000000000", {"a_total": 1}, 0),
        ('sglang:http_requests_total{endpoint="/v1/models/{model:path}",method="GET"} 2', {"http_requests_total": 2}, 0),
        ('sglang:http_requests_total{endpoint="a\\"} 9"} 2', {"http_requests_total": 2}, 0),
        ('sglang:http_requests_active{endpoint="/some/odd/path"} 2', {"http_requests_active": 2}, 0),
        (
            'sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="503"} 396\n'
            'sglang:http_responses_total{endpoint="/health",method="GET",status_code="503"} 4',
            {"http_responses_total": 400, "http_responses_total.503": 396},
            0,
        ),
        ("sglang:token_usage NaN", {}, 0),
        ("sglang:token_usage +Inf", {}, 0),
        ('sglang:token_usage{tp_rank="0"} NaN\nsglang:token_usage{tp_rank="1"} 0.5', {"token_usage": 0.5}, 0),
        ("sglang:token_usage -0.5", {}, 0),
        ("sglang:token_usage 1.01", {"token_usage": 1.01}, 0),
        ("sglang:token_usage 50", {}, 0),
        ("sglang:cache_hit_rate 1e308", {}, 0),
        ("sglang:num_running_reqs -5", {}, 0),
        ("sglang:num_queue_reqs 1e308", {}, 0),
        ("sglang:num_used_tokens 1e308", {}, 0),
        ("sglang:gen_throughput -1", {}, 0),
        ("sglang:requests_total 1e10", {"requests_total": 1e10}, 0),
        ('sglang:num_running_reqs{tp_rank="0"} -5\nsglang:num_running_reqs{tp_rank="1"} 3', {"num_running_reqs": 3}, 0),
        ("sglang:token_usage nonsense", {}, 1),
        ("sglang:token_usage", {}, 1),
        ("sglang:token_usage{", {}, 1),
        ("sglang:token_usage{a=1} 2 3 4", {}, 1),
        ("python_gc_objects_collected_total 5", {}, 0),
        ("<html>no metrics</html>", {}, 1),
        ("\r", {}, 0),
        ("sglang:b_total 1e308\nsglang:b_total 1e308", {}, 0),
    ],
)
def test_odd_lines(line: str, expected: dict[str, float], bad: int) -> None:
    scrape = parse(line + "\n")
    assert (scrape.values, scrape.bad_lines) == (expected, bad)


def test_names_without_limit_are_cut_off() -> None:
    assert len(parse("".join(f"sglang:x{i} 1\n" for i in range(3 * MAX_NAMES))).values) == MAX_NAMES


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    scrape = parse(text)
    assert all(map(math.isfinite, scrape.values.values()))


@given(st.lists(st.floats(allow_nan=False, min_value=0, max_value=1e9), min_size=1, max_size=8), st.randoms())
def test_order_of_lines_does_not_matter(values: list[float], random: object) -> None:
    lines = [f'sglang:num_used_tokens{{tp_rank="{i}"}} {v!r}' for i, v in enumerate(values)]
    one = parse("\n".join(lines))
    random.shuffle(lines)  # type: ignore[attr-defined]
    other = parse("\n".join(lines))
    assert one.values == pytest.approx(other.values) and one.by_rank == other.by_rank
    assert one.values["num_used_tokens"] == pytest.approx(sum(values))
