"""The deep check against a stand-in server: what it finds, what it costs, and when it lets go."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standin.server import StandIn, wait_for
from tests.verify.deeps import PLENTY, Checked
from watchdog.judge.facts.baseline import Baseline, Identity
from watchdog.standin import faults
from watchdog.verify.deep.plan import Limits
from watchdog.verify.findings import Verdict

HICACHE = ("--enable-hierarchical-cache", "--hicache-ratio", "4", "--host-pool-mib", "8", "--kv-tokens", "12000")
DRAFTS = ("--speculative-algorithm", "EAGLE3")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with StandIn(tmp_path_factory.mktemp("whole"), *HICACHE, *DRAFTS, "--enable-cache-report") as server:
        yield server


async def test_a_server_that_is_well(whole: StandIn) -> None:
    checked = Checked(whole)
    loaded = whole.metric("load_back_tokens_total")
    items = await checked.items()
    assert {name: item.verdict for name, item in items.items() if item.verdict is not Verdict.OK} == {}
    assert "tokens cached (usage)" in items["prefix cache"].seen
    assert "the same answer" in items["load back"].seen and "came back" in items["load back"].seen
    assert items["speculation"].seen.startswith("accept length 2.")
    assert items["load"].seen == "8 of 8 answered, 4 at a time"
    assert "tokens a second for each request" in items["decode speed"].seen
    assert whole.metric("load_back_tokens_total") - loaded > 1000
    assert checked.done.filled > 12_000


async def test_each_prompt_is_new_to_the_server(whole: StandIn) -> None:
    """A second check finds nothing of the first in the cache."""
    checked = Checked(whole, seed=2)
    await checked.items()
    again = Checked(whole, seed=3)
    await again.items()
    for done in (checked.done, again.done):
        assert done.cold is not None and done.cold.answer is not None and not done.cold.answer.cached_tokens


async def test_a_host_pool_that_gives_back_something_else(whole: StandIn) -> None:
    faults.write(whole.faults, "damaged-host-pool", {})
    try:
        item = (await Checked(whole, seed=4).items())["load back"]
    finally:
        faults.clear(whole.faults)
    assert (item.verdict, "from then on another answer" in item.seen) == (Verdict.BAD, True), item


async def test_what_would_cost_too_much_is_not_tried(whole: StandIn) -> None:
    checked = Checked(whole, seed=5)
    items = await checked.items(Limits(tokens=20_000, seconds=60.0))
    assert items["load back"].verdict is Verdict.UNKNOWN
    assert items["load back"].seen.startswith("not tried: would cost ")
    assert items["load back"].cure.startswith("allow it with --max-tokens ")
    needed = int(items["load back"].cure.rpartition(" ")[2])
    assert items["load"].verdict is Verdict.OK and checked.done.filled == 0
    planned, _ = await checked.run(Limits(tokens=needed, seconds=60.0))
    assert planned.step("load back") is not None and planned.tokens <= needed


async def test_speeds_are_compared_with_the_baseline(whole: StandIn) -> None:
    """A step took a twentieth of a millisecond there, and a first token none: nothing on earth is as fast."""
    checked, identity = Checked(whole, seed=6), Identity()
    light = Limits(tokens=20_000, seconds=60.0)
    items = await checked.items(light, Baseline(identity=identity, steps={"4": 5e-5}, accept_length=9.0))
    assert (items["decode speed"].verdict, items["speculation"].verdict) == (Verdict.ODD, Verdict.ODD)
    assert "usually 180000.0" in items["decode speed"].expected
    good = Baseline(identity=identity, steps={"4": 0.02}, accept_length=2.7, first_token={"chat": 0.05})
    items = await checked.items(light, good)
    assert {items[name].verdict for name in ("decode speed", "speculation", "first token")} == {Verdict.OK}


# ---- without the best sources, and configured but not there


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    more = ("--speculation-off", "--prefill-rate", "4000")
    with StandIn(tmp_path_factory.mktemp("plain"), *HICACHE, *DRAFTS, *more, version="0.5.8") as server:
        yield server


async def test_metrics_tell_where_usage_does_not(plain: StandIn) -> None:
    items = await Checked(plain).items()
    assert "tokens cached (metrics)" in items["prefix cache"].seen and items["prefix cache"].verdict is Verdict.OK
    assert "came back" in items["load back"].seen and items["load back"].verdict is Verdict.OK


async def test_speculation_that_is_configured_but_not_active(plain: StandIn) -> None:
    item = (await Checked(plain, seed=2).items(Limits(tokens=20_000, seconds=60.0)))["speculation"]
    assert (item.verdict, item.seen.startswith("configured but not active")) == (Verdict.BAD, True)


async def test_no_metrics_no_check_unless_forced(plain: StandIn) -> None:
    checked = Checked(plain, seed=3)
    faults.write(plain.faults, "metrics-off", {})
    try:
        items = await checked.items()
        assert items["deep check"].seen == "not tried: no metrics: whether users wait cannot be seen"
        assert checked.done.requests == 0 and "--force" in items["deep check"].cure
        items = await checked.items(force=True)
    finally:
        faults.clear(plain.faults)
    assert items["prefix cache"].verdict is Verdict.OK
    assert items["prefix cache"].seen.endswith("cached tokens are not told") and "first token after" in items["prefix cache"].seen
    assert items["load back"].seen == "not tried: no metrics to see it by"
    assert items["speculation"].seen.startswith("configured but not active")  # from the decode lines


async def test_a_cache_that_is_off_is_not_asked(tmp_path: Path) -> None:
    with StandIn(tmp_path, "--disable-radix-cache") as server:
        items = await Checked(server).items()
    assert items["prefix cache"].seen == "not tried: the prefix cache is off (--disable-radix-cache)"
    assert items["load"].verdict is Verdict.OK and "speculation" not in items and "load back" not in items


async def test_a_cache_that_finds_nothing(tmp_path: Path) -> None:
    """One that is so small that the prompt itself pushes its beginning out."""
    with StandIn(tmp_path, "--kv-tokens", "128") as server:
        item = (await Checked(server).items())["prefix cache"]
    assert (item.verdict, "all of it was computed anew" in item.seen) == (Verdict.BAD, True), item


# ---- users come first


class Users:
    """Requests of users, from a thread each, until they are answered or the server is gone."""

    def __init__(self, server: StandIn, count: int, tokens: int) -> None:
        body = {"messages": [{"role": "user", "content": "Go on."}], "max_tokens": tokens, "ignore_eos": True}
        raw = json.dumps(body).encode()

        def one() -> None:
            with contextlib.suppress(OSError):
                server.request("POST", "/v1/chat/completions", raw, limit=30.0)

        self.threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        for thread in self.threads:
            thread.join(35.0)


async def test_a_busy_server_is_left_alone(tmp_path: Path) -> None:
    with StandIn(tmp_path, "--decode-log-interval", "2") as server:
        users = Users(server, 2, 600)
        wait_for(lambda: server.metric("num_running_reqs") > 0)
        checked = Checked(server)
        items = await checked.items()
        assert items["deep check"].seen.startswith("not tried: it is busy: 2 running"), items
        assert checked.done.requests == 0
        items = await checked.items(force=True)
        assert items["load"].verdict is Verdict.OK
        users.end()


async def test_a_gauge_that_was_left_behind_does_not_make_it_busy(tmp_path: Path) -> None:
    """The running gauge keeps its last value for up to 30 s (here: a thirtieth of it) after the last request."""
    with StandIn(tmp_path, "--decode-log-interval", "2", "--time-scale", "0.1") as server:
        server.chat(max_tokens=10, ignore_eos=True)
        assert server.metric("num_running_reqs") > 0
        assert (await Checked(server).items())["load"].verdict is Verdict.OK


async def test_it_lets_go_when_users_have_to_wait(tmp_path: Path) -> None:
    more = ("--max-running-requests", "2", "--decode-log-interval", "2", "--step-seconds", "0.05")
    with StandIn(tmp_path, *more) as server:
        checked = Checked(server)
        task = asyncio.create_task(checked.items())
        # The prefix was asked twice, and answered.
        await asyncio.to_thread(wait_for, lambda: server.metric("num_requests_total") >= 2)
        users = Users(server, 6, 40)
        items = await task
        assert checked.done.stopped is not None and "requests of users wait" in checked.done.stopped
        assert items["load"].seen.startswith("not done: requests of users wait")
        assert items["cost"].verdict is Verdict.ODD and "ended early" in items["cost"].seen
        users.end()
        assert server.metric("num_aborted_requests_total") >= 1  # what was under way was taken back


# ---- never beyond its ceiling


async def test_it_ends_in_time(tmp_path: Path) -> None:
    with StandIn(tmp_path, "--step-seconds", "0.2") as server:
        checked = Checked(server)
        items = await checked.items(Limits(tokens=100_000, seconds=3.0))
    assert checked.done.stopped == "its time of 3 s was over"
    assert checked.done.took_s < 8.0  # the load alone would have taken 24 s
    assert items["load"].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("fault", "said"), [("queue-full", "saturated (503)"), ("reset-streams", "closed")])
async def test_the_first_request_that_fails_is_the_last(tmp_path: Path, fault: str, said: str) -> None:
    with StandIn(tmp_path) as server:
        faults.write(server.faults, fault, {})
        checked = Checked(server)
        items = await checked.items(PLENTY)
    assert checked.done.requests == 1
    assert checked.done.stopped is not None and said in checked.done.stopped, checked.done.stopped
    assert items["prefix cache"].verdict is Verdict.UNKNOWN and said in items["prefix cache"].seen


async def test_a_load_in_which_one_fails(tmp_path: Path) -> None:
    """Of steps long enough (3 s for each request of the load) for a starved machine to see them under way."""
    with StandIn(tmp_path, "--disable-radix-cache", "--step-seconds", "0.05") as server:
        checked = Checked(server)
        task = asyncio.create_task(checked.items())
        await asyncio.to_thread(wait_for, lambda: server.metric("http_requests_active") > 1)
        faults.write(server.faults, "queue-full", {})
        items = await task
    assert checked.done.stopped is not None and "saturated (503)" in checked.done.stopped
    assert items["load"].verdict is Verdict.BAD
