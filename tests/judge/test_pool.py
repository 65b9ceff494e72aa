"""The host pool's account: expected, announced, seen."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.reference import GB, INV, POOL, STAMP, Deployment
from watchdog import observation as o
from watchdog.judge.pool import Finding, account
from watchdog.judge.verdict import Status


def test_reference_deployment() -> None:
    d = Deployment().start()
    held = account(d.engine.facts)
    assert held.announced is not None and held.announced.total == 358_160_000_000
    assert held.announced.complete and held.announced.per_rank == POOL
    assert held.expected.tokens == 637_109
    assert held.expected.unit is not None and abs(held.expected.unit - 358_160_000_000) <= held.expected.within + 40_000_000
    assert held.differs is None
    assert held.finding is Finding.SEEN
    assert held.place is not None and held.place.kind in ("unit", "ranks") and held.place.size == pytest.approx(358.16e9)
    c = d.condition("FootprintAsAnnounced")
    assert c.status is Status.TRUE and c.reason == "AsAnnounced"
    assert "358.16 GB (333.6 GiB) announced by 8 ranks" in c.message
    assert not d.reasons()


def test_shared_memory_is_seen_too() -> None:
    d = Deployment(version="0.5.23", shared=True, args={"speculative_algorithm": None}).start()
    assert account(d.engine.facts).finding is Finding.SEEN


def test_the_ranks_are_a_place_where_the_cgroup_tells_nothing() -> None:
    d = Deployment(cgroup=False).start()
    held = account(d.engine.facts)
    assert held.finding is Finding.SEEN and held.place is not None and held.place.kind == "ranks"


def test_memory_that_no_process_owns_is_seen_on_the_host() -> None:
    d = Deployment(version="0.5.2")
    d.begin()
    d.announce()
    d.hidden = 8 * 64 * 2**30  # the allocator of that time rounds up to a power of two
    d.look()
    d.t += 1.0
    d.ready()
    held = account(d.engine.facts)
    assert held.wanted is not None and 511 < held.wanted / 2**30 < 513
    assert held.finding is Finding.SEEN and held.place is not None and held.place.kind == "host"


PAGES = 360 * GB
"""Bytes of huge pages that are enough for all pools of the reference deployment."""


def huge(**more: Any) -> Deployment:
    return Deployment(version="0.5.23", args={"speculative_algorithm": None}, **{"huge": PAGES, **more})


def test_a_pool_in_huge_pages_is_seen_there_and_nowhere_else() -> None:
    d = huge().start()
    held = account(d.engine.facts)
    assert held.finding is Finding.SEEN and held.place is not None and held.place.kind == "hugetlb"
    assert held.place.size == pytest.approx(358.16e9, rel=1e-4) and held.place.grown
    assert "seen as huge pages, more than before it" in d.condition("FootprintAsAnnounced").message
    assert not d.reasons()


def test_what_is_set_aside_in_huge_pages_is_room_for_the_pool() -> None:
    """Only 50 GB of small pages are left beside them, and nothing is wrong with that."""
    d = huge(host=360 * GB + 8 * 4 * GB + 30 * GB + 50 * GB).start()
    assert account(d.engine.facts).finding is Finding.SEEN
    assert not d.reasons(), d.intents


def test_too_few_huge_pages_are_no_room() -> None:
    d = huge(huge=100 * GB, host=300 * GB)
    d.begin()
    d.announce()
    d.look()
    assert "only 238.00 GB" in d.condition("MemoryHolds").message and "HostMemoryTooSmall" in d.reasons()


def test_a_pool_in_huge_pages_that_shrinks_or_never_comes() -> None:
    d = huge().start()
    d.held = [held / 2 for held in d.held]
    for _ in range(4):
        d.look()
    c = d.condition("FootprintAsAnnounced")
    assert c.reason == "PoolShrank" and "huge pages fell by 179." in c.message
    d = huge()
    d.begin()
    d.announce()
    d.pin(0.0)
    d.ready()
    assert d.condition("FootprintAsAnnounced").reason == "FootprintTooSmall"


def test_where_huge_pages_do_not_suffice_the_pool_lies_in_small_ones() -> None:
    d = huge(huge=20 * GB, shared=True, host=600 * GB)
    d.begin()
    d.announce()
    d.pin()
    d.ready()
    assert not d.reasons(), d.intents
    held = account(d.engine.facts)
    assert held.finding is Finding.SEEN and held.place is not None and held.place.kind in ("unit", "ranks")
    assert d.condition("FootprintAsAnnounced").status is Status.TRUE


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23", "0.5.2", None])
def test_an_announced_pool_that_shows_nowhere_is_a_finding(version: str | None) -> None:
    d = Deployment(version=version)
    d.begin()
    d.announce()
    d.pin(0.0)
    d.ready()
    c = d.condition("FootprintAsAnnounced")
    assert c.status is Status.FALSE and c.reason == "FootprintTooSmall"
    assert "FootprintTooSmall" in d.reasons()
    assert "0.00 GB" in c.message and "358.16 GB (333.6 GiB)" in c.message


def test_another_program_that_takes_as_much_is_no_pool() -> None:
    d = Deployment()
    d.begin()
    d.announce()
    d.others += 8 * POOL
    d.pin(0.0)
    d.ready()
    assert d.condition("FootprintAsAnnounced").reason == "FootprintTooSmall"


def test_one_rank_without_its_part_is_named() -> None:
    d = Deployment()
    d.begin()
    d.announce()
    d.pin()
    d.held[3] = 1.0 * GB
    d.ready()
    c = d.condition("FootprintAsAnnounced")
    assert c.status is Status.FALSE
    assert "scheduler_TP3" in c.message and "scheduler_TP2" not in c.message


CANNOT_MAP = "Cannot map memory with base addr 0x7f2a14000000 and size of 0xa6c5f0 pages"


def test_the_kernels_word_that_pinning_failed_is_told_though_the_pool_is_there() -> None:
    d = Deployment()
    d.begin()
    d.announce()
    for _ in range(2):
        d.feed(o.Kernel(t=d.t, message=CANNOT_MAP))
    d.pin()
    d.ready()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.FALSE, "PinningFailed") and "2 times" in c.message
    assert d.reasons() == {"PinningFailed"} and not d.reasons("restart") and not d.reasons("withhold")


def test_pinning_that_fails_later_or_without_a_pool_is_none_of_ours() -> None:
    d = Deployment().start()
    d.look()
    d.feed(o.Kernel(t=d.t, message=CANNOT_MAP))
    d.look()
    assert d.condition("FootprintAsAnnounced").reason == "AsAnnounced" and not d.reasons()

    d = Deployment(args={"enable_hierarchical_cache": False}, per_rank=0)
    d.begin()
    d.feed(o.Kernel(t=d.t, message=CANNOT_MAP))
    d.ready()
    assert d.condition("FootprintAsAnnounced").reason == "NoHostPool" and not d.reasons()


def test_looks_from_before_readiness_say_nothing_of_what_is_there() -> None:
    """Pinned within half a minute and looked at as rarely: the first look after readiness shows it, those before it do not."""
    d = Deployment()
    d.begin()
    d.announce()
    for _ in range(2):
        d.look(30.0)
    d.held = [float(d.per_rank) for _ in d.held]
    d.log(f"{STAMP}] The server is fired up and ready to roll!")
    for _ in range(4):
        d.look(30.0)
        assert d.condition("FootprintAsAnnounced").reason == "AsAnnounced"
    assert not d.reasons()


def test_shrinking_is_told_with_numbers() -> None:
    d = Deployment().start()
    d.held = [held / 2 for held in d.held]
    for _ in range(4):
        d.look()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.FALSE, "PoolShrank")
    assert "fell by 179.08 GB (166.8 GiB)" in c.message
    assert d.reasons() == {"PoolShrank"}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("cgroup", [False, True])
def test_what_cannot_be_read_now_and_then_has_not_gone(shared: bool, cgroup: bool) -> None:
    d = Deployment(shared=shared, cgroup=cgroup or shared).start()
    for unread in ({3}, {3}, set(), {0, 1, 2, 3}, {5}, {5}, {5}, set()) * 3:
        d.unread = set(unread)
        d.look()
        assert d.condition("FootprintAsAnnounced").reason == "AsAnnounced"
    assert not d.reasons("alert") | d.reasons("plan_restart")


def test_shrinking_is_seen_without_a_start() -> None:
    d = Deployment(mid_life=True, args={"speculative_algorithm": None})
    d.held = [float(POOL)] * 8
    d.unit()
    d.server(max_total_num_tokens=159277, memory_usage={"kvcache": 10.42})
    for _ in range(4):
        d.look()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.TRUE, "AsExpected")
    assert "announced" not in c.message and "expected (within" in c.message
    d.held = [held / 2 for held in d.held]
    for _ in range(4):
        d.look()
    assert d.condition("FootprintAsAnnounced").reason == "PoolShrank"


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23", None])
@pytest.mark.parametrize("mid_life", [False, True])
def test_huge_pages_of_other_programs_say_nothing_of_the_pool(version: str | None, mid_life: bool) -> None:
    """A pool of 0.2 GB in small pages; another program sets 0.1 GB of huge pages aside, and gives them back."""
    d = Deployment(version=version, mid_life=mid_life, ranks=2, per_rank=100_000_000, own=GB)
    d.others_pages = 0.1 * GB
    if mid_life:
        d.held = [float(d.per_rank)] * 2
        d.unit()
        d.server()
        d.announce()
        for _ in range(4):
            d.look()
    else:
        d.start()
    for part in (0.07, 0.03, 0.3, 0.0):
        d.others_pages = part * GB
        for _ in range(4):
            d.look()
        assert "huge pages" not in d.condition("FootprintAsAnnounced").message
        assert d.condition("FootprintAsAnnounced").status is not Status.FALSE
    assert not d.reasons() & {"PoolShrank", "FootprintTooSmall"}


def test_a_place_that_took_far_more_than_the_pool_loses_what_is_others() -> None:
    d = huge(huge=3 * PAGES)
    d.begin()
    d.announce()
    d.others_pages = 1.5 * PAGES
    d.pin()
    d.ready()
    d.others_pages = 0.0
    for _ in range(4):
        d.look()
    assert d.condition("FootprintAsAnnounced").status is Status.TRUE and not d.reasons()


def test_expected_pool_that_is_not_there_in_mid_life() -> None:
    d = Deployment(mid_life=True, args={"speculative_algorithm": None})
    d.unit()
    d.server(max_total_num_tokens=159277, memory_usage={"kvcache": 10.42})
    for _ in range(4):
        d.look()
    assert d.condition("FootprintAsAnnounced").reason == "FootprintTooSmall"


def test_a_kv_cache_that_may_hold_the_drafts_too_is_no_measure() -> None:
    d = Deployment(mid_life=True)
    d.unit()
    d.server(max_total_num_tokens=159277, memory_usage={"kvcache": 11.06})
    for _ in range(4):
        d.look()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.UNKNOWN, "NotAnnounced") and "draft" in c.message


def test_lines_read_later_than_the_memory_make_no_level_before() -> None:
    """The daemon began after the start, and reads the journal's past: what it sees now already holds the pool."""
    d = Deployment()
    d.held = [float(POOL)] * 8
    d.unit()
    d.server()
    d.t = 5000.0
    d.look()
    for r in d.ranks:
        d.feed(
            o.Log(t=d.t, at=100.0, inv=INV, message=f"{STAMP} TP{r}] Allocating 44.77 GB host memory for hierarchical KV cache.")
        )
    d.feed(o.Log(t=d.t, at=200.0, inv=INV, message=f"{STAMP}] The server is fired up and ready to roll!"))
    for _ in range(3):
        d.look()
    held = account(d.engine.facts)
    assert held.finding is Finding.SEEN and held.place is not None and not held.place.grown


