"""One watched server: secrets stay out, a fault of a judge harms nobody, sources are told what they need, a pause survives."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tests.incidents.cases_hang  # noqa: F401  # its cases are known when it is imported
from tests.incidents.case import CASES
from watchdog import config, keyring
from watchdog.act import redact
from watchdog.clean import without_secrets
from watchdog.clock import FakeClock
from watchdog.incidents import Incident
from watchdog.judge.facts.learned import OneStart
from watchdog.judge.ledger import Ordered
from watchdog.judge.verdict import Action, Condition, Intent, Status
from watchdog.observation import STRUCK, Acted, Answer, Kernel, Log, Metrics, Observation, Operator, Probe, Self, Server, Unit
from watchdog.recall import Recall, recall, unread
from watchdog.replay import Record, replay, settings_of
from watchdog.sglang.loglines import classify
from watchdog.view import server_view
from watchdog.watch import Watch

EXAMPLES = Path(__file__).parent / "sglang/log_examples.jsonl"
SECRET = "a-key-of-nobody-1234567890"
BARE = 'MARKER-sk-"kimi"-77'
LIFE = "a" * 32


class Made:
    """A watch on a clock that the test moves."""

    def __init__(self, home: Path, known: Recall | None = None, **server: object) -> None:
        self.clock = FakeClock()
        self.decided: list[Intent] = []
        whole = config.Config(servers=[config.Server(name="kimi", unit="kimi.service", **server)])  # type: ignore[arg-type]
        decided = self.decided.append
        self.watch = Watch(whole.servers[0], whole, home, self.clock, lambda _w, _t, intent: decided(intent), known=known)

    def take(self, *observations: Observation) -> None:
        for x in observations:
            self.watch.take(x)

    def serving(self) -> None:
        self.take(
            Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", main_pid=1, since=0.0),
            Log(t=1.0, inv=LIFE, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!"),
        )


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


@pytest.mark.parametrize(
    "message",
    [
        f"server_args=ServerArgs(model_path='/m', api_key='{SECRET}', port=30000)",
        f'server_args={{"api_key": "{SECRET}", "port": 30000}}',
        f"python -m sglang.launch_server --api-key {SECRET} --port 1",
        f"HF_TOKEN={SECRET} was set",
        f"Receive: obj=GenerateReqInput(rid='1', text='my password is {SECRET}')",
        f"Authorization: Bearer {SECRET}",
    ],
)
def test_keys_and_prompts_are_kept_nowhere(made: Made, message: str) -> None:
    made.take(Log(t=1.0, inv=LIFE, message=message))
    kept = b"\n".join(made.watch.recorder.lines()).decode() + repr(made.watch.latest) + repr(list(made.watch.diary))
    assert SECRET not in kept
    assert "[…]" in kept or "…" in kept or "left out" in kept


@pytest.mark.parametrize(
    "x",
    [
        Log(t=1.0, inv=LIFE, message=f"RuntimeError: bad request from {BARE}."),
        Probe(t=1.0, inv=LIFE, probe="chat", outcome="ok", answer=Answer(text=f"your key is {BARE}")),
        Probe(t=1.0, inv=LIFE, probe="chat", outcome="status", status=500, body=f"<{BARE}>", detail=f"({BARE})"),
        Server(t=1.0, inv=LIFE, args={"served_model_name": BARE}, env={"SGLANG_X": f"{BARE},1"}),
        Kernel(t=1.0, message=f"python3[12]: segfault {BARE}"),
        Acted(t=1.0, action="restart", result="failed", detail=f"it said {BARE}"),
        Operator(t=1.0, action="acknowledge", reason=f"I use {BARE}"),
        Self(t=1.0, fallen=[f"endpoint: ValueError: {BARE}"]),
    ],
    ids=lambda x: type(x).__name__.lower(),
)
def test_a_known_key_is_kept_nowhere_even_where_nothing_names_it(made: Made, x: Observation) -> None:
    keyring.remember(BARE)
    made.serving()
    made.take(x)
    kept = b"\n".join(made.watch.recorder.lines()).decode() + repr(made.watch.latest) + json.dumps(server_view(made.watch))
    assert BARE not in kept + repr(list(made.watch.diary))
    assert STRUCK in kept


def test_a_body_that_echoes_a_key_is_cleaned(made: Made) -> None:
    made.take(
        Probe(t=1.0, probe="chat", outcome="status", status=401, body=f'{{"api_key": "{SECRET}"}}', detail=f"Bearer {SECRET}")
    )
    assert SECRET not in repr(made.watch.failed_probes)


def examples() -> Iterator[str]:
    for line in EXAMPLES.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)["line"]


def test_what_is_left_out_changes_no_meaning() -> None:
    changed = 0
    for text in examples():
        clean = without_secrets(Log(t=0.0, message=text))
        assert isinstance(clean, Log)
        before, after = classify(text), classify(clean.message)
        assert (before.mark if before else None) == (after.mark if after else None), text
        assert (before.fields if before else None) == (after.fields if after else None), text
        changed += clean.message != text
    assert changed < 40, "most lines have nothing to hide"


def test_a_judge_that_raises_is_told_once_and_the_record_goes_on(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(made.watch.log, "error", lambda _event, **fields: told.append(fields["message"]), raising=False)

    def raises(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("watchdog.judge.engine.decide", raises)
    made.serving()
    for n in range(20):
        made.clock.advance(5)
        made.watch.tick()
        made.take(Operator(t=made.clock.now(), action="acknowledge", reason=str(n)))
    assert made.watch.faults >= 20
    assert len(told) == 1
    assert "ZeroDivisionError" in told[0]
    assert len(made.watch.recorder.lines()) > 20


def test_the_diary_has_what_is_in_doubt(made: Made) -> None:
    made.serving()
    made.clock.advance(30)
    made.take(Probe(t=made.clock.now(), inv=made.watch.target.inv, probe="health", outcome="timeout", total_s=20.0, limit_s=20.0))
    made.watch.tick()
    last = made.watch.diary[-1]
    assert (last.what, last.reason) == ("condition", "ProbeFailed")
    assert last.text.startswith("SchedulerProgressing: Probes fail: health")


def test_that_nothing_was_seen_yet_buries_nothing(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds, what does not, and that it no longer is known not to hold: all of that is told."""
    told: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(made.watch.log, level, lambda _event, **fields: told.append(fields["message"]), raising=False)
    made.serving()
    assert {said.partition(" (")[0] for said in told} >= {"UnitActive is True", "Started is True"}
    assert [said for said in told if " is Unknown (No" in said] == []
    told.clear()
    down = Unit(t=30.0, inv=LIFE, load_state="loaded", active_state="failed", sub_state="failed", result="signal", since=30.0)
    made.take(down)
    made.clock.advance(60.0)
    made.watch.tick()
    assert [said for said in told if said.startswith("UnitActive is False")]
    made.watch._condition(70.0, Condition(type="UnitActive", status=Status.UNKNOWN, reason="NotSeen", message="?", since=70.0))
    assert told[-1] == "UnitActive is Unknown (NotSeen): ?"


