"""Lines a second of our journal reader, with and without the meaning of each line, against journalctl on the same journal.

Seconds are seconds of CPU, so that other work on the machine counts little; each way is taken a few times in turn, and its best
time counts. journalctl prints to /dev/null: what it costs alone. (Whoever watches with it has to read its pipe as well.) What it
takes to start is taken off, as it is not counted for Python either.

Run as root: python -m tests.bench.bench_journal. It boots a private systemd, fills its journal, and reads it there.
"""

import random
import resource
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from systemd import _reader

from tests.box.box import Box
from watchdog import config
from watchdog.clock import BootClock
from watchdog.observation import Log, Observation
from watchdog.observe import journal
from watchdog.observe.source import Target
from watchdog.sglang import loglines_bulk
from watchdog.sglang.loglines import classify

ROOT = Path(__file__).resolve().parents[2]
UNIT = "flood.service"
LINES = 50_000
ROUNDS = 25

# In systemd 252 LogRateLimitIntervalSec=0 does not lift the limit; a burst that is never reached does.
FLOOD = f"""[Service]
Type=oneshot
ExecStart={sys.executable} {__file__} print
LogRateLimitIntervalSec=1
LogRateLimitBurst=10000000
"""


RARE = (
    "[{stamp}] Endpoint '/get_server_info' is deprecated and will be removed in a future version. "
    "Please use '/server_info' instead.",
    "[{stamp}] [http_server] Error: The input (300000 tokens) is longer than the model's context length (262144 tokens).",
    "[{stamp} TP{rank}] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 4096",
    "[{stamp} TP{rank}] write_back: KV subtree dropped without backup due to host memory pressure, root node 8831",
    "[{stamp} TP{rank}] Grammar accept_token failed for req 1f2e with token 163586: Tokens not accepted",
    "[{stamp}] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 03:12:25. last_heartbeat time: 03:12:21",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3/dist-packages/sglang/srt/managers/tokenizer_manager.py", line 1181, in _wait_one_response',
    "ValueError: Request is disconnected from the client side (type 1). Abort request obj.rid='1f2e'",
)
"""Lines that are no bulk: warnings and the tracebacks of clients that went away."""


def print_lines() -> None:
    """The mix of a busy server of eight ranks, in the words of 0.5.9; 3 lines of 100 are rare ones."""
    chance = random.Random(2026)
    for i in range(LINES):
        stamp = f"2026-01-14 {i // 360000 + 2:02d}:{i // 6000 % 60:02d}:{i // 100 % 60:02d}"
        rank = chance.randrange(8)
        usage = chance.random()
        running, queue = chance.randrange(48), int(chance.expovariate(0.3))
        sort = chance.random()
        if sort < 0.40:
            print(
                f"[{stamp} DP{rank} TP{rank}] Decode batch, #running-req: {running}, #token: {int(usage * 159277)}, "
                f"token usage: {usage:.2f}, accept len: {chance.uniform(1, 4):.2f}, accept rate: {chance.random():.2f}, "
                f"cuda graph: True, gen throughput (token/s): {chance.uniform(20, 1500):.2f}, #queue-req: {queue}"
            )
        elif sort < 0.65:
            print(
                f"[{stamp} DP{rank} TP{rank}] Prefill batch, #new-seq: {chance.randrange(1, 12)}, "
                f"#new-token: {min(8192, int(chance.expovariate(0.0004)))}, #cached-token: {int(chance.expovariate(0.0001))}, "
                f"token usage: {usage:.2f}, #running-req: {running}, #queue-req: {queue}, "
                f"cuda graph: False, input throughput (token/s): {chance.uniform(50, 9000):.2f}"
            )
        elif sort < 0.97:
            peer = chance.choice(("127.0.0.1", f"10.0.{chance.randrange(4)}.{chance.randrange(256)}"))
            asked = chance.choice(("POST /v1/chat/completions",) * 6 + ("POST /v1/completions", "GET /health", "GET /metrics"))
            answer = chance.choice(("200 OK",) * 30 + ("400 Bad Request", "503 Service Unavailable"))
            print(f'[{stamp}] INFO:     {peer}:{chance.randrange(32768, 61000)} - "{asked} HTTP/1.1" {answer}')
        else:
            print(chance.choice(RARE).format(stamp=stamp, rank=rank))


def read_all(what: str) -> tuple[int, float]:
    """Read the whole journal of the unit: lines, and seconds that it took.

    Args:
        what: "read" hands every line on; "classify" finds out what each means as well; "present" does so with lines that were
            just written, whose time need not be told; "behind" reads as the source does when it is far behind: lines that come
            in bulk are told apart, and all but one a second left out.
    """
    clock = BootClock()
    source = journal.JournalSource(Target(config.Server(name="flood", unit=UNIT)), clock)
    loglines_bulk._readers.clear()
    if what == "behind":
        source._began = -1e9
    count = 0

    def classified(observation: Observation) -> None:
        assert isinstance(observation, Log)
        classify(observation.message)

    began = time.process_time()
    with source._reader.opened():
        first = source._reader.first_of(journal.unit_matches(UNIT))
        assert first is not None
        source._reader.go(first)
        written = source._reader.written
        if what == "behind":
            source._reader.written = lambda: written() - 1000  # type: ignore[method-assign]
        elif what == "present":
            source._reader.written = clock.now  # type: ignore[method-assign]
        emit = deque(maxlen=0).append if what == "read" else classified
        while entries := source._read(emit).entries:
            count += entries
    return count, time.process_time() - began


def read_messages() -> float:
    """Seconds that libsystemd takes to find the same entries and give their messages, and nothing else is done."""
    raw = _reader._Reader(_reader.LOCAL_ONLY)
    for alternative in journal.unit_matches(UNIT):
        raw.add_disjunction()
        for match in alternative:
            raw.add_match(match)
    raw.seek_head()
    began = time.process_time()
    while raw._next():
        raw._get("MESSAGE")
    took = time.process_time() - began
    raw.close()
    return took


def journalctl(*args: str) -> float:
    """Seconds that journalctl takes to print the same."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["journalctl", "-u", UNIT, "-o", "cat", *args], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure() -> None:
    """Inside the box: each a few times in turn; the best of each counts."""
    ways = ("read", "classify", "present", "behind")
    seconds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        seconds.setdefault("start", []).append(journalctl("-n", "1"))
        seconds.setdefault("journalctl", []).append(journalctl())
        seconds.setdefault("messages", []).append(read_messages())
        for way in ways:
            lines, took = read_all(way)
            seconds.setdefault(way, []).append(took)
    best = {way: min(all_of_it) for way, all_of_it in seconds.items()}
    theirs = best["journalctl"] - best.pop("start")
    best["journalctl"] = theirs
    print(f"journal of {lines} lines")
    for way, took in best.items():
        print(f"{way:12} {lines / took:9.0f} lines/s  {took / lines * 1e6:5.2f} µs  ratio {theirs / took:.2f}")


def main() -> None:
    """Boot, fill, measure."""
    with Box() as box:
        box.unit(UNIT, FLOOD)
        box.run("systemctl", "start", UNIT, timeout=300)
        box.run("journalctl", "--sync")
        print(box.run("sh", "-c", f"cd {ROOT} && {sys.executable} -m tests.bench.bench_journal measure", timeout=600).stdout)


if __name__ == "__main__":
    {"print": print_lines, "measure": measure}.get(sys.argv[-1], main)()