def test_ranks_that_were_not_heard_are_counted_alike() -> None:
    d = Deployment()
    d.begin()
    d.announce(ranks=range(7))
    d.pin()
    d.ready()
    held = account(d.engine.facts)
    assert held.announced is not None and not held.announced.complete and held.announced.total == 358_160_000_000
    assert "7 ranks of 8" in d.condition("FootprintAsAnnounced").message


def test_announced_otherwise_than_expected_is_said_and_not_alarmed() -> None:
    d = Deployment(per_rank=22_390_000_000).start()  # ratio 2, though the arguments say 4
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.TRUE, "NotAsExpected")
    assert "less than the" in c.message
    assert {str(i.severity) for i in d.intents if i.reason == "PoolNotAsExpected"} == {"info"}


def test_draft_pools_are_added() -> None:
    d = Deployment(version="0.5.11", per_rank=POOL + 2_610_000_000)
    d.begin()
    d.announce(44.77)
    d.announce(2.61)
    d.pin()
    d.ready()
    held = account(d.engine.facts)
    assert held.announced is not None and held.announced.total == 8 * 47_380_000_000
    assert held.expected.draft and held.differs is None and held.finding is Finding.SEEN


def test_nothing_to_compare() -> None:
    d = Deployment(args={"enable_hierarchical_cache": False})
    d.begin()
    d.ready()
    assert d.condition("FootprintAsAnnounced").reason == "NoHostPool"
    d = Deployment(args={"enable_linker_mla_dedup": True})
    d.begin()
    d.ready()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.UNKNOWN, "NotAnnounced") and "enable-linker-mla-dedup" in c.message


