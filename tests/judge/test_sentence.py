"""The status sentence speaks of the newest evidence, and says so where that does not suffice yet."""

from typing import Any

import pytest

from watchdog.judge.engine import Engine, Settings
from watchdog.judge.sentence import LONGEST, doubts, sentence
from watchdog.judge.verdict import Condition, Status
from watchdog.observation import Answer, Log, Metrics, Operator, Probe, Unit

INV = "a" * 32
READY = "[2026-01-14 02:00:00] The server is fired up and ready to roll!"


class Server:
    """A server that was seen to get ready, and is asked every 5 s."""

    def __init__(self) -> None:
        self.engine = Engine(Settings())
        self.t = 0.0
        self.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=0.0, main_pid=1))
        self.see(Log(t=1.0, inv=INV, message=READY))

    def see(self, x: Any) -> None:
        for _ in self.engine.observe(x):
            pass

    def ask(self, seconds: float, **probe: Any) -> str:
        """Ask for so long, each probe with the same result; the sentence at the end."""
        end = self.t + seconds
        while self.t < end:
            self.t += 5.0
            self.see(Probe(t=self.t, inv=INV, limit_s=6.0, **{"probe": "chat", "total_s": 0.2, **probe}))
        for _ in self.engine.tick(self.t + 1.0):
            pass
        return self.said()

    def said(self) -> str:
        return sentence(self.engine, self.t + 1.0)


def answered(text: str, **fields: Any) -> dict[str, Any]:
    return {"outcome": "ok", "status": 200, "answer": Answer(text=text, finish_reason="stop", completion_tokens=16, **fields)}


GOOD = answered("Paris.")
REFUSED = {"outcome": "status", "status": 401}
HANGS = {"outcome": "timeout", "total_s": 6.0}


def test_a_server_that_is_well() -> None:
    assert Server().ask(30, **GOOD) == "serving, load unknown, canary 0.20 s"


@pytest.mark.parametrize(("read", "tokens", "words"), [(2.5, 47, "idle"), (5.5, 47, "idle"), (5.5, 4700, "busy with a prompt")])
def test_a_canary_that_was_answered_keeps_nobody_busy(read: float, tokens: int, words: str) -> None:
    """Its line tells of the /health beside it as running, as in the first look at a life, and may be read after its answer."""
    server = Server()
    line = "Prefill batch, #new-seq: 1, #new-token: {}, #cached-token: 5, token usage: 0.00, #running-req: 1, #queue-req: 0"
    batch = Log(t=read, inv=INV, message=f"[2026-01-14 02:00:03] {line.format(tokens)}")
    probe = Probe(t=5.0, inv=INV, probe="chat", total_s=0.2, **answered("Paris.", prompt_tokens=52))
    server.see(Metrics(t=2.0, inv=INV, ok=True, values={"num_running_reqs": 0.0, "num_queue_reqs": 0.0}))
    for x in sorted((batch, probe), key=lambda x: x.t):
        server.see(x)
    server.t = 5.0
    assert server.said() == f"serving, {words}, canary 0.20 s"


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (
            {"outcome": "malformed", "detail": "no JSON"},
            "in doubt: 2 canaries in a row failed at once for 6 s, the last 1 s ago (malformed: no JSON)",
        ),
        (answered("!" * 16), "in doubt: 2 canaries in a row were answered with degenerate text for 6 s, the last 1 s ago"),
        (
            answered("Par\x01is"),
            "in doubt: 2 canaries in a row were answered oddly for 6 s, the last 1 s ago: the text has 1 control",
        ),
        (REFUSED, "in doubt: 2 requests of ours got 401 (for 6 s, the last 1 s ago)"),
        (HANGS, "in doubt: canaries have failed for 12 s: chat had no answer within 6 s (2 times); load unknown"),
        ({"outcome": "refused", "total_s": 0.0}, "chat was refused (2 times)"),
        ({"outcome": "status", "status": 500}, "in doubt: canaries have failed for 6.2 s: chat gave 500 at once (2 times)"),
        (
            {**HANGS, "probe": "health"},
            "in doubt: probes fail: health had no answer within 6 s; the engine last moved 11 s ago",
        ),
    ],
)
def test_what_is_not_decisive_yet_is_not_called_well(probe: dict[str, Any], words: str) -> None:
    server = Server()
    server.ask(30, **GOOD)

    said = server.ask(10, **probe)

    assert said.startswith("in doubt: ")
    assert words in said
    assert not said.endswith(".")


