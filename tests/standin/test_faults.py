"""Each fault has the effect that was seen of the real server (in a thirtieth of the time)."""

import http.client
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.standin.server import SCALE, StandIn, wait_for
from watchdog.sglang.loglines import Mark

LIMIT = 20 * SCALE
"""Seconds until /health gives up."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """One server for the faults that it survives."""
    pool = ("--enable-hierarchical-cache", "--host-pool-mib", "32")
    with StandIn(tmp_path_factory.mktemp("standin"), *pool) as running:
        yield running


@pytest.fixture(autouse=True)
def no_fault_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        running: StandIn = request.getfixturevalue("server")
        running.clear()
        wait_for(lambda: running.get("/health").status == 200)


def texts(body: bytes) -> str:
    choice = json.loads(body)["choices"][0]
    return str(choice["message"]["content"])


class TestFaultsItSurvives:
    def test_hang(self, server: StandIn) -> None:
        server.order("hang")
        with ThreadPoolExecutor() as pool:
            chat = pool.submit(server.chat)
            # The first one may still see a sign of life that was under way when the hang began.
            got = next(reply for _ in range(5) if (reply := server.get("/health")).status == 503)
            assert LIMIT <= got.seconds < 3 * LIMIT
            assert server.get("/ready").status == server.get("/ping").status == 503
            assert server.get("/v1/models").status == server.get("/metrics").status == 200
            with pytest.raises(TimeoutError):
                server.get("/server_info", limit=0.2)
            assert not chat.done()
            server.clear()
            assert chat.result().status == 200
        assert server.get("/health").status == 200
        assert server.get("/ready").status == 200
        [failed] = [line for line in server.marks() if line.mark == Mark.HEALTH_FAILED]
        assert failed.fields["waited_s"] == 1  # SGLang prints whole seconds

    def test_a_hang_freezes_the_counters(self, server: StandIn) -> None:
        with ThreadPoolExecutor() as pool:
            # Long enough that the 40th decode step has written the gauges before the hang begins.
            chat = pool.submit(server.chat, max_tokens=300, ignore_eos=True, limit=8)
            wait_for(lambda: server.metric("num_running_reqs") == 1)
            server.order("hang")
            time.sleep(0.1)
            before = server.metric("realtime_tokens_total")
            time.sleep(0.2)
            assert server.metric("realtime_tokens_total") == before
            assert server.metric("num_running_reqs") == 1
            assert server.metric("gen_throughput") > 0
            server.clear()
            assert chat.result().json["usage"]["completion_tokens"] == 300

    def test_hang_behind_200(self, server: StandIn) -> None:
        server.order("hang-behind-200")
        assert server.get("/health").status == server.get("/ready").status == 200
        with pytest.raises(TimeoutError):
            server.chat(limit=0.5)
        assert server.get("/health").status == 200

    def test_stopped_scheduler(self, server: StandIn) -> None:
        scheduler = server.children()["sglang::scheduler"]
        scheduler.suspend()
        try:
            assert server.get("/ready").status == 200
            assert server.get("/health").status == 503
        finally:
            scheduler.resume()
        assert server.get("/health").status == 200

    def test_stopped_detokenizer_while_idle(self, server: StandIn) -> None:
        detokenizer = server.children()["sglang::detokenizer"]
        detokenizer.suspend()
        try:
            assert server.get("/health").status == 503
        finally:
            detokenizer.resume()

    def test_stalled_detokenizer_while_busy_is_not_seen_by_health(self, server: StandIn) -> None:
        with ThreadPoolExecutor() as pool:
            chat = pool.submit(server.chat, max_tokens=500, ignore_eos=True, limit=8)
            wait_for(lambda: server.metric("num_running_reqs") == 1)
            server.order("stall-detokenizer")
            time.sleep(0.1)
            assert server.get("/health").status == 200
            time.sleep(1)
            assert not chat.done()
            server.clear()
            assert chat.result().status == 200

    def test_crawl(self, server: StandIn) -> None:
        quick = server.chat(max_tokens=10, ignore_eos=True).seconds
        server.order("crawl", factor=10)
        slow = server.chat(max_tokens=10, ignore_eos=True)
        assert slow.status == 200
        assert slow.seconds > 3 * quick

    @pytest.mark.parametrize(("mode", "text"), [("bang", "!!!!!!!!!!"), ("repeat", " the the the"), ("control", "\x14\x14\x14")])
    def test_garbage(self, server: StandIn, mode: str, text: str) -> None:
        server.order("garbage", mode=mode)
        assert text in texts(server.chat().body)
        server.clear()
        assert texts(server.chat().body) == "Paris."

    @pytest.mark.parametrize("stream", [False, True])
    def test_empty(self, server: StandIn, stream: bool) -> None:
        server.order("empty")
        got = server.chat(stream=stream)
        assert got.status == 200
        assert b"Paris" not in got.body
        assert b'"content":""' in got.body

    @pytest.mark.parametrize("stream", [False, True])
    def test_reset_streams(self, server: StandIn, stream: bool) -> None:
        server.order("reset-streams")
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            server.chat(stream=stream)
        assert not any("Traceback" in line or "Error handling" in line for line in server.log())

    def test_slow_first_byte(self, server: StandIn) -> None:
        server.order("slow-first-byte", seconds_late=0.4)
        assert server.chat().seconds > 0.4

    def test_queue_full(self, server: StandIn) -> None:
        server.order("queue-full")
        got = server.chat()
        assert got.status == 503
        assert got.json == {"object": "error", "message": "The request queue is full.", "type": "503", "param": None, "code": 503}
        assert server.get("/health").status == 200

    def test_freeze(self, server: StandIn) -> None:
        server.order("freeze")
        time.sleep(0.1)
        with pytest.raises(TimeoutError):
            server.get("/v1/models", limit=0.3)
        server.clear()
        assert server.get("/v1/models").status == 200

    def test_log_flood(self, server: StandIn) -> None:
        before = len(server.log())
        server.order("log-flood", lines=4000)
        wait_for(lambda: len(server.log()) > before + 1000)

    def test_leak_and_shrink(self, server: StandIn) -> None:
        scheduler = server.children()["sglang::scheduler"]
        before = scheduler.memory_info().rss
        server.order("leak", mb=200)
        wait_for(lambda: scheduler.memory_info().rss > before + 20e6)
        server.clear()
        held = scheduler.memory_info().shared
        server.order("shrink-pool", fraction=0.5)
        wait_for(lambda: scheduler.memory_info().shared < held - 15 * 2**20)

    def test_metrics_off_and_garbage(self, server: StandIn) -> None:
        server.order("metrics-off")
        assert server.get("/metrics").status == 404
        server.clear()
        server.order("metrics-garbage")
        got = server.get("/metrics")
        assert (got.status, got.body[:2]) == (200, b"\xff\xfe")

    def test_a_fault_ends_by_itself(self, server: StandIn) -> None:
        server.order("queue-full", seconds=0.2)
        assert server.chat().status == 503
        wait_for(lambda: server.chat().status == 200)


def test_busy_with_long_prompts(tmp_path: Path) -> None:
    with StandIn(tmp_path) as server:
        server.order("busy", step=1.6 * LIMIT)
        wait_for(lambda: server.get("/health").status == 503)
        before = server.metric("num_requests_total")
        # Work goes on all the same: a small chat comes in between, and the long prompts end.
        assert server.chat(limit=8).status == 200
        assert server.metric("num_requests_total") > before + 1
        prefills = [line for line in server.marks() if line.mark == Mark.PREFILL]
        assert sum(line.fields["new_token"] > 90_000 for line in prefills) >= 2


class TestFaultsThatEndIt:
    @pytest.mark.parametrize(
        ("version", "fault", "code", "said"),
        [
            ("0.5.23", "kill-scheduler", -9, "Subprocess scheduler_0"),
            ("0.5.23", "exception", -9, "Scheduler hit an exception"),
            ("0.5.23", "oom", -9, "CUDA out of memory"),
            ("0.5.23", "cuda-error", -9, "CUDA error"),
            ("0.5.10", "kill-detokenizer", -9, "Subprocess detokenizer"),
            ("0.5.9", "exception", -9, "Scheduler hit an exception"),
        ],
    )
    def test_it_kills_itself(self, tmp_path: Path, version: str, fault: str, code: int, said: str) -> None:
        with StandIn(tmp_path, version=version) as server:
            server.order(fault)
            begun = time.monotonic()
            assert server.process.wait(8) == code
            server.wait_log(said)
            assert "SIGQUIT received" in server.output.read_text()
            if version == "0.5.23":
                # Mute for 5 s before it goes; nobody lives who could dump core.
                assert time.monotonic() - begun > 5 * SCALE
                server.wait_log("No live scheduler processes found")
            assert any(line.fatal for line in server.marks())

    def test_a_dead_detokenizer_leaves_it_mute_for_a_minute(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server:
            server.order("kill-detokenizer")
            server.wait_log("Waiting 60.0 seconds for CUDA coredumps")
            with pytest.raises(TimeoutError):
                server.get("/v1/models", limit=0.5)
            assert server.process.wait(8) == -9

    @pytest.mark.parametrize(("version", "fault"), [("0.5.9", "kill-scheduler"), ("0.5.23", "exit-0")])
    def test_a_death_that_nobody_notices(self, tmp_path: Path, version: str, fault: str) -> None:
        with StandIn(tmp_path, version=version) as server:
            server.order(fault)
            wait_for(lambda: "sglang::scheduler" not in server.children())
            assert server.get("/health").status == 503
            assert server.get("/v1/models").status == 200
            assert server.process.poll() is None
            assert not any("SIGQUIT" in line for line in server.log())

    def test_its_own_watchdog_ends_a_hang(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, "--watchdog-timeout", "5") as server:
            server.order("hang")
            with ThreadPoolExecutor() as pool:
                chat = pool.submit(server.chat, limit=8)
                server.wait_log("Scheduler watchdog timeout (self.watchdog_timeout=5.0, self.soft=False)")
                assert server.process.wait(8) == -9
                with pytest.raises((ConnectionError, http.client.HTTPException)):
                    chat.result()
            assert Mark.WATCHDOG_FIRED in {line.mark for line in server.marks()}

    def test_a_soft_watchdog_only_tells(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, "--soft-watchdog-timeout", "2") as server:
            server.order("hang")
            with pytest.raises(TimeoutError):
                server.chat(limit=0.4)
            server.wait_log("self.soft=True")
            server.clear()
            assert server.chat().status == 200

    def test_a_restart_cures_unless_the_fault_is_sticky(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server:
            server.order("queue-full")
            server.order("empty", sticky=1)
        with StandIn(tmp_path) as server:
            got = server.chat()
            assert got.status == 200
            assert texts(got.body) == ""

    def test_a_rank_that_stops_stops_all(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, "--tp-size", "2") as server:
            server.children()["sglang::scheduler_TP1"].suspend()
            assert server.get("/health").status == 503
            server.children()["sglang::scheduler_TP1"].resume()
            assert server.get("/health").status == 200


class TestEnds:
    def test_no_orphans_after_sigkill(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, "--tp-size", "2") as server:
            children = list(server.children().values())
            assert len(children) == 4
            assert server.end(signal.SIGKILL) == -9
            _, alive = psutil.wait_procs(children, 2)
            assert not alive

    @pytest.mark.parametrize(("version", "code"), [("0.5.9", -9), ("0.5.23", 0)])
    def test_sigterm_while_idle(self, tmp_path: Path, version: str, code: int) -> None:
        with StandIn(tmp_path, "--tp-size", "2", version=version) as server:
            assert server.end() == code
            draining = [line for line in server.marks() if line.mark == Mark.DRAINING]
            assert draining[-1].fields["remaining"] == 0
            if code == 0:
                assert "INFO:     Finished server process" in server.output.read_text()
                assert "still alive" not in server.output.read_text()

    def test_sigterm_drains_what_runs(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server, ThreadPoolExecutor() as pool:
            chat = pool.submit(server.chat, max_tokens=300, ignore_eos=True, stream=True, limit=8)
            wait_for(lambda: server.metric("num_running_reqs") == 1)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: server.get("/health").status == 503)
            server.wait_log("Remaining number of requests 1")
            # New requests are still taken.
            assert server.chat(max_tokens=5).status == 200
            assert chat.result().body.endswith(b"data: [DONE]\n\n")
            assert server.process.wait(8) == 0

    def test_sigterm_never_ends_a_hung_server(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server:
            server.order("hang")
            with pytest.raises(TimeoutError):
                server.chat(limit=0.2)
            with pytest.raises(Exception, match="timed out"):
                server.end(limit=1.0)
            assert sum("Remaining number of requests 1" in line for line in server.log()) >= 2
            server.clear()
            assert server.process.wait(8) == 0

    def test_sigterm_after_a_failed_health_check_ends_it(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server:
            server.order("hang")
            assert server.get("/health").status == 503
            assert server.end() == 0
            log = server.output.read_text()
            assert "Signal SIGTERM received while health check failed. Force exiting." in log
            assert "Schedulers still alive 15s after ShutdownReq" in log

    def test_ignored_sigterm(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server:
            server.order("ignore-sigterm")
            with pytest.raises(Exception, match="timed out"):
                server.end(limit=0.6)
            assert server.get("/health").status == 200

    def test_sigint_and_sigquit(self, tmp_path: Path) -> None:
        with StandIn(tmp_path) as server:
            assert server.end(signal.SIGINT) == 0
        with StandIn(tmp_path, version="0.5.9") as server:
            assert server.end(signal.SIGQUIT) == -9


class TestOptions:
    def test_the_key_guards_all_but_health_and_metrics(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, "--api-key", "secret", version="0.5.9") as server:
            assert server.get("/health").status == server.get("/metrics").status == 200
            got = server.get("/v1/models")
            assert (got.status, got.json) == (401, {"error": "Unauthorized"})
            assert server.get("/v1/models", Authorization="Bearer secret").status == 200
            assert server.get("/v1/models", Authorization="Bearer wrong").status == 401

    def test_a_shallow_health_endpoint(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION="0") as server:
            server.order("hang", where="loop")
            assert server.get("/health").status == 200

    def test_traffic_of_its_own(self, tmp_path: Path) -> None:
        arguments = ("--traffic", "30", "--speculative-algorithm", "EAGLE3", "--decode-log-interval", "10")
        with StandIn(tmp_path, *arguments, version="0.5.9") as server:
            wait_for(lambda: any(line.mark == Mark.DECODE for line in server.marks()))
            decode = next(line for line in server.marks() if line.mark == Mark.DECODE)
            assert 1.5 < decode.fields["accept_len"] < 3.5
            wait_for(lambda: server.metric("num_requests_total") > 3)
            assert server.metric("spec_accept_length") > 1.5
            assert any(line.mark == Mark.ACCESS and "10.0.0.7" in line.message for line in server.marks())

    def test_a_queue_with_a_limit(self, tmp_path: Path) -> None:
        limits = ("--max-running-requests", "1", "--max-queued-requests", "1")
        with StandIn(tmp_path, *limits) as server, ThreadPoolExecutor() as pool:
            chats = [pool.submit(server.chat, max_tokens=250, ignore_eos=True, limit=10) for _ in range(4)]
            statuses = sorted(chat.result().status for chat in chats)
        assert statuses[0] == 200
        assert statuses[-1] == 503

    def test_older_versions_lack_newer_endpoints(self, tmp_path: Path) -> None:
        with StandIn(tmp_path, version="0.5.9") as server:
            assert server.get("/ready").status == 404
            assert server.get("/get_load").json[0]["num_reqs"] == 0
            assert server.get("/v1/loads").status == 200
            assert b"hicache_host_used_tokens" not in server.get("/metrics").body