def test_hybrid_caches_are_not_guessed() -> None:
    d = Deployment()
    d.unit()
    d.server()
    d.log(f"{STAMP} TP0] SWA KV Cache is allocated. #tokens: 1000, KV size: 1.00 GB")
    d.log(f"{STAMP} TP0] Full KV Cache is allocated. #tokens: 1000, KV size: 1.00 GB")
    assert account(d.engine.facts).expected.unit is None


def test_small_pool_on_a_noisy_host_is_not_judged() -> None:
    d = Deployment(ranks=1, per_rank=20_000_000, own=3 * GB, args={"hicache_ratio": 2.0, "page_size": 64})
    d.begin()
    d.announce(0.02)
    d.extra = [-0.05 * GB]
    d.pin()
    for step in range(6):
        d.others += (-1) ** step * 2.0 * GB
        d.look()
    d.ready()
    c = d.condition("FootprintAsAnnounced")
    assert (c.status, c.reason) == (Status.UNKNOWN, "CannotTell")
    assert "too small to be told" in c.message and not d.reasons() - {"PoolNotAsExpected"}


CASES: list[tuple[str, float, list[float]]] = [
    ("whole", 1.0, []),
    ("nothing", 0.0, []),
    ("half lost later", 1.0, [0.5]),
    ("a tenth lost later", 1.0, [0.95]),
]


def _run(scale: float, share: float, later: list[float], noise: float) -> tuple[Any, ...]:
    d = Deployment(per_rank=round(POOL * scale), own=round(4 * GB * scale), host=round(2000 * GB * scale))
    d.others = 30 * GB * scale
    d.args["hicache_ratio"] = 4.0
    d.unit()
    d.server()
    for _ in range(4):
        d.look()
    d.announce()
    d.pin(share)
    d.extra = [noise * d.per_rank * (r % 3) for r in d.ranks]
    d.ready()
    for part in later:
        d.held = [held * part for held in d.held]
        for _ in range(4):
            d.look()
    c = d.condition("FootprintAsAnnounced")
    return c.status, c.reason


@settings(max_examples=12)
@given(scale=st.floats(0.1, 8.0), case=st.sampled_from(CASES), noise=st.floats(0, 0.004))
def test_scale_makes_no_difference(scale: float, case: tuple[str, float, list[float]], noise: float) -> None:
    _, share, later = case
    assert _run(scale, share, later, noise) == _run(1.0, share, later, 0.0)