def test_refusals_are_the_past_once_the_server_answers() -> None:
    server = Server()
    server.ask(30, **GOOD)
    assert server.ask(90, **REFUSED).startswith("18 requests of ours (chat) got 401 for 1 min 26 s, the last 1 s ago")
    assert "the newest was answered" in server.ask(5, **GOOD)
    assert server.ask(5, **GOOD).startswith("serving,")


def test_refusals_are_the_past_once_the_server_hangs() -> None:
    server = Server()
    server.ask(30, **GOOD)
    server.ask(90, **REFUSED)

    assert server.ask(5, **HANGS).startswith("in doubt: no step of the engine for 1 min 36 s")
    said = server.ask(10, **HANGS)

    assert said.startswith("in doubt: no step of the engine for 1 min 46 s")
    assert "401" not in said


def test_one_key_for_all_probes_is_mended_for_all() -> None:
    """A kind of probe that comes seldom does not keep the headline that a newer kind has overtaken."""
    server = Server()
    server.ask(90, **REFUSED, probe="models")
    server.ask(90, **REFUSED)

    assert server.ask(10, **GOOD).startswith("serving,")


def test_what_only_one_kind_of_probe_is_refused_stays_told() -> None:
    server = Server()
    for _ in range(30):
        server.ask(5, **GOOD)
        server.ask(5, **REFUSED, probe="models")

    assert "(models) got 401" in server.said()


def test_every_second_request_refused_stays_told() -> None:
    """One of two servers behind a proxy wants a key."""
    server = Server()
    for _ in range(30):
        server.ask(5, **GOOD)
        server.ask(5, **REFUSED)

    assert "(chat) got 401" in server.said()


def test_a_suspicion_that_outweighs_what_is_wrong_comes_first() -> None:
    server = Server()
    server.ask(30, **GOOD)
    assert server.ask(60, **answered("!" * 16)).startswith(
        "12 canaries in a row were answered with degenerate text for 56 s, the last 1 s ago"
    )

    said = server.ask(15, **HANGS)

    assert said.startswith("in doubt: canaries have failed for 17 s")
    assert "12 canaries in a row were answered with degenerate text for 1 min 11 s, the last 16 s ago" in said
    assert [(d.type, d.reason) for d in doubts(server.engine)] == [
        ("RequestsCompleting", "CanariesFail"),
        ("SchedulerProgressing", "ProbeFailed"),
    ]


def test_refusals_that_came_after_bad_answers_come_first() -> None:
    server = Server()
    server.ask(30, **GOOD)
    server.ask(30, **answered("!" * 16))

    said = server.ask(90, **REFUSED)

    assert said.startswith("18 requests of ours (chat) got 401 for 1 min 26 s")
    assert "6 canaries in a row were answered with degenerate text for 1 min 56 s, the last 1 min 31 s ago" in said


def test_a_failed_canary_is_told_where_requests_of_users_end_all_the_same() -> None:
    server = Server()
    server.ask(30, **GOOD)
    server.see(Metrics(t=server.t + 0.1, inv=INV, ok=True, values={"num_running_reqs": 3.0, "num_requests_total": 10.0}))
    server.ask(10, **HANGS)
    server.see(Metrics(t=server.t + 0.5, inv=INV, ok=True, values={"num_running_reqs": 3.0, "num_requests_total": 12.0}))
    for _ in server.engine.tick(server.t + 1.0):
        pass

    assert server.engine.conditions["RequestsCompleting"].reason == "SlowButCompleting"
    assert server.said() == "serving although chat had no answer within 6 s (1 s ago), 3 running"


def test_an_old_canary_is_told_with_its_age() -> None:
    server = Server()
    server.ask(30, **GOOD)

    assert sentence(server.engine, 400.0) == "serving, load unknown, canary 0.20 s 6 min 10 s ago"