def test_a_key_that_cannot_be_read_is_told_once_and_again_after_it_was_mended(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(made.watch.log, "error", lambda _event, **fields: told.append(fields["message"]), raising=False)
    blocked = Probe(t=1.0, probe="models", outcome="skipped", why="config", detail="the API key file /k cannot be read")
    health = Probe(t=1.5, probe="health", outcome="ok")  # which is asked without a key meanwhile
    made.take(blocked, health, blocked, Probe(t=2.0, probe="models", outcome="ok"), blocked)
    assert told == ["the server cannot be asked: the API key file /k cannot be read"] * 2


def test_sources_hold_back_while_it_starts_and_while_we_are_paused(made: Made) -> None:
    made.take(Unit(t=0.0, inv=LIFE, load_state="loaded", active_state="active", sub_state="running", since=0.0))
    assert made.watch.target.hold == "starting"
    made.serving()
    made.watch.tick()
    assert made.watch.target.hold is None
    assert made.watch.target.closer, "a young life is looked at closely"
    made.take(Operator(t=2.0, action="pause", until=100.0, reason="work"))
    assert made.watch.target.hold == "paused"
    assert made.watch.stand_down() == "paused by a person: work"
    made.clock.advance(101)
    made.watch.tick()
    assert made.watch.target.hold is None


def test_sources_are_told_of_the_model_and_of_others_requests(made: Made) -> None:
    assert made.watch.target.args == {} and made.watch.target.alone
    made.serving()
    args = {"model_path": "/models/Kimi-K2.5", "reasoning_parser": "kimi_k2"}
    made.take(Server(t=2.0, inv=LIFE, version="0.5.23", args=args))
    made.take(Metrics(t=3.0, inv=LIFE, ok=True, values={"num_running_reqs": 3.0, "num_queue_reqs": 0.0}))
    made.watch.tick()
    assert made.watch.target.args == args and not made.watch.target.alone and not made.watch.target.crowded
    made.take(Metrics(t=8.0, inv=LIFE, ok=True, values={"num_running_reqs": 3.0, "num_queue_reqs": 1.0}))
    made.watch.tick()
    assert made.watch.target.crowded
    made.take(Metrics(t=13.0, inv=LIFE, ok=True, values={"num_running_reqs": 0.0, "num_queue_reqs": 0.0}))
    made.watch.tick()
    assert made.watch.target.alone and not made.watch.target.crowded


async def test_sources_are_woken_by_what_they_are_told_and_by_nothing_else(made: Made) -> None:
    async with asyncio.timeout(30):
        waiting = asyncio.create_task(made.watch.target.change(60))
        await asyncio.sleep(0)
        made.serving()
        await waiting
        made.watch.tick()
        waiting = asyncio.create_task(made.watch.target.change(60))
        await asyncio.sleep(0)
        made.watch.tick()
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await made.watch.target.change(0.01)


def test_a_record_never_goes_back_in_time(made: Made) -> None:
    """Two sources may look at the clock in one order and be heard in the other; a replay leaves out what goes back."""
    made.take(Log(t=31.62939, message="x"), Probe(t=31.629356, probe="health", outcome="ok"), Log(t=32.0, message="y"))

    lines = [json.loads(line) for line in made.watch.recorder.lines(0.0)]
    assert [x["t"] for x in lines if "kind" in x] == [31.62939, 31.62939, 32.0]


def test_a_pause_survives_the_daemon(tmp_path: Path) -> None:
    first = Made(tmp_path)
    first.take(Operator(t=0.0, action="pause", until=600.0, reason="work"))
    assert first.watch.dirty
    first.watch.file.write(first.watch.file.encode(first.watch.snapshot_state()))

    second = Made(tmp_path)
    assert second.watch.stand_down() == "paused by a person: work"
    second.take(Operator(t=1.0, action="resume"))
    second.watch.file.write(second.watch.file.encode(second.watch.snapshot_state()))
    assert Made(tmp_path).watch.stand_down() is None


@pytest.mark.parametrize("how", ["reload", "start", "late"])
def test_what_was_only_said_is_forgotten_when_the_mode_becomes_act(tmp_path: Path, how: str) -> None:
    """By a reload, by a start with another mode, or when the state could only be read late."""
    made = Made(tmp_path, mode="observe")
    made.serving()
    made.watch.engine.ledger.order(2.0, "SchedulerHung", LIFE, config.Restarting(), dry=True)
    if how == "reload":
        server = config.Server(name="kimi", unit="kimi.service", mode="act")
        made.watch.reconfigure(server, config.Config(servers=[server]))
    else:
        made.watch.file.write(made.watch.file.encode(made.watch.snapshot_state()))
        made = Made(tmp_path, mode="act", known=unread() if how == "late" else None)
        made.serving()
        if how == "late":
            made.watch.remember(recall(tmp_path, made.clock))
    made.clock.advance(5.0)
    made.watch.tick()
    ledger = made.watch.engine.ledger
    assert (ledger.restarts, ledger.condemned) == ([], None)


def test_redaction_is_what_the_bundle_uses_too() -> None:
    assert redact.secrets(f"--api-key {SECRET}") == "--api-key …"


def test_a_week_of_observing_is_counted_over_restarts_of_the_daemon(tmp_path: Path) -> None:
    day = 86400.0
    before = Made(tmp_path, mode="observe")
    before.clock.advance(5 * day)
    before.watch.file.write(before.watch.file.encode(before.watch.snapshot_state()))
    after = Made(tmp_path, mode="observe")
    after.clock.advance(1.5 * day)
    assert after.watch.observed_s() == 6.5 * day
    assert server_view(after.watch)["observed"] == {"s": 6.5 * day, "week": False, "would_restart": 0}
    after.watch.engine.ledger.order(after.clock.now(), "SchedulerHung", LIFE, config.Restarting(), dry=True)
    after.clock.advance(0.5 * day)
    assert server_view(after.watch)["observed"] == {"s": 7 * day, "week": True, "would_restart": 1}
    after.clock.advance(6.6 * day)
    assert server_view(after.watch)["observed"]["would_restart"] == 0, "what is longer ago than a week counts no more"


def test_to_act_ends_the_observing(tmp_path: Path) -> None:
    made = Made(tmp_path, mode="observe")
    made.clock.advance(86400.0)
    act, observe = (config.Server(name="kimi", unit="kimi.service", mode=mode) for mode in ("act", "observe"))
    made.watch.reconfigure(act, config.Config(servers=[act]))
    assert made.watch.observed_s() is None
    made.clock.advance(10.0)
    made.watch.reconfigure(observe, config.Config(servers=[observe]))
    made.clock.advance(5.0)
    assert made.watch.observed_s() == 5.0
    assert made.watch.snapshot_state().observed_s == 5.0


@pytest.mark.parametrize("hang_s", [20.0, 130.0])
def test_the_record_cut_at_a_decision_shows_it_by_the_settings_that_made_it(tmp_path: Path, hang_s: float) -> None:
    """As a bundle has it: the daemon judges at any moment, mostly after the last observation and off the grid of a replay."""
    played = CASES["hang-zero-use"].sim("plain", 7).out
    cut: dict[float, list[bytes]] = {}

    def decided(watch: Watch, t: float, intent: Intent) -> None:
        if intent.action is Action.RESTART and t not in cut:
            cut[t] = watch.recorder.lines(t - 1800.0, until=t)

    clock = FakeClock()
    server = config.Server(name="kimi", unit="kimi.service", judge=config.Judging(hang_s=hang_s))
    whole = config.Config(daemon=config.Daemon(tick_s=1.0), servers=[server])
    watch = Watch(server, whole, tmp_path, clock, decided)
    for x in played:
        while clock.now() + 0.7 < x.t:
            clock.advance(0.7)
            watch.tick()
        clock.advance(max(0.0, x.t - clock.now()))
        watch.take(x)
    t, lines = next(iter(cut.items()))
    file = tmp_path / "cut.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    record = Record(file)
    settings = settings_of(record.header)
    assert (settings.judge.hang_s, settings.tick_s) == (hang_s, 1.0)
    told = list(replay(record, settings))
    restarts = [line["t"] for line in told if line.get("action") == "restart"]
    assert len(restarts) == 1
    assert t - 1.0 <= restarts[0] <= t
    assert (told[-1]["restarts"], told[-1]["t"]) == (1, round(t, 3))


def test_the_header_has_no_default_and_follows_a_reload(tmp_path: Path) -> None:
    made = Made(tmp_path)

    def headers() -> list[dict[str, object]]:
        if (work := made.watch.recorder.pending()) is not None:
            work()
        return [Record(file).header.config for file in sorted(tmp_path.glob("flight/*.jsonl*"))]

    made.serving()
    assert headers() == [{}]
    server = msgspec.structs.replace(made.watch.server, judge=config.Judging(hang_s=90.0))
    made.clock.advance(5.0)
    made.watch.reconfigure(server, config.Config(servers=[server]))
    made.take(Log(t=5.0, inv=LIFE, message="a line"))
    assert headers() == [{}, {"judge": {"hang_s": 90.0}}]
    made.watch.reconfigure(server, config.Config(servers=[server]))
    made.take(Log(t=6.0, inv=LIFE, message="a line"))
    assert len(headers()) == 2, "a reload that changes nothing begins no new segment"


def test_the_recorder_follows_a_reload(tmp_path: Path) -> None:
    made = Made(tmp_path)

    def written() -> bool:
        made.take(Log(t=made.clock.now(), inv=LIFE, message="a line"))
        return (work := made.watch.recorder.pending()) is not None and work() is None

    assert written()
    server = msgspec.structs.replace(made.watch.server, base_url="http://127.0.0.1:31000")
    made.watch.reconfigure(server, config.Config(servers=[server], record=config.Recording(enabled=False)))
    assert not written(), "from now on nothing goes to the disk"
    made.clock.advance(5.0)
    made.watch.reconfigure(server, config.Config(servers=[server]))
    assert written()
    assert Record(max(tmp_path.glob("flight/*.jsonl"))).header.base_url == server.base_url


def test_what_is_read_late_is_joined_with_what_was_decided_since(tmp_path: Path) -> None:
    before = Made(tmp_path)
    before.watch.take(Operator(t=0.0, action="pause", reason="by hand"))
    before.watch.engine.ledger.restarts.append(Ordered(t=-60.0, reason="SchedulerHung"))
    before.watch.engine.ledger.alerts["Old"] = -60.0
    before.watch.engine.facts.learned.add_start(OneStart(inv="1", total_s=100.0))
    incident = Incident(begun=-60.0, reason="Old", cause="old", action=Action.ALERT, changed=-50.0)
    before.watch.saved.incidents.append(incident)
    before.watch.file.write(before.watch.file.encode(before.watch.snapshot_state()))
    watch = Made(tmp_path, known=unread()).watch
    learned = watch.engine.facts.learned
    watch.engine.ledger.alerts["New"] = 5.0
    learned.add_start(OneStart(inv="2", total_s=300.0))
    watch.saved.incidents.append(Incident(begun=4.0, reason="New", cause="new", action=Action.ALERT, changed=5.0))

    watch.remember(recall(tmp_path, watch.clock))

    saved = watch.snapshot_state()
    assert watch.unread is None
    assert watch.engine.facts.paused(watch.clock.now())
    assert (saved.paused, saved.pause_reason) == (True, "by hand")
    assert [r.reason for r in saved.ledger.restarts] == ["SchedulerHung"]
    assert sorted(saved.ledger.alerts) == ["New", "Old"]
    assert [s.inv for s in learned.starts] == ["1", "2"]
    assert learned.start_s == 200.0
    assert [(i.reason, i.ended is None) for i in saved.incidents] == [("Old", False), ("New", True)]
    assert watch.incidents.all is saved.incidents


def test_a_person_s_word_is_newer_than_what_is_read_late(tmp_path: Path) -> None:
    before = Made(tmp_path)
    before.watch.take(Operator(t=0.0, action="pause", reason="by hand"))
    before.watch.file.write(before.watch.file.encode(before.watch.snapshot_state()))
    made = Made(tmp_path, known=unread())
    made.take(Operator(t=1.0, action="resume"))
    made.watch.remember(recall(tmp_path, made.clock))
    assert not made.watch.saved.paused
    assert not made.watch.engine.facts.paused(made.clock.now())


def test_our_own_canary_is_not_taken_for_traffic_that_proves_the_server(made: Made) -> None:
    """Requests that ended spare the server a probe, and hold it off; what may have been our own canary does not."""

    def scraped(t: float, ended: float) -> str | None:
        made.clock.advance(t - made.clock.now())
        made.take(Metrics(t=t, inv=LIFE, ok=True, values={"e2e_request_latency_seconds_count": ended}))
        made.watch.tick()
        return made.watch.target.hold

    made.serving()
    scraped(10.0, 4.0)
    answer = Answer(text="Paris.", finish_reason="stop")
    made.take(Probe(t=15.0, inv=LIFE, probe="chat", outcome="ok", status=200, total_s=0.4, limit_s=60.0, answer=answer))

    assert scraped(20.0, 5.0) is None, "it may be the canary that ended"
    assert scraped(30.0, 5.0) is None
    assert scraped(40.0, 7.0) == "traffic"