def test_a_pause_does_not_hide_what_is_wrong() -> None:
    server = Server()
    server.ask(30, **GOOD)
    server.ask(90, **REFUSED)
    server.see(Operator(t=server.t, action="pause", reason="new weights"))

    assert "got 401" in server.said()
    assert server.said().endswith("; paused by a person: new weights")


def test_what_is_wrong_has_since_when_and_an_end() -> None:
    server = Server()
    server.ask(30, **GOOD)
    message = "The NVIDIA driver does not answer: calls into it never return."
    bad = Condition(type="DevicesHealthy", status=Status.FALSE, reason="DriverWedged", message=message, since=server.t - 199.0)
    server.engine.conditions["DevicesHealthy"] = bad
    assert server.said() == "the NVIDIA driver does not answer: calls into it never return (for 3 min 20 s)"

    server.engine.conditions["UnitActive"] = Condition(type="UnitActive", status=Status.FALSE, reason="X", message="word " * 99)
    assert len(server.said()) <= LONGEST
    assert server.said().endswith("word…")


def test_a_server_whose_generation_is_paused_is_not_called_well() -> None:
    """Users wait as long as it lasts (seen with 0.5.23: /health says 503, and the line of the call is all that the log has)."""
    server = Server()
    server.ask(30, **GOOD)
    server.see(Log(t=31.0, inv=INV, message='INFO:     127.0.0.1:40000 - "POST /pause_generation HTTP/1.1" 200 OK'))

    assert server.ask(30, probe="health", outcome="status", status=503, total_s=20.0) == (
        "generation is paused for 30 s: somebody called /pause_generation"
    )
    server.see(Log(t=62.0, inv=INV, message='INFO:     127.0.0.1:40000 - "POST /continue_generation HTTP/1.1" 200 OK'))
    assert server.ask(5, **GOOD).startswith("serving")


def test_what_failed_before_the_server_was_ready_does_not_speak_against_it() -> None:
    server = Server()
    server.engine = Engine(Settings())
    server.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=0.0, main_pid=1))
    server.see(Probe(t=0.5, inv=INV, probe="health", outcome="refused", total_s=0.01, limit_s=6.0))
    server.see(Log(t=1.0, inv=INV, message=READY))
    server.see(Metrics(t=1.5, inv=INV, ok=True, values={"num_running_reqs": 1.0}))
    for _ in server.engine.tick(2.0):
        pass

    assert sentence(server.engine, 2.0) == "serving, 1 running"


def begun(since: float, *seen: Any) -> Engine:
    engine = Engine(Settings())
    up = Unit(t=100.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", since=since, main_pid=1)
    for x in (up, *seen):
        list(engine.observe(x))
    return engine


@pytest.mark.parametrize(
    ("since", "seen", "now", "words"),
    [
        (64.0, (), 104.0, "up for 40 s; whether it is ready is not known yet"),
        (64.0, (), 140.0, "starting for 1 min 16 s: its first lines"),
        (64.0, (Log(t=102.0, inv=INV, message=READY),), 104.0, "serving"),
        (64.0, (Probe(t=102.0, inv=INV, probe="health", outcome="status", status=503, total_s=0.1),), 104.0, "starting for 40 s"),
        (99.0, (), 104.0, "starting for 5 s: its first lines"),
    ],
)
def test_who_comes_to_a_server_that_is_up_does_not_call_it_starting_at_once(
    since: float, seen: tuple[Any, ...], now: float, words: str
) -> None:
    engine = begun(since, *seen)
    list(engine.tick(now))
    assert sentence(engine, now, fresh=True).startswith(words)


def test_a_start_is_told_as_it_is_now_where_that_is_asked_for() -> None:
    engine = begun(99.0)
    list(engine.tick(105.0))
    assert sentence(engine, 108.0) == "starting for 6 s: its first lines; last progress 5 s ago (its start)"
    assert sentence(engine, 108.0, fresh=True) == "starting for 9 s: its first lines; last progress 8 s ago (its start)"
